"""Pulumi's structured events as progress of a stack."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from planner.errors import Problem
from stacks.engine.failure import RefusedCall
from stacks.engine.protocol import ProgressEvent, ResourceStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stacks.engine.protocol import Action, Listener

ACTION_BY_OP: Final[dict[str, Action]] = {
    "create": "create",
    "update": "update",
    "delete": "delete",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "same": "same",
}

# How Pulumi calls a policy that ends an update.
MANDATORY: Final = "mandatory"


class EventRecorder:
    """Turns the engine's structured events into ours, and keeps its errors by resource."""

    def __init__(
        self, listener: Listener, kept_names: Iterable[str] = ()
    ) -> None:
        self.listener = listener
        self.kept_names = frozenset(kept_names)
        self.start_s = time.monotonic()
        self.steps_by_name: dict[str, ResourceStep] = {}
        self.errors_by_urn: dict[str, list[str]] = {}
        self.violations: list[Problem] = []

    def __call__(self, engine_event: Any) -> None:
        """Take one event of the engine."""
        events_by_phase = (
            ("begin", engine_event.resource_pre_event),
            ("done", engine_event.res_outputs_event),
            ("failed", engine_event.res_op_failed_event),
        )
        for event_phase, phase_event in events_by_phase:
            if phase_event is not None:
                self._record_step(event_phase, phase_event.metadata)
        diagnostic = engine_event.diagnostic_event
        if diagnostic is not None and diagnostic.severity == "error":
            self.errors_by_urn.setdefault(diagnostic.urn or "", []).append(
                diagnostic.message.strip()
            )

        if engine_event.policy_event is not None:
            self._record_policy(engine_event.policy_event)

    def _record_policy(self, policy_event: Any) -> None:
        """Keep what a policy pack refuses, and tell what it only advises."""
        urn = policy_event.resource_urn or ""
        name = urn.rsplit("::", 1)[-1] or "the stack"
        rule = f"{policy_event.policy_pack_name}/{policy_event.policy_name}"
        message = " ".join(policy_event.message.split())
        if policy_event.enforcement_level == MANDATORY:
            self.violations.append(
                Problem(
                    code="policy-pack",
                    message=f"{name}: {message}",
                    cause=f"the policy {rule} is mandatory",
                    next_step="change what the spec asks for, or ask those who set the policy",
                )
            )
            return
        resource_type = urn.split("::")[-2].split("$")[-1] if urn else ""
        self.listener(
            ProgressEvent(
                self.elapsed_s(),
                ResourceStep("same", resource_type, name),
                "advice",
                f"{rule}: {message}",
            )
        )

    def _record_step(self, event_phase: Any, step_metadata: Any) -> None:
        step_action = ACTION_BY_OP.get(step_metadata.op.value)
        if step_action is None or step_metadata.type.startswith("pulumi:"):
            return
        resource_name = step_metadata.urn.rsplit("::", 1)[-1]
        # Pulumi calls it a deletion when it forgets an object that it leaves.
        if step_action == "delete" and resource_name in self.kept_names:
            step_action = "keep"
        prior_step = self.steps_by_name.get(resource_name)
        is_old_object = step_metadata.op.value == "delete-replaced"
        resource_step = ResourceStep(
            step_action,
            step_metadata.type,
            resource_name,
            tuple(sorted(step_metadata.detailed_diff or {})),
            # The order of the events is that of the calls.
            deletes_first=prior_step.deletes_first
            if prior_step
            else is_old_object,
        )
        if step_action != "same":
            self.steps_by_name[resource_name] = resource_step
            error_detail = (
                "; ".join(self.errors_by_urn.get(step_metadata.urn, []))
                if event_phase == "failed"
                else ""
            )
            self.listener(
                ProgressEvent(
                    self.elapsed_s(), resource_step, event_phase, error_detail
                )
            )

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_s

    def changed_steps(self) -> tuple[ResourceStep, ...]:
        """Return the steps that changed something."""
        return tuple(
            self.steps_by_name[resource_name]
            for resource_name in sorted(self.steps_by_name)
        )

    def failures(self) -> list[RefusedCall]:
        """Return what failed, by resource; the run's own summary only when nothing else did."""
        resource_failures = [
            RefusedCall(
                resource_urn.rsplit("::", 1)[-1], "; ".join(error_messages)
            )
            for resource_urn, error_messages in sorted(
                self.errors_by_urn.items()
            )
            if resource_urn
        ]
        return resource_failures or [
            RefusedCall("the update", error_messages)
            for error_messages in self.errors_by_urn.get("", [])
        ]
