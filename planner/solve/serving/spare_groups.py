"""Groups beyond those that the load needs, for nodes that fail."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from planner.cost.weekly_load import SpareGroups, needed_groups
from planner.facts.cloud import way_out
from planner.perf.common.constant import constant
from planner.perf.reliability.quorum import chance_of
from planner.units import HOURS_PER_DAY

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement

Failure: TypeAlias = Literal["node", "zone"]


class SpareRule(Struct, frozen=True):
    """What spare groups are for.

    availability  share of running time in which enough groups are up, None without a target
    survives      what may fail at once without too few groups being left
    load_shares   distinct loads relative to the peak, with the share of running time of each
    """

    availability: float | None
    survives: Failure | None
    load_shares: tuple[tuple[float, float], ...]


def spare_rule(requirement: ServingRequirement) -> SpareRule:
    """Return what the spare groups of a requirement are for."""
    availability = requirement.availability
    return SpareRule(
        None if availability is None else float(availability),
        requirement.survives,
        requirement.week.load_shares,
    )


def counted_zones(requirement: ServingRequirement, offer: Offer) -> int:
    """Return the zones that nodes of an offer are spread over, 1 where that does not matter.

    Where their only way out is in one zone, they are as good as in one.
    """
    if requirement.survives != "zone" or offer.instance.fabric == "infiniband":
        return 1
    if way_out(offer.provider) == "nothing":
        return 1
    return offer.zone_count(together=False)


@cache
def spare_groups(
    rule: SpareRule, peak_groups: int, nodes_per_group: int, zone_count: int
) -> SpareGroups:
    """Return the fewest spare groups that keep a rule.

        share(spares) >= availability
        survives node: spares >= 1
        survives zone: spares >= ceil((peak groups + spares) / zones), the fullest zone

    What the peak survives, hours of less load survive too. A spare group that only availability
    asks for runs from some load on: it is worth most where most groups may fail. Raises
    ValueError for a fleet in one zone that has to survive the loss of it.
    """
    surviving = 0
    if rule.survives == "node":
        surviving = 1
    elif rule.survives == "zone":
        if zone_count < 2:
            raise ValueError("a fleet in one zone does not survive its loss")
        while surviving < math.ceil((peak_groups + surviving) / zone_count):
            surviving += 1
    if rule.availability is None:
        return SpareGroups(surviving)

    def is_up(spares: SpareGroups) -> bool:
        share = up_share(rule, peak_groups, spares, nodes_per_group)
        return share >= (rule.availability or 0.0)

    count = surviving
    while not is_up(SpareGroups(count)):
        count += 1
    if count == surviving:
        return SpareGroups(count)
    # In all hours they are enough. The highest load that is enough costs least.
    return next(
        spares
        for load, _ in reversed(rule.load_shares)
        if is_up(spares := SpareGroups(count, load))
    )


@cache
def up_share(
    rule: SpareRule,
    peak_groups: int,
    spares: SpareGroups,
    nodes_per_group: int,
) -> float:
    """Return the share of running time in which as many groups are up as the load needs.

    p = `group_availability` of its nodes
    share = mean over running hours of P(Binomial(needed + spares, p) >= needed)
    Failures are independent.
    """
    group_up = group_availability(nodes_per_group)
    return sum(
        time_share
        * chance_of(
            needed := needed_groups(peak_groups * load),
            needed + spares.at(load),
            group_up,
        )
        for load, time_share in rule.load_shares
    )


def group_availability(nodes_per_group: int) -> float:
    """Return the share of the time in which a group is up, which needs all its nodes.

    a = 1 / (1 + failures an hour * hours of replacement), availability of a node
    availability = a ^ nodes of the group
    Rates: `node_failures` and `node_replacement` of constants.csv.
    """
    downtime_ratio = (
        # Failures a day / 24 * hours to replace = downtime / uptime.
        constant("node_failures") / HOURS_PER_DAY * constant("node_replacement")
    )
    return (1 / (1 + downtime_ratio)) ** nodes_per_group
