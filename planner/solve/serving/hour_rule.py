"""Where each hour of a week may have the machines that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.market.capacity import PEAK_LOAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement


def follows_hours(requirement: ServingRequirement) -> bool:
    """Return whether each hour of a requirement may have the groups that it takes.

    Without different loads there is nothing to follow, and while it is closed at its peak the
    load that machines are planned for comes in no hour. A life of some hours is billed for the
    busiest ones, wherever in the week it starts. Elastic machines follow what they measure. A
    recording, and services that share machines, have no rate of an hour. Where a router looks for
    the machine that is free, what one carries is a matter of all.
    """
    *others, (highest, _) = requirement.week.load_shares
    return (
        bool(others)
        and highest == PEAK_LOAD
        and requirement.mode == "open"
        and requirement.load.routing == "random"
        and requirement.elastic is None
        and requirement.trace is None
        and not requirement.beside
        and requirement.shutdown.ttl is None
    )


def needs_shares(
    requirement: ServingRequirement, offers: Iterable[Offer]
) -> bool:
    """Return whether two types may have to have a share of their machines of the peak by the hour.

    Where hours follow their load that is one of their choices. They do not where a failure has to
    be survived, or a quota leaves less by the load. Where requests come in clumps such a share may
    be too few.
    """
    return requirement.load.arrival_variation == 1 and (
        requirement.survives is not None
        or any(
            quota.load != PEAK_LOAD
            for offer in offers
            for quota in offer.quotas
        )
    )
