"""What a cloud itself says of a stack: which machines run, what it has cost, what is committed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from planner.market.live import (
    CallerAnswer,
    CommitmentAnswer,
    LiveAnswer,
    UsedAnswer,
)
from planner.plan.part import DocumentPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.plan.pool import Pool

SPOT: Literal["spot"] = "spot"


class RunningMachines(Struct, frozen=True, kw_only=True, order=True):
    """Machines of a stack that run, all alike."""

    pool: Annotated[str, Meta(description="as their tag says; empty without")]
    machine_type: Annotated[str, Meta(description="machine type")]
    zone: Annotated[str, Meta(description="zone; empty without one")]
    is_spot: Annotated[bool, Meta(description="whether they are on spot")]
    nodes: Annotated[int, Meta(description="how many")]


class RunningAnswer(
    LiveAnswer[tuple[RunningMachines, ...]], frozen=True, kw_only=True
):
    """The machines that carry the tag of a stack."""


class CostSoFar(Struct, frozen=True, kw_only=True):
    """What a stack has cost in a month, up to what its cloud has counted."""

    amount: Annotated[Decimal, Meta(description="commitments spread over time")]
    currency: Annotated[str, Meta(description="of the amount, such as USD")]
    first_day: Annotated[str, Meta(description="of the month, UTC")]


class CostAnswer(LiveAnswer[CostSoFar], frozen=True, kw_only=True):
    """What a stack has cost since the first day of the month."""


class MachineCount(DocumentPart, frozen=True, kw_only=True):
    """Machines of one kind, as the stack was applied and as its cloud says."""

    pool: Annotated[str, Meta(description="pool; empty where no tag says it")]
    machine_type: Annotated[str, Meta(description="machine type")]
    is_spot: Annotated[bool, Meta(description="whether they are on spot")]
    planned: Annotated[
        int, Meta(description="at the peak, by the plan that was applied")
    ]
    running: Annotated[
        int | None, Meta(description="now; none where nobody says")
    ]


class LiveStatus(DocumentPart, frozen=True, kw_only=True):
    """What a cloud says of a stack, beside what was planned."""

    schema: Literal["tonnage.live-status/1"] = "tonnage.live-status/1"
    stack: Annotated[str, Meta(description="by whose tag it was asked")]
    cloud: Annotated[str, Meta(description="that was asked")]
    region: Annotated[str, Meta(description="region of the stack")]
    caller: Annotated[CallerAnswer, Meta(description="who is signed in")]
    running: Annotated[RunningAnswer, Meta(description="what runs")]
    machines: Annotated[
        tuple[MachineCount, ...], Meta(description="planned and running")
    ]
    cost: Annotated[CostAnswer, Meta(description="of the month so far")]
    planned_usd: Annotated[
        Decimal | None,
        Meta(
            description="of the same days, by the plan; none for what ends, or before an apply"
        ),
    ]
    commitments: Annotated[
        CommitmentAnswer,
        Meta(description="that pay for machine types of the stack"),
    ]
    commitment_use: Annotated[
        UsedAnswer, Meta(description="what is used of them")
    ]


def machine_counts(
    pools: Iterable[Pool], running: RunningAnswer
) -> tuple[MachineCount, ...]:
    """Return the machines that were planned and those that run, by kind.

    What runs and was not planned, such as a type that stands in for another, is a kind too.
    """
    planned: Counter[tuple[str, str, bool]] = Counter()
    for pool in pools:
        for part in pool.purchases:
            key = (pool.name, pool.instance_type, part.purchase == SPOT)
            planned[key] += part.nodes
    found: Counter[tuple[str, str, bool]] = Counter()
    for machines in running.value or ():
        found[machines.pool, machines.machine_type, machines.is_spot] += (
            machines.nodes
        )
    is_known = running.value is not None
    return tuple(_counts(planned, found, is_known=is_known))


def _counts(
    planned: Counter[tuple[str, str, bool]],
    found: Counter[tuple[str, str, bool]],
    *,
    is_known: bool,
) -> Iterator[MachineCount]:
    for key in (*planned, *sorted(found.keys() - planned.keys())):
        pool, machine_type, is_spot = key
        yield MachineCount(
            pool=pool,
            machine_type=machine_type,
            is_spot=is_spot,
            planned=planned[key],
            running=found[key] if is_known else None,
        )
