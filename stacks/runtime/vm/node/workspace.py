"""A workspace: people work on the machine, in a shell or in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import activity, container
from stacks.runtime.vm.node.home import HOME
from stacks.runtime.vm.node.host import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

NAME = "tonnage-notebook"
# A key that was pressed so lately is work.
TYPED_S = 120.0
# An editor saves less often than a key is pressed.
EDITED_MINUTES = 5
STOP_S = 30


class WorkspaceNode:
    """The people of a workspace, and the programs that they have left running.

    Settings: container and port, of JupyterLab. A shell is there without it.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        del cloud
        self._machine = machine
        self._work = work
        self._settings = settings
        self._failures = container.Failures(machine)
        self._was_started = False

    def look(self) -> bool:
        """Say whether the machine is used. Raises CommandError when that is not known."""
        problem = self._keep_notebook()
        is_busy = (
            activity.accelerators_work(self._machine)
            or activity.people_work(self._machine, TYPED_S)
            or activity.notebook_is_used(
                self._machine, self._settings["port"], TYPED_S
            )
            or activity.files_change(self._machine, HOME, EDITED_MINUTES)
        )
        self._work.tell("working", "wait for people", problem, is_busy=is_busy)
        return True

    def leave(self) -> None:
        """End JupyterLab: files of people are on their disk."""
        container.stop(self._machine, NAME, STOP_S)

    def _keep_notebook(self) -> str:
        """Start JupyterLab when it does not run; return why it is left alone, if it is."""
        exit_ = container.ended(self._machine, NAME)
        if exit_ is None:
            return ""
        if self._was_started:
            self._failures.add()
        if self._failures.are_many:
            return f"JupyterLab ends again and again: {exit_.last_lines}"
        self._was_started = True
        try:
            container.start(
                self._machine, NAME, self._settings["container"], []
            )
        except CommandError as error:
            return f"JupyterLab does not start: {error}"
        return ""
