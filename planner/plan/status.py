"""A standing stack as types: what `status` shows, and what engines keep of the applied plan."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, field
from msgspec.structs import replace

from planner.cost.bill_line import STANDING_KINDS
from planner.plan.pool import OfferRef
from planner.plan.types import (
    DocumentPart,
    Period,
    Plan,
    Pool,
    Properties,
    Shutdown,
    WorkloadRef,
)
from planner.spec.model import OWN_RANGE
from planner.units import HOURS_PER_MONTH

# What is done with a stack; one that stands is "applied".
Operation: TypeAlias = Literal["applying", "applied", "destroying", "destroyed"]


class StackFacts(DocumentPart, frozen=True, kw_only=True):
    """What a standing stack was applied with, for its status.

    `standing_usd_month` is paid for also while no machine runs; none for what is paid by the run.
    `rung` is 0 for the fleet of the plan, 1 for its first fallback. `spec_path` is the file that
    was planned, as it was named, `labels` and `protect` are those of the spec, and `spec` is all
    of it with its defaults. `network_range` has the addresses of the machines. With `is_partial`
    a price is unknown, and `total` is the least that it costs.
    """

    provider: str
    region: str
    pools: tuple[Pool, ...]
    cost_period: Period
    total: Decimal
    usd_hour: Decimal
    standing_usd_month: Decimal | None
    workload: WorkloadRef
    shutdown: Shutdown
    rung: int = 0
    spec_path: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    protect: bool = False
    spec: Properties = field(default_factory=dict)
    network_range: str = OWN_RANGE
    is_partial: bool = False

    @classmethod
    def of(cls, plan: Plan, rung: int = 0) -> StackFacts:
        """Take the facts of the plan that is applied, as it is on a rung."""
        return cls(
            rung=rung,
            spec_path=plan.spec.path,
            labels=plan.spec.normalized.get("labels", {}),
            protect=plan.spec.normalized.get("protect", False),
            spec=plan.spec.normalized,
            network_range=(plan.spec.normalized.get("network") or {}).get(
                "range"
            )
            or plan.inputs.network_range,
            provider=plan.graph.provider,
            region=plan.graph.region,
            pools=plan.solution.pools,
            cost_period=plan.cost.period,
            total=plan.cost.total,
            is_partial=plan.cost.is_partial,
            usd_hour=plan.cost.usd_hour,
            standing_usd_month=(
                _standing_usd_month(plan)
                if plan.cost.period == "month"
                else None
            ),
            workload=plan.workload,
            shutdown=plan.shutdown,
        )

    def takes_other_uploads(self, before: StackFacts | None) -> bool:
        """Whether machines wait in the bucket that stood before for other uploads."""
        return (
            before is not None
            and (before.provider, before.region) == (self.provider, self.region)
            and before.workload != self.workload
        )


def _standing_usd_month(plan: Plan) -> Decimal:
    """Return what is paid for also while no machine runs, a month: lines, and reservations."""
    reserved_usd_hour = sum(
        (
            part.standing_usd_hour
            for pool in plan.solution.pools
            for part in pool.purchases
        ),
        Decimal(0),
    )
    lines_usd = sum(
        (
            line.usd or Decimal(0)
            for line in plan.cost.lines
            if line.kind in STANDING_KINDS
        ),
        Decimal(0),
    )
    return lines_usd + reserved_usd_hour * HOURS_PER_MONTH


class ResourceRef(DocumentPart, frozen=True, kw_only=True):
    """A resource of a standing stack, and how much it holds at most; 0 for what grows."""

    type: str
    name: str
    size_gib: int = 0


class Coming(DocumentPart, frozen=True, kw_only=True):
    """What a run that has not ended brings a stack to.

    Its new machines are awaited, and they wait for uploads to `bucket`.
    """

    facts: StackFacts
    bucket: str


class StackStatus(DocumentPart, frozen=True, kw_only=True):
    """A stack as its state has it, and what it was made by."""

    schema: Literal["tonnage.status/1"] = "tonnage.status/1"
    stack: str
    started: Annotated[
        str, Meta(description="first apply; empty where it did not begin")
    ] = ""
    account: Annotated[
        str,
        Meta(description="cloud/account; empty where the apply did not begin"),
    ] = ""
    plan: Annotated[str, Meta(description="digest of the plan applied last")]
    state_sha256: str
    complete: Annotated[bool, Meta(description="the last apply did not fail")]
    operation: Annotated[
        Operation,
        Meta(
            description="applying and destroying: a run that has not ended, or was cut off; "
            "destroyed: only what holds data is left"
        ),
    ]
    resources: tuple[ResourceRef, ...]
    retained: Annotated[
        tuple[ResourceRef, ...],
        Meta(description="left in the cloud for the data that they hold"),
    ] = ()
    pending: Annotated[
        tuple[str, ...],
        Meta(description="resources with a call whose end is not known"),
    ] = ()
    outputs: Properties
    facts: StackFacts | None
    coming: Annotated[
        Coming | None,
        Meta(
            description="what a run that has not ended brings it to, once new machines are "
            "waited for"
        ),
    ] = None

    @property
    def arriving(self) -> StackStatus:
        """The stack as its newest machines have it: they wait for uploads in their bucket."""
        if self.coming is None:
            return self
        return replace(
            self,
            facts=self.coming.facts,
            outputs={**self.outputs, "bucket": self.coming.bucket},
        )


def standing_offers(status: StackStatus | None) -> tuple[OfferRef, ...]:
    """Return what was bought for a stack that stands, sorted; nothing without machines."""
    if (
        status is None
        or status.facts is None
        or status.operation == "destroyed"
    ):
        return ()
    return tuple(
        sorted(
            OfferRef(
                provider=pool.provider,
                region=pool.region,
                instance_type=pool.instance_type,
                purchase=part.purchase,
                zone=pool.zones[0] if pool.zones else "",
            )
            for pool in status.facts.pools
            for part in pool.purchases
        )
    )


class BatchJob(DocumentPart, frozen=True, kw_only=True):
    """How far a batch is, in files of its input.

    files     of the whole batch; none while it is being submitted
    arrived   in the bucket
    begun     that a machine works on, or has begun and left
    answered  with answers
    failed    in which some requests were refused
    """

    name: str
    files: int | None
    arrived: int
    begun: int
    answered: int
    failed: int

    @property
    def is_done(self) -> bool:
        """Whether every file has its answers."""
        return self.files is not None and self.answered >= self.files

    @property
    def state(self) -> Literal["done", "open", "being submitted"]:
        """Where it is on its way."""
        if self.is_done:
            return "done"
        return "being submitted" if self.files is None else "open"
