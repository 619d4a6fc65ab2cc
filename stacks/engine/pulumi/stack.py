"""One stack of a backend of Pulumi, which is read once between two writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pulumi.automation import (
    ConfigValue,
    Deployment,
    Stack,
    UpdateSummary,
)

from stacks.engine.stop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from planner.plan.types import Properties
    from stacks.engine.pulumi.event import EventRecorder
    from stacks.engine.pulumi.program import Program
    from stacks.engine.pulumi.session import PulumiSession

EMPTY_SUMMARY: Final = UpdateSummary(
    "", datetime.min.replace(tzinfo=UTC), "", {}, {}, ""
)


class PulumiStack:
    """A stack of a backend.

    Its checkpoint and its configuration are read once, and the checkpoint again after each write
    of this process. Where others may write in between, as before a lock is taken, the stack is
    opened anew.
    """

    def __init__(
        self,
        session: PulumiSession,
        stack_name: str,
        workspace: Any,
        *,
        create: bool,
    ) -> None:
        """Open a stack of a workspace of the SDK, or create it.

        Raises StackNotFoundError of the SDK where it is not to be created.
        """
        open_stack = Stack.create_or_select if create else Stack.select
        self.name = stack_name
        self.session = session
        self._stack = open_stack(stack_name, workspace)
        # After each run the SDK runs the program three times more, for what nobody reads.
        self._stack.outputs = dict
        self._stack.info = lambda *_: EMPTY_SUMMARY
        self._exported: Properties | None = None
        self._config: dict[str, str] | None = None

    @property
    def deployment(self) -> Properties:
        """The checkpoint; empty before the first run."""
        deployment: Properties = self._read().get("deployment") or {}
        return deployment

    def write_deployment(self, deployment: Properties) -> None:
        """Replace the checkpoint."""
        version = self._read()["version"]
        self._exported = None
        self._stack.import_stack(Deployment(version, deployment))

    @property
    def config(self) -> Mapping[str, str]:
        """Values of the configuration by their keys."""
        if self._config is None:
            self._config = {
                key: entry.value
                for key, entry in self._stack.get_all_config().items()
            }
        return self._config

    def set_config(self, values: Mapping[str, str]) -> None:
        """Write values of the configuration."""
        self._stack.set_all_config(
            {key: ConfigValue(value) for key, value in values.items()}
        )
        self._config = {**self.config, **values}

    @property
    def outputs(self) -> Properties:
        """What the last update that ended well has exported."""
        for state_record in self.deployment.get("resources") or ():
            if state_record["type"] == "pulumi:pulumi:Stack":
                outputs: Properties = state_record.get("outputs") or {}
                return outputs
        return {}

    def preview(self, program: Program, recorder: EventRecorder) -> None:
        """Let a recorder hear what an update would do."""
        self._run(
            self._stack.preview,
            recorder,
            program=program,
            policy_packs=[*self.session.policy_packs],
        )

    def preview_refresh(self, recorder: EventRecorder) -> None:
        """Let a recorder hear how the checkpoint differs from the clouds."""
        self._run(self._stack.preview_refresh, recorder)

    def update(
        self, program: Program, recorder: EventRecorder, stop: StopRequest
    ) -> None:
        """Make the stack what a program asks for."""
        self._exported = None
        self._run(
            self._stack.up,
            recorder,
            stop,
            program=program,
            policy_packs=[*self.session.policy_packs],
        )

    def refresh(self, urns: Iterable[str], recorder: EventRecorder) -> None:
        """Read some resources from their clouds into the checkpoint."""
        self._exported = None
        self._run(self._stack.refresh, recorder, target=list(urns))

    def destroy(
        self,
        recorder: EventRecorder,
        stop: StopRequest,
        urns: Iterable[str] | None = None,
    ) -> None:
        """Delete some resources with all that needs them; without `urns` everything."""
        self._exported = None
        target = (
            {"target": list(urns), "target_dependents": True} if urns else {}
        )
        self._run(self._stack.destroy, recorder, stop, **target)

    def remove(self) -> None:
        """Remove the stack from its backend; it must be empty."""
        self._stack.workspace.remove_stack(self.name)

    def rename(self, new_name: str) -> None:
        """Let the stack have another name in its backend."""
        self._stack.rename(new_name)

    def _read(self) -> Properties:
        """Read the checkpoint. Its secrets stay encrypted, unlike where the SDK reads it."""
        if self._exported is None:
            workspace = self._stack.workspace
            home = workspace.pulumi_home
            result = self.session.command.run(
                ["stack", "export", "--stack", self.name],
                workspace.work_dir,
                {
                    **workspace.env_vars,
                    **({"PULUMI_HOME": home} if home else {}),
                },
            )
            exported: Properties = json.loads(result.stdout)
            self._exported = exported
        return self._exported

    def _run(
        self,
        call: Callable[..., object],
        recorder: EventRecorder,
        stop: StopRequest | None = None,
        **options: Any,
    ) -> None:
        """Make a call of the SDK, and let a recorder hear its events."""
        self.session.run(
            lambda: call(on_event=recorder, color="never", **options),
            recorder,
            self.name,
            stop or StopRequest(),
        )
