"""What a stack costs: now, and since it was applied, against what its plan said."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.plan.account import StackAccount
from planner.units import (
    HOURS_PER_MONTH,
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
)
from providers.simulated.bill import metered_lines, usd_hour_now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.market.offer import Catalog
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
    everything stands as it was applied, until the machines are `counted`.
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
        )
    memory = world.view().memory
    lines = metered_lines(memory, catalog, 0.0, memory.seconds, status.stack)
    return StackAccount(
        age_s=age_s,
        usd_hour=usd_hour_now(memory, catalog, status.stack),
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
    )


def counted(
    account: StackAccount,
    facts: StackFacts,
    alive: Mapping[str, int],
    lived_hours: Mapping[str, float],
) -> StackAccount:
    """Return the account of a real stack by its machines: those that live, and those that have.

    usd an hour = machines of each group * price of one + what is paid without any, a month / 730
    usd so far  = hours of the machines of each group * price of one + the same for all hours

    Prices are those of the plan that stands; a group that it does not have has none.
    """
    prices = {
        name: usd_hour
        for pool in facts.pools
        for name, usd_hour in _group_prices(pool).items()
    }
    standing_usd = (facts.standing_usd_month or Decimal(0)) / HOURS_PER_MONTH

    def priced(amounts: Mapping[str, float]) -> Decimal:
        return sum(
            (
                Decimal(amount) * prices.get(group, Decimal(0))
                for group, amount in amounts.items()
            ),
            Decimal(0),
        )

    age_hours = Decimal((account.age_s or 0.0) / SECONDS_PER_HOUR)
    return replace(
        account,
        usd_hour=priced(alive) + standing_usd,
        spent_usd=priced(lived_hours) + standing_usd * age_hours
        # Agents of an older version do not leave hours.
        if lived_hours
        else account.spent_usd,
        spent_basis="machines" if lived_hours else account.spent_basis,
        nodes=sum(alive.values()),
        basis="machines",
    )


def _group_prices(pool: Pool) -> dict[str, Decimal]:
    """Return the mean price of a machine of each scaling group of a pool, USD an hour."""
    prices = {}
    for name, is_spot in ((pool.name, False), (f"{pool.name}-spot", True)):
        parts = [
            part
            for part in pool.purchases
            if (part.purchase == "spot") == is_spot
        ]
        nodes = sum(part.nodes for part in parts)
        if nodes:
            total = sum(
                (part.nodes * part.running_usd_hour for part in parts),
                Decimal(0),
            )
            prices[name] = total / nodes
    return prices


def _planned_usd(
    facts: StackFacts | None, age_s: float | None
) -> Decimal | None:
    """Return what the plan says for the time since the first apply.

    usd = total of a month * seconds / seconds of a month
    """
    if facts is None or age_s is None or facts.cost_period != "month":
        return None
    return facts.total * Decimal(age_s) / SECONDS_PER_MONTH
