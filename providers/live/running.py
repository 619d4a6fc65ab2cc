"""Asks a cloud what runs of a stack, what it has cost, and what is committed to for it.

`providers.<cloud>.running` is a `RunningModule`.
"""

from __future__ import annotations

import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from planner.market.live import CommitmentAnswer, UsedAnswer
from planner.plan.live_status import CostAnswer, RunningAnswer
from providers.live.place import (
    LivePlace,
    LiveQuestion,
    ask_all,
    ask_callers,
    find_commitments,
    find_use,
    may_ask,
    unasked,
)

if TYPE_CHECKING:
    from datetime import date

    from planner.market.live import CallerAnswer
    from planner.plan.actual.charge import StackTags
    from planner.plan.live_status import CostSoFar, RunningMachines


class RunningModule(Protocol):
    """Every function raises the errors of `providers.live.access`.

    `tags` say which machines and costs are those of a stack.
    """

    def running_machines(
        self, region: str, tags: StackTags
    ) -> list[RunningMachines]:
        """Return the machines of a stack that run, sorted."""

    def month_cost(
        self, region: str, tags: StackTags, today: date
    ) -> CostSoFar:
        """Return what a stack has cost in the month of a day.

        Raises OSError where the cloud does not say: a cost that it has not counted yet is no
        zero.
        """


class StackAnswers(NamedTuple):
    """All that a cloud answers about a stack."""

    caller: CallerAnswer
    running: RunningAnswer
    cost: CostAnswer
    commitments: CommitmentAnswer
    commitment_use: UsedAnswer


def ask_stack(
    place: LivePlace, tags: StackTags, today: date, deadline_s: float
) -> StackAnswers:
    """Return what a cloud answers about a stack, all questions at once.

    What is not answered after `deadline_s` seconds is unknown, and all of it where nobody is
    signed in.
    """
    end_s = time.monotonic() + deadline_s
    caller = ask_callers([place], end_s)[place.cloud]
    questions = [
        LiveQuestion(
            place, "running", RunningAnswer, partial(_running, place, tags)
        ),
        LiveQuestion(
            place, "cost", CostAnswer, partial(_cost, place, tags, today)
        ),
        LiveQuestion(
            place,
            "commitments",
            CommitmentAnswer,
            partial(find_commitments, place),
        ),
        LiveQuestion(
            place, "commitment_use", UsedAnswer, partial(find_use, place)
        ),
    ]
    if not may_ask(questions[0], caller):
        unknown: Any = [unasked(question, caller) for question in questions]
        return StackAnswers(caller, *unknown)
    return StackAnswers(caller, *ask_all(questions, end_s))


def _running(place: LivePlace, tags: StackTags) -> tuple[RunningMachines, ...]:
    return tuple(_module(place.cloud).running_machines(place.region, tags))


def _cost(place: LivePlace, tags: StackTags, today: date) -> CostSoFar:
    return _module(place.cloud).month_cost(place.region, tags, today)


def _module(cloud: str) -> RunningModule:
    module: RunningModule = import_module(f"providers.{cloud}.running")
    return module
