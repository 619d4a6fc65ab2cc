"""What the machines of a simulated world cost less, or more, where a person pays for some.

Groups are metered on demand: no cloud knows which of its machines a commitment pays for.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.bill_line import MACHINE_KIND
from planner.units import SECONDS_PER_HOUR
from providers.catalog.metering import group_rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.market.offer import Catalog
    from planner.market.offer_key import OfferKey
    from planner.plan.prepaid import PrepaidMachines
    from providers.base import NodeGroup
    from providers.simulated.history import ObjectHistory


def prepaid_difference(
    histories: Sequence[ObjectHistory],
    catalog: Catalog,
    prepaid: Sequence[PrepaidMachines],
    begin: float,
    end: float,
) -> Decimal:
    """Return what a bill on demand changes by between two seconds, USD.

    usd = hours in which a group stands * price of what is prepaid
          - integral of min(machines on demand, prepaid machines) * price on demand
    Machines are prepaid by their type and region, whichever group they are in.
    """
    total = Decimal(0)
    for key in _offer_keys(prepaid):
        nodes, usd_hour = _prepaid_at(key, prepaid)
        price = Decimal(0)
        steps: list[tuple[float, int, int]] = []
        for history in histories:
            for group, start, stop in history.spans(begin, end):
                if _is_at(group, key):
                    price = _machine_price(group, catalog)
                    steps.append((start, group.node_count, 1))
                    steps.append((stop, -group.node_count, -1))
        standing_s, covered_s = _integrals(steps, nodes)
        total += usd_hour * Decimal(standing_s / SECONDS_PER_HOUR)
        total -= price * Decimal(covered_s / SECONDS_PER_HOUR)
    return total


def prepaid_difference_now(
    histories: Sequence[ObjectHistory],
    catalog: Catalog,
    prepaid: Sequence[PrepaidMachines],
) -> Decimal:
    """Return what the price of an hour changes by, USD an hour: as `prepaid_difference`."""
    total = Decimal(0)
    for key in _offer_keys(prepaid):
        groups = [
            history.sizes[-1].group
            for history in histories
            if history.until is None
            and history.sizes
            and _is_at(history.sizes[-1].group, key)
        ]
        if not groups:
            continue
        nodes, usd_hour = _prepaid_at(key, prepaid)
        running = sum(group.node_count for group in groups)
        total += usd_hour
        total -= min(running, nodes) * _machine_price(groups[0], catalog)
    return total


def _offer_keys(prepaid: Sequence[PrepaidMachines]) -> list[OfferKey]:
    """Return the offers on demand that the machines stand in for, each once."""
    keys: list[OfferKey] = [
        (part.provider, part.region, part.instance_type, "on_demand")
        for part in prepaid
    ]
    return list(dict.fromkeys(keys))


def _prepaid_at(
    key: OfferKey, prepaid: Sequence[PrepaidMachines]
) -> tuple[int, Decimal]:
    """Return how many machines are prepaid there, and what they cost together, USD an hour."""
    here = [
        part
        for part in prepaid
        if (part.provider, part.region, part.instance_type) == key[:3]
    ]
    usd_hour = sum((part.usd_hour for part in here), Decimal(0))
    return sum(part.nodes for part in here), usd_hour


def _is_at(group: NodeGroup, key: OfferKey) -> bool:
    return group.offer_key == key and not group.is_kept


def _machine_price(group: NodeGroup, catalog: Catalog) -> Decimal:
    """Return what a machine of a group costs, USD an hour; 0 where no catalog says it."""
    return sum(
        (
            rate.usd_hour
            for rate in group_rates(group, catalog)
            if rate.kind == MACHINE_KIND
        ),
        Decimal(0),
    )


def _integrals(
    steps: list[tuple[float, int, int]], nodes: int
) -> tuple[float, float]:
    """Return the seconds in which a group stands, and those of machines up to `nodes`."""
    standing_s = covered_s = 0.0
    running = standing = 0
    before = 0.0
    for second, more_nodes, more_groups in sorted(steps):
        standing_s += (second - before) * (standing > 0)
        covered_s += (second - before) * min(running, nodes)
        running += more_nodes
        standing += more_groups
        before = second
    return standing_s, covered_s
