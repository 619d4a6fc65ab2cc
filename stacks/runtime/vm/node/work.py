"""The state of the work of a node, which the work writes and the agent reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stacks.runtime.vm.node.host import (
    CommandError,
    RequestError,
    read_document,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.host import Host

# What another try may overcome.
FAILURES = (CommandError, RequestError, OSError, ValueError)
# In a folder that a reboot empties, as it resets the clock of the times in it.
STATE_PATH = "/run/tonnage/work.json"
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 60.0
# Work that lasted so long was well: what fails after it is a new start.
STEADY_S = 600.0


class StepError(ValueError):
    """A step of the start that cannot be done yet, and why."""


class BrokenMachineError(StepError):
    """The machine is not sound; no other try helps."""


@dataclass
class WorkState:
    """What the work of a node does. Times are seconds since the start of the system.

    phase      starting; waiting for other nodes; spare; working; done; failed, again and again;
               unhealthy, which is a matter of the machine
    step       what it does in this phase
    problem    why it is not further, empty without a problem
    since_s    when the phase began; of a start, when the first of its tries began
    told_s     when this was written
    busy_s     when there was work at last
    failed_s   when the work ended or hung at last without being done; nothing if it never did
    numbers    what charts show of it, by the name of the metric
    """

    phase: str
    step: str
    problem: str
    since_s: float
    told_s: float
    busy_s: float
    failed_s: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)


class Work:
    """Tells the agent what the work does."""

    def __init__(self, machine: Host) -> None:
        self._machine = machine
        now_s = machine.now_s()
        known = read_state(machine)
        # A work that is started again goes on in the phase in which it was.
        self.state = known or WorkState("starting", "", "", now_s, now_s, now_s)

    def tell(
        self,
        phase: str,
        step: str,
        problem: str = "",
        *,
        is_busy: bool = True,
    ) -> None:
        """Write what the work does now. What fails soon after its start is the same start."""
        state, now_s = self.state, self._machine.now_s()
        if problem and problem != state.problem:
            self._machine.log(f"{step}: {problem}")
        if phase != state.phase:
            was_steady = now_s - state.since_s >= STEADY_S
            if phase != "starting" or was_steady:
                state.since_s = now_s
            self._machine.log(f"{phase}: {step}")
        state.phase, state.step, state.problem = phase, step, problem
        state.told_s = now_s
        if is_busy:
            state.busy_s = now_s
        self._write()

    def fail(self, step: str, problem: str) -> None:
        """Write that the work has ended or hung, and starts again."""
        self.state.failed_s = self._machine.now_s()
        self.state.numbers = {}
        self.tell("starting", step, problem)

    def measure(self, numbers: Mapping[str, float]) -> None:
        """Keep what charts show; the agent tells it once a minute."""
        self.state.numbers.update(numbers)

    def note(self, problem: str) -> None:
        """Write why the work cannot be looked at. That is no word of it: silence has a limit."""
        self.state.problem = problem
        self._machine.log(problem)
        self._write()

    def _write(self) -> None:
        write_whole(
            self._machine.path(STATE_PATH), json.dumps(vars(self.state))
        )


def read_state(machine: Host) -> WorkState | None:
    """Return what the work has told; nothing before its first word."""
    document = read_document(machine.path(STATE_PATH))
    return WorkState(**document) if document else None


def run_steps(
    machine: Host,
    work: Work,
    steps: Sequence[tuple[str, Callable[[], None]]],
) -> None:
    """Do steps in their order, each until it succeeds.

    The agent ends a start that takes too long.
    """
    for name, do_step in steps:
        wait_s = FIRST_WAIT_S
        while failure := _failure_of(do_step):
            phase, problem = failure
            work.tell(phase, name, problem)
            machine.sleep(wait_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)
        work.tell("starting", name)


def _failure_of(do_step: Callable[[], None]) -> tuple[str, str] | None:
    """Do a step; return the phase in which a failure leaves the node, and why."""
    try:
        do_step()
    except BrokenMachineError as error:
        return "unhealthy", str(error)
    except FAILURES as error:
        return "starting", str(error) or type(error).__name__
    return None
