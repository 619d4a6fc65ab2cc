"""Machine types that a group starts while its cloud has none of its own type. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.facts.cloud_limit import cloud_limit
from planner.solve.solution import StandInType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Instance, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.solution import SizedPool, Solution
    from planner.spec.model import Spec

# Machine types of one group, its own among them.
TYPES_LIMIT: Final = "group_types"
# A group chooses among machines for these alone; others are reserved, or a price.
CHOSEN_PURCHASES: Final = ("on_demand", "spot")


def with_stand_ins(
    spec: Spec, offer_filter: OfferFilter, solution: Solution
) -> Solution:
    """Return a solution whose pools name what their groups may start instead.

    Without `buy.fallback`, or on a cloud whose groups are of one type, they name nothing.
    """
    fallback = spec.buy.fallback
    if fallback is None:
        return solution
    extra_usd = _extra_usd(solution, spec.buy.budget)
    return replace(
        solution,
        pools=tuple(
            replace(
                pool,
                stand_ins=tuple(
                    _stand_ins(
                        offer_filter,
                        pool,
                        pool.usd_hour
                        + min(pool.usd_hour * fallback, extra_usd),
                    )
                ),
            )
            for pool in solution.pools
        ),
    )


def _extra_usd(solution: Solution, budget_usd: Decimal | None) -> Decimal:
    """Return by how much each machine may be dearer within a budget a month, USD an hour.

    extra = (budget - total) / node-hours, so that all of them may be other ones
    """
    bill = solution.bill
    budget = bill.period_budget(budget_usd) if bill is not None else None
    if bill is None or budget is None:
        return Decimal("Infinity")
    node_hours = sum(
        (line.quantity for line in bill.lines if line.kind == MACHINE_KIND),
        Decimal(0),
    )
    return max(Decimal(0), budget - bill.total) / node_hours


def _stand_ins(
    offer_filter: OfferFilter, pool: SizedPool, most_usd: Decimal
) -> Iterator[StandInType]:
    """Yield the machine types that do what those of a pool do, the cheapest first.

    `most_usd` is the most that one of them may cost, USD an hour.
    """
    most_types = cloud_limit(pool.instance.provider, TYPES_LIMIT)
    [part, *others] = pool.purchases
    if (
        most_types is None
        or pool.role != "serve"
        or pool.nodes_per_group > 1
        or others
        or part.reservation
        or part.purchase not in CHOSEN_PURCHASES
    ):
        return
    found = [
        offer
        for group in offer_filter.offer_groups
        for offer in group
        if (offer.provider, offer.region)
        == (pool.instance.provider, pool.region)
        and offer.purchase == part.purchase
        and offer.usd_hour <= most_usd
        and set(offer.zones) & set(pool.zones)
        and does_the_same(offer.instance, pool.instance)
        and not offer_filter.violations(offer)
    ]
    found.sort(key=_price_and_name)
    for offer in found[: most_types - 1]:
        yield StandInType(offer.instance.instance_type, offer.usd_hour)


def _price_and_name(offer: Offer) -> tuple[object, ...]:
    return offer.usd_hour, offer.key


def does_the_same(other: Instance, instance: Instance) -> bool:
    """Whether a machine has the accelerators of another one, and no less of everything else.

    Machines that a fabric joins are left out: their interfaces are those of one type.
    """
    is_joined = any(
        machine.attaches_fabric(spans_nodes=False)
        for machine in (other, instance)
    )
    return (
        not is_joined
        and other.instance_type != instance.instance_type
        and (
            other.accelerator,
            other.accelerators,
            other.fraction,
            other.memory_gib_each,
            other.scaleup,
            other.arch,
        )
        == (
            instance.accelerator,
            instance.accelerators,
            instance.fraction,
            instance.memory_gib_each,
            instance.scaleup,
            instance.arch,
        )
        and other.vcpu >= instance.vcpu
        and other.ram_gib >= instance.ram_gib
        and other.nvme_gb >= instance.nvme_gb
        and other.network_gbps >= instance.network_gbps
    )
