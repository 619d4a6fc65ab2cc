"""What a simulated world costs: the hours of all that was in it, at the catalog's prices."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cost.bill_line import MACHINE_KIND
from providers.catalog.metering import group_rates, object_rates
from providers.simulated.prepaid import (
    prepaid_difference,
    prepaid_difference_now,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.market.offer import Catalog
    from planner.plan.prepaid import PrepaidMachines
    from providers.simulated.history import ObjectHistory
    from providers.simulated.world import WorldMemory


class MeteredLine(Struct, frozen=True, kw_only=True):
    """What objects of a kind have cost.

    kind   as in the bill of a plan
    hours  of objects, or of nodes
    usd    for these hours
    """

    kind: str
    hours: float
    usd: Decimal


def metered_lines(
    memory: WorldMemory,
    catalog: Catalog,
    begin: float,
    end: float,
    *,
    stack: str | None = None,
    prepaid: Sequence[PrepaidMachines] = (),
) -> list[MeteredLine]:
    """Return what objects cost between two seconds of a world, by kind.

    usd = sum over objects of rate * hours. `stack` limits it to those of one stack. `prepaid`
    machines are paid for in every hour in which their group stands, and the others on demand or
    on spot. What is paid by use, such as traffic and logs, is left out: nobody uses a simulated
    machine.
    """
    hours: dict[str, float] = {}
    usd: dict[str, Decimal] = {}

    def add(kind: str, object_hours: float, usd_hour: Decimal) -> None:
        hours[kind] = hours.get(kind, 0.0) + object_hours
        usd[kind] = usd.get(kind, Decimal(0)) + usd_hour * Decimal(object_hours)

    histories = _histories(memory, stack)
    for history in histories:
        for group, node_hours in history.node_hours(begin, end):
            for rate in group_rates(group, catalog):
                add(rate.kind, node_hours, rate.usd_hour)
        object_hours = history.hours(begin, end)
        if object_hours:
            for rate in object_rates(history.type, history.inputs, catalog):
                add(rate.kind, object_hours, rate.usd_hour)
    if prepaid and MACHINE_KIND in usd:
        usd[MACHINE_KIND] += prepaid_difference(
            histories, catalog, prepaid, begin, end
        )
    return [
        MeteredLine(kind=kind, hours=hours[kind], usd=usd[kind])
        for kind in sorted(usd, key=lambda kind: (-usd[kind], kind))
    ]


def usd_hour_now(
    memory: WorldMemory,
    catalog: Catalog,
    *,
    stack: str | None = None,
    prepaid: Sequence[PrepaidMachines] = (),
) -> Decimal:
    """Return what everything that exists costs, USD an hour: as `metered_lines`."""
    histories = _histories(memory, stack)
    total = prepaid_difference_now(histories, catalog, prepaid)
    for history in histories:
        if history.until is not None:
            continue
        if history.sizes:
            rates = group_rates(history.sizes[-1].group, catalog)
            total += (
                sum(rate.usd_hour for rate in rates) * history.sizes[-1].nodes
            )
        total += sum(
            rate.usd_hour
            for rate in object_rates(history.type, history.inputs, catalog)
        )
    return total


def _histories(memory: WorldMemory, stack: str | None) -> list[ObjectHistory]:
    """Return the objects of a stack, or all of them."""
    return [
        history
        for history in memory.history.values()
        if stack in (None, history.stack)
    ]
