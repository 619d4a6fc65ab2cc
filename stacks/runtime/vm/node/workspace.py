"""A workspace: people work on the machine, and nobody starts anything for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import activity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

# A key that was pressed so lately is work.
TYPED_S = 120.0


class WorkspaceNode:
    """The people of a workspace, and the programs that they have left running."""

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        del cloud, settings
        self._machine = machine
        self._work = work

    def look(self) -> bool:
        """Say whether the machine is used. Raises CommandError when that is not known."""
        is_busy = activity.accelerators_work(
            self._machine
        ) or activity.people_work(self._machine, TYPED_S)
        self._work.tell("working", "wait for people", is_busy=is_busy)
        return True

    def leave(self) -> None:
        """Do nothing: files of people are on their disk."""
