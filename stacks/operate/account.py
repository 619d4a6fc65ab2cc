"""What a stack costs: now, and since it was applied, against what its plan said."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.plan.account import StackAccount
from planner.plan.prepaid import is_prepaid, prepaid_machines
from planner.units import (
    HOURS_PER_MONTH,
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
)
from providers.simulated.bill import metered_lines, usd_hour_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.market.offer import Catalog
    from planner.plan.prepaid import PrepaidMachines
    from planner.plan.status import StackFacts, StackStatus
    from planner.plan.types import Pool
    from providers.simulated.shared import SharedWorld


def account_of(
    status: StackStatus,
    world: SharedWorld | None,
    catalog: Catalog,
    now: datetime,
) -> StackAccount:
    """Return what a stack costs, at a time.

    The hours of simulated clouds are counted. Of real ones the plan is told, which holds while
    everything stands as it was applied, until the machines are `counted`. What the plan counts on
    that a person has bought is taken as bought.
    """
    age_s = None
    if status.started:
        started = datetime.fromisoformat(status.started)
        age_s = (now - started).total_seconds()
    facts = status.facts
    planned_usd = _planned_usd(facts, age_s)
    left_s = None
    if age_s is not None and facts is not None and facts.shutdown.ttl:
        left_s = float(facts.shutdown.ttl) - age_s
    prepaid = _prepaid(status)
    if world is None:
        is_whole = status.complete and facts is not None
        return StackAccount(
            age_s=age_s,
            usd_hour=facts.usd_hour if facts and is_whole else None,
            spent_usd=planned_usd,
            planned_usd=planned_usd,
            nodes=None,
            left_s=left_s,
            basis="plan",
            spent_basis="plan",
            prepaid=prepaid,
        )
    memory = world.view().memory
    lines = metered_lines(
        memory,
        catalog,
        0.0,
        memory.seconds,
        stack=status.stack,
        prepaid=prepaid,
    )
    return StackAccount(
        age_s=age_s,
        usd_hour=usd_hour_now(
            memory, catalog, stack=status.stack, prepaid=prepaid
        ),
        spent_usd=sum((line.usd for line in lines), Decimal(0)),
        planned_usd=planned_usd,
        nodes=sum(
            history.nodes
            for history in memory.history.values()
            if history.stack == status.stack
        ),
        left_s=left_s,
        basis="metered",
        spent_basis="metered",
        prepaid=prepaid,
        unbought_usd_hour=usd_hour_now(memory, catalog, stack=status.stack)
        if prepaid
        else None,
    )


def counted(
    account: StackAccount,
    facts: StackFacts,
    alive: Mapping[str, int],
    lived_hours: Mapping[str, float],
) -> StackAccount:
    """Return the account of a real stack by its machines: those that live, and those that have.

    usd an hour = what is prepaid + machines of each group beyond that * price of one
                  + what is paid without any machine, a month / 730
    usd so far  = what is prepaid, and what is paid without any, for all hours
                  + hours of the machines of each group * share not prepaid * price of one

    Prices are those of the plan that stands; a group that it does not have has none. Machines say
    how long they lived and not when: the share is exact where all of a group run, or none.
    """
    prices = [price for pool in facts.pools for price in _group_prices(pool)]
    standing_usd = (facts.standing_usd_month or Decimal(0)) / HOURS_PER_MONTH
    standing_usd += sum(part.usd_hour for part in account.prepaid)
    now_usd = sum(
        (price.beyond_usd_hour(alive.get(price.group, 0)) for price in prices),
        standing_usd,
    )
    age_hours = Decimal((account.age_s or 0.0) / SECONDS_PER_HOUR)
    spent_usd = sum(
        (
            Decimal(lived_hours.get(price.group, 0.0))
            * price.bought_share
            * price.usd_hour
            for price in prices
        ),
        standing_usd * age_hours,
    )
    return replace(
        account,
        usd_hour=now_usd,
        # Agents of an older version do not leave hours.
        spent_usd=spent_usd if lived_hours else account.spent_usd,
        spent_basis="machines" if lived_hours else account.spent_basis,
        nodes=sum(alive.values()),
        basis="machines",
    )


class GroupPrice(Struct, frozen=True, kw_only=True):
    """What machines of a scaling group cost that nobody has paid for already.

    prepaid   machines that are paid for beside the stack; they serve first
    bought    further machines of its plan
    usd_hour  mean price of these, USD an hour; of one that is prepaid, where there are no others
    """

    group: str
    prepaid: int
    bought: int
    usd_hour: Decimal

    @property
    def bought_share(self) -> Decimal:
        """Share of the machines of its plan that nobody has paid for already."""
        return Decimal(self.bought) / (self.prepaid + self.bought)

    def beyond_usd_hour(self, alive: int) -> Decimal:
        """Return what those cost that are alive beyond the prepaid ones, USD an hour."""
        return max(0, alive - self.prepaid) * self.usd_hour


def _prepaid(status: StackStatus) -> tuple[PrepaidMachines, ...]:
    """Return what is paid for beside a stack; of one that is destroyed it is no part any more."""
    if status.facts is None or status.operation == "destroyed":
        return ()
    return prepaid_machines(status.facts.pools)


def _group_prices(pool: Pool) -> Iterator[GroupPrice]:
    """Yield the prices of each scaling group of a pool."""
    for name, is_spot in ((pool.name, False), (f"{pool.name}-spot", True)):
        parts = [
            part
            for part in pool.purchases
            if part.nodes and (part.purchase == "spot") == is_spot
        ]
        if not parts:
            continue
        bought = [part for part in parts if not is_prepaid(part)]
        priced = bought or parts
        usd_hour = sum(
            (part.nodes * part.running_usd_hour for part in priced),
            Decimal(0),
        )
        bought_nodes = sum(part.nodes for part in bought)
        nodes = sum(part.nodes for part in parts)
        yield GroupPrice(
            group=name,
            prepaid=nodes - bought_nodes,
            bought=bought_nodes,
            usd_hour=usd_hour / sum(part.nodes for part in priced),
        )


def _planned_usd(
    facts: StackFacts | None, age_s: float | None
) -> Decimal | None:
    """Return what the plan says for the time since the first apply.

    usd = total of a month * seconds / seconds of a month
    """
    if facts is None or age_s is None or facts.cost_period != "month":
        return None
    return facts.total * Decimal(age_s) / SECONDS_PER_MONTH
