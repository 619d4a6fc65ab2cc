"""A plan on a cloud against machines of one's own, over the years. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.solve.capacity import minute_nodes
from planner.spec.model import PlacementRule, PurchaseRule
from planner.units import HOURS_PER_MONTH, MINUTES_PER_WEEK, MONTHS_PER_YEAR
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Offer
    from planner.market.on_premises import DataCenter, OwnMachine
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
    from planner.spec.model import Spec

YEARS: Final = (1, 2, 3, 4, 5)


class Ownership(Struct, frozen=True, kw_only=True):
    """A workload on one kind of own machines; money in USD.

    machine      the kind, and `nodes` of them that the workload needs
    as_type      machine type of a cloud that has the same accelerators, by which it is sized
    month_usd    of all nodes, by the years of use
    planned_usd  the same over the years that the file says
    paid_months  after so many, buying has cost no more than the cloud; None: not in its years
    even_hours   share of the hours from which own machines cost less than the same on demand
    burst_usd    a month: the machines that there are, and on demand what is above them
    """

    machine: OwnMachine
    nodes: int
    as_type: str
    month_usd: dict[int, Decimal]
    planned_usd: Decimal
    paid_months: int | None
    even_hours: Decimal
    burst_usd: Decimal


def own_instead(
    spec: Spec,
    settings: SolveSettings,
    center: DataCenter,
    cloud_usd_month: Decimal,
) -> Iterator[Ownership]:
    """Yield each kind of own machines on which a spec can be met.

    The workload is sized as on a machine of a cloud with the same accelerators. Raises SpecError
    for a kind that no cloud has.
    """
    for machine in center.machines:
        offer = same_machine(machine, settings)
        solution = find(*placed_on(spec, settings, offer))
        if solution.pools:
            yield _ownership(center, machine, offer, solution, cloud_usd_month)


def same_machine(machine: OwnMachine, settings: SolveSettings) -> Offer:
    """Return the cheapest offer on demand with the accelerators of a machine, and its network.

    Raises SpecError where no cloud has such a machine.
    """
    same = [
        offer
        for offer in settings.catalog.offers
        if offer.purchase == "on_demand"
        and offer.instance.fraction == 1
        and settings.unbuilt_reason(offer.instance) is None
        and (offer.instance.accelerator, offer.instance.accelerators)
        == (machine.accelerator, machine.accelerators_per_node)
    ]
    if not same:
        raise SpecError(
            Problem(
                code="shape",
                message=f"no cloud has a machine with {machine.accelerators_per_node} x "
                f"{machine.accelerator}, by which {machine.name} could be sized",
                place=machine.place,
                next_step="see which there are: tonnage offers "
                f"{machine.accelerator}",
            )
        )
    cheapest = min(same, key=lambda offer: (offer.usd_hour, offer.key))
    if machine.network_gbps is None:
        return cheapest
    own_gbps = float(machine.network_gbps)
    instance = replace(
        cheapest.instance,
        network_gbps=own_gbps,
        fabric_gbps=min(cheapest.instance.fabric_gbps, own_gbps),
    )
    return replace(cheapest, instance=instance)


def placed_on(
    spec: Spec, settings: SolveSettings, offer: Offer
) -> tuple[Spec, SolveSettings]:
    """Return a spec that takes one offer on demand, and settings that have no other."""
    own_spec = replace(
        spec,
        where=PlacementRule(place=spec.where.place, clouds=(offer.provider,)),
        buy=PurchaseRule(place=spec.buy.place, spot="never"),
        network=None,
    )
    catalog = replace(settings.catalog, offers=(offer,), unlisted=())
    return own_spec, replace(
        settings, catalog=catalog, memory=type(settings.memory)()
    )


def _ownership(
    center: DataCenter,
    machine: OwnMachine,
    offer: Offer,
    solution: Solution,
    cloud_usd_month: Decimal,
) -> Ownership:
    pool = solution.pools[0]
    nodes = pool.nodes
    own_usd = {
        years: nodes * center.month_usd(machine, Decimal(years))
        for years in YEARS
    }
    full_usd_hour = nodes * offer.usd_hour
    planned_usd = nodes * center.month_usd(machine, center.value_of("years"))
    return Ownership(
        machine=machine,
        nodes=nodes,
        as_type=offer.instance.instance_type,
        month_usd=own_usd,
        planned_usd=planned_usd,
        paid_months=_paid_months(center, machine, nodes, cloud_usd_month),
        even_hours=planned_usd / (full_usd_hour * HOURS_PER_MONTH),
        burst_usd=_burst_usd(center, machine, offer, solution),
    )


def _paid_months(
    center: DataCenter,
    machine: OwnMachine,
    nodes: int,
    cloud_usd_month: Decimal,
) -> int | None:
    """Return the first month at whose end buying and running have cost no more than a cloud.

    price + m * running <= m * cloud, without cost of capital
    """
    running_usd = nodes * center.running_usd(machine)
    price_usd = nodes * machine.price
    most_months = int(center.value_of("years") * MONTHS_PER_YEAR)
    for month in range(1, most_months + 1):
        if price_usd + month * running_usd <= month * cloud_usd_month:
            return month
    return None


def _burst_usd(
    center: DataCenter, machine: OwnMachine, offer: Offer, solution: Solution
) -> Decimal:
    """Return what the machines that there are cost a month, with those on demand above them.

    hours above = node-minutes of the week beyond what is owned / minutes of a week * 730
    """
    pool = solution.pools[0]
    owned = min(machine.nodes, pool.nodes)
    years = center.value_of("years")
    own_usd = owned * center.month_usd(machine, years)
    week = pool.week or solution.week
    wanted_nodes = (
        minute_nodes(week, pool, week.schedule)
        if pool.role == "serve"
        else (pool.nodes,) * MINUTES_PER_WEEK
    )
    above = sum(max(0, nodes - owned) for nodes in wanted_nodes)
    above_hours = Decimal(above) * HOURS_PER_MONTH / MINUTES_PER_WEEK
    return own_usd + above_hours * offer.usd_hour
