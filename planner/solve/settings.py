"""What solving takes besides the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct, field

from planner.market.regret import Future, scenarios
from planner.perf.serving.replica import Confidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.market.offer import Catalog, Instance
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.training.correction import TrainingCorrection

ResultT = TypeVar("ResultT")

DEFAULT_LEVEL: Final = 0.9  # chance that all limits hold together
DEFAULT_CONFIDENCE: Final = Confidence(DEFAULT_LEVEL)


def run_in_turn(tasks: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
    """Run tasks one after the other."""
    return [task() for task in tasks]


class TaskRunner(Protocol):
    """Runs tasks that do not depend on each other, and returns what they return, in order."""

    def __call__(
        self, tasks: Sequence[Callable[[], ResultT]], /
    ) -> list[ResultT]:
        """Run the tasks."""


class Memory:
    """What solvers keep from one spec to the next. It changes how long an answer takes alone."""

    def __init__(self) -> None:
        self._kept: dict[type, Any] = {}

    def get(self, kind: type[ResultT], make: Callable[[], ResultT]) -> ResultT:
        """Return what is kept of a class; `make` makes it when it is asked for at first."""
        if kind not in self._kept:
            self._kept[kind] = make()
        kept: ResultT = self._kept[kind]
        return kept


class SolveSettings(Struct, frozen=True, kw_only=True):
    """What solving takes besides the spec.

    catalog            offers, and prices of everything else
    unbuilt_reason     says why no stack can be built with a machine type, or nothing
    read_file          opens files beside the spec
    alternative_count  how many alternatives of each sort are shown
    confidence         with which limits are met, and what a benchmark of the user's own taught
    run_all            runs tasks that do not depend on each other, and returns what they return
    memory             what specs leave for those that are solved after them
    futures            which a commitment is held against, beside the planned one
    layout             that every replica of a service must have; none: whichever is cheapest
    training_correction  what runs of the user's own taught of training
    names_nearest      whether the answer to a service that nothing serves names what would do
    """

    catalog: Catalog
    unbuilt_reason: Callable[[Instance], str | None]
    read_file: Callable[[str], bytes]
    alternative_count: int = 3
    confidence: Confidence = DEFAULT_CONFIDENCE
    run_all: TaskRunner = run_in_turn
    memory: Memory = field(default_factory=Memory)
    futures: tuple[Future, ...] = field(default_factory=scenarios)
    layout: ReplicaLayout | None = None
    training_correction: TrainingCorrection | None = None
    names_nearest: bool = True
