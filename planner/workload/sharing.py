"""What a service brings into a portfolio: its machines of each hour, and how they are bought."""

from __future__ import annotations

import posixpath
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.cost.bill_line import MACHINE_KIND
from planner.cost.weekly_load import standing_minutes
from planner.market.offer import OWNED_PURCHASE
from planner.market.offer_filter import allowed_terms
from planner.market.owned import (
    OwnedMachines,
    counts_commitments,
    owned_machines,
)
from planner.market.term import TERM_PURCHASES
from planner.spec.model import Inference
from planner.spec.schedule import parse_schedule
from planner.units import MINUTES_PER_WEEK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.cost.bill_line import BillLine
    from planner.market.mix import PlaceKey
    from planner.solve.solution import SizedPool, Solution
    from planner.spec.model import Spec

# By the name of a time zone: its minutes ahead of UTC on each day of a year.
MinutesAhead: TypeAlias = "Callable[[str], tuple[int, ...]]"
# Ways to buy that services share; of others each has its own.
SHARED: Final = frozenset({"on_demand", OWNED_PURCHASE, *TERM_PURCHASES})


class OwnedFile(Struct, frozen=True):
    """What a file says is paid for already; two specs that name one file own it together."""

    path: str
    machines: tuple[OwnedMachines, ...]


class AcceleratorPlace(Struct, frozen=True, order=True):
    """An accelerator in a region of a cloud: what a spec can narrow its choice to."""

    provider: str
    region: str
    accelerator: str


class SharingPool(Struct, frozen=True, kw_only=True):
    """Machines of one type of a service, as far as it shares what it buys.

    place         cloud, machine type and region
    accelerator   name among the known accelerators
    hourly_nodes  machines of each hour of its week, without those on spot
    lead_minutes  how long before an hour these are started
    may_share     whether its machines above a base may be on demand, and are reserved by nobody
    machines_usd  what these machines cost alone, USD a month
    """

    place: PlaceKey
    accelerator: str
    hourly_nodes: tuple[int, ...]
    lead_minutes: int = 0
    may_share: bool
    machines_usd: Decimal


class SharingService(Struct, frozen=True, kw_only=True):
    """A service, as far as it shares what it buys.

    schedule        hours in which its machines run, None for all
    terms           commitments that its spec allows
    owned           what a file says is paid for already, None without one
    counts_account  whether what the account has committed to may serve it first
    total_usd       its whole bill alone, USD a month
    dearer_usd      how much more that is than with its cheapest machines: 0 where it has these
    """

    name: str
    pools: tuple[SharingPool, ...]
    schedule: str | None
    terms: tuple[str, ...]
    owned: OwnedFile | None
    counts_account: bool
    total_usd: Decimal
    dearer_usd: Decimal = Decimal(0)

    @property
    def places(self) -> frozenset[AcceleratorPlace]:
        """Where its machines are."""
        return frozenset(
            AcceleratorPlace(pool.place[0], pool.place[2], pool.accelerator)
            for pool in self.pools
        )

    @property
    def timezone(self) -> str:
        """Time zone of its hours."""
        return parse_schedule(self.schedule)[3] if self.schedule else "UTC"

    def minute_nodes(
        self, pool: SharingPool, offset_minutes: int
    ) -> tuple[int, ...]:
        """Return the machines of a pool in each minute of a week in UTC, Monday 00:00 first."""
        local = standing_minutes(
            pool.hourly_nodes, self.schedule, pool.lead_minutes
        )
        start = offset_minutes % MINUTES_PER_WEEK
        return (*local[start:], *local[:start])


def member_of(
    spec: Spec,
    solution: Solution,
    read_file: Callable[[str], bytes],
    folder: str,
) -> SharingService | None:
    """Return what a service brings into a portfolio; None for what ends by itself.

    `folder` is that of the spec, so that files of one name in two folders are two files.
    """
    bill = solution.bill
    if (
        not isinstance(spec, Inference)
        or bill is None
        or bill.period != "month"
        or not solution.pools
    ):
        return None
    lines = iter([line for line in bill.lines if line.kind == MACHINE_KIND])
    return SharingService(
        name=spec.name,
        # The lines of machines are those of the pools, one after the other.
        pools=tuple(
            _sharing_pool(spec, solution, pool, lines)
            for pool in solution.pools
        ),
        schedule=spec.shutdown.schedule,
        terms=allowed_terms(spec),
        owned=OwnedFile(
            own_path(folder, spec.buy.owned), owned_machines(spec, read_file)
        )
        if spec.buy.owned is not None
        else None,
        counts_account=counts_commitments(spec),
        total_usd=bill.total,
    )


def _sharing_pool(
    spec: Inference,
    solution: Solution,
    pool: SizedPool,
    lines: Iterator[BillLine],
) -> SharingPool:
    """Return the machines of a pool that it shares; it takes its lines from those of the bill."""
    own_lines = [(part, next(lines)) for part in pool.purchases]
    shared_nodes = sum(
        part.nodes for part, _ in own_lines if part.purchase in SHARED
    )
    week = pool.week or solution.week
    hourly_nodes = week.hourly_nodes(
        pool.peak_groups, pool.nodes_per_group, pool.spares
    )
    return SharingPool(
        place=(
            pool.instance.provider,
            pool.instance.instance_type,
            pool.region,
        ),
        accelerator=pool.instance.accelerator,
        hourly_nodes=tuple(min(nodes, shared_nodes) for nodes in hourly_nodes),
        lead_minutes=pool.lead_minutes,
        may_share="none" in spec.buy.commit
        and all(
            part.purchase in (*SHARED, "spot") and not part.reservation
            for part in pool.purchases
        ),
        machines_usd=sum(
            (
                line.usd or Decimal(0)
                for part, line in own_lines
                if part.purchase in SHARED
            ),
            Decimal(0),
        ),
    )


def own_path(folder: str, name: str) -> str:
    """Return the one path of a file that specs of a folder may name in several ways."""
    return posixpath.normpath(posixpath.join(folder, name))
