"""Brings a stack up with Pulumi, and tries again what a cloud refuses for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import ResourceError
from stacks.engine.failure import (
    MAX_ATTEMPTS,
    TRANSIENT_CLASSES,
    retry_delay_s,
)
from stacks.engine.pulumi.checkpoint import resource_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from stacks.engine.pulumi.event import EventRecorder
    from stacks.engine.pulumi.program import Program
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.engine.stop import StopRequest


def bring_up(
    pulumi_stack: PulumiStack,
    program: Program,
    recorder: EventRecorder,
    *,
    stop: StopRequest,
    pause: Callable[[float], object],
) -> None:
    """Bring a stack up to a program; `pause` lets seconds pass.

    Pulumi ends at the first refusal. Attempts are counted anew whenever one of them has made more
    objects than there ever were: a graph is as deep as it is.
    """
    attempt = 0
    most_objects = 0
    while True:
        attempt += 1
        try:
            pulumi_stack.update(program, recorder, stop)
        except ResourceError as error:
            if program.gate is not None and program.gate.error is not None:
                raise program.gate.error from error
            if any(
                problem.code not in TRANSIENT_CLASSES
                for problem in error.problems
            ):
                raise
            object_count = len(resource_ids(pulumi_stack.deployment))
            if object_count > most_objects:
                attempt, most_objects = 1, object_count
            if attempt >= MAX_ATTEMPTS:
                raise
            recorder.errors_by_urn.clear()
            messages = [problem.message for problem in error.problems]
            pause(retry_delay_s(attempt, messages, pulumi_stack.name))
            if stop.is_made:
                raise
        else:
            return
