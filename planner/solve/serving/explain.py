"""Explains a serving fleet: rejected alternatives, and the price of each constraint."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.solve.cause import ANY_VALUE, DEARER, because
from planner.solve.serving.rejection import nearest_rejected, rejection_reason
from planner.solve.serving.sizing import FleetSizing
from planner.solve.serving.smaller_fleet import smaller_fleet
from planner.solve.solution import BindingLimit, FleetSummary, RivalFleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import (
        ServingCandidate,
        ServingResult,
        ServingSearch,
    )
    from planner.spec.model import LatencyLimit


def alternatives(
    requirement: ServingRequirement,
    search_result: ServingResult,
    excluded_candidates: list[ServingCandidate],
    max_count: int,
    selection: ServingCandidate,
) -> tuple[RivalFleet, ...]:
    """Return other fleets in the order of cost, each with why it is not chosen.

    `excluded_candidates` are cheaper fleets that a rule of the spec excludes.
    `max_count` limits each kind of alternative.
    """
    rival_candidates = [
        candidate
        for candidate in search_result.candidates
        # The selection itself is no alternative.
        if candidate.offer.key != selection.offer.key
    ]
    pricier_options = [
        RivalFleet(
            offer=candidate.offer,
            nodes=candidate.sizing.nodes,
            usd=candidate.bill.total,
            rejected_by=DEARER
            # A rival that ranks first was simulated and missed a limit.
            if candidate.rank > selection.rank
            else because("simulation"),
        )
        for candidate in rival_candidates[:max_count]
    ]
    cheaper_options = (
        # One group fewer shows which limit sets the size of the fleet.
        [smaller_fleet(requirement, selection)]
        if selection.sizing.total_groups > 1
        else []
    )
    cheaper_options += [
        RivalFleet(
            offer=rejected_offer.offer,
            nodes=rejected_offer.nodes,
            usd=rejected_offer.usd_month,
            rejected_by=rejection_reason(rejected_offer.rejection),
        )
        for rejected_offer in nearest_rejected(
            search_result.rejected_offers, selection.bill.total, max_count
        )
    ]
    cheaper_options += [
        RivalFleet(
            offer=candidate.offer,
            nodes=candidate.sizing.nodes,
            usd=candidate.bill.total,
            # These fleets meet every limit; the purchase rule excludes them.
            rejected_by=exclusion_reason(candidate.offer, selection.offer),
        )
        for candidate in excluded_candidates[:max_count]
    ]
    return tuple(
        sorted(
            [*pricier_options, *cheaper_options],
            key=lambda alternative: (
                alternative.usd,
                alternative.offer.key,
            ),
        )
    )


def exclusion_reason(offer: Offer, selected_offer: Offer) -> Cause:
    """Return the purchase rule of the spec that excludes a cheaper offer."""
    if offer.purchase == "spot" and selected_offer.purchase != "spot":
        return because("taken-back", "buy.spot")
    return because("commitment", "buy.commit")


def bindings(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    selection: ServingCandidate,
    excluded_candidates: list[ServingCandidate],
) -> tuple[BindingLimit, ...]:
    """Return the constraints that cost money, the most expensive first.

    saving = cost of the selection - cost of the optimum without the constraint, USD a month
    slack  = 1 - predicted / limit, for latency limits
    `excluded_candidates` are cheaper fleets that the purchase rule excludes.
    """
    offers = offer_filter.cheapest()
    priced_bindings = [
        *_limit_bindings(requirement, search, offers, selection),
        _priced_binding(
            "buy", None, selection, tuple(excluded_candidates), None
        ),
        *_offer_bindings(requirement, search, offer_filter, selection),
        _availability_binding(requirement, search, offers, selection),
    ]
    costly_bindings = [
        priced_binding
        for priced_binding in priced_bindings
        # A constraint that saves nothing does not bind.
        if priced_binding and priced_binding.saves_usd
    ]
    return tuple(
        sorted(
            costly_bindings,
            key=lambda priced_binding: (
                -(priced_binding.saves_usd or 0),
                priced_binding.constraint,
            ),
        )
    )


def _limit_bindings(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> Iterator[BindingLimit | None]:
    """Yield the price of each latency limit, None where no cheaper fleet exists."""
    for limit in requirement.limits:
        # The optimum without this one limit.
        relaxed_candidates = search.solve(
            requirement.without_limit(limit.key), offers
        ).candidates
        yield _priced_binding(
            limit.key,
            _limit_slack(selection.sizing, limit),
            selection,
            relaxed_candidates,
            limit,
        )


def _offer_bindings(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    selection: ServingCandidate,
) -> Iterator[BindingLimit | None]:
    """Yield the price of each rule on offers, None where no cheaper fleet exists."""
    offers = offer_filter.cheapest()
    # Rules on offers: each is left out in turn.
    for constraint in ("where.regions", "where.clouds", "where.accelerators"):
        relaxed_offers = offer_filter.cheapest(constraint)
        # Equal offers give an equal optimum, so no search is needed.
        if relaxed_offers != offers:
            relaxed_candidates = search.solve(
                requirement, relaxed_offers
            ).candidates
            yield _priced_binding(
                constraint, None, selection, relaxed_candidates, None
            )


def _availability_binding(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> BindingLimit | None:
    """Return the price of the availability target, None when it costs nothing."""
    if (
        # Without an availability target there are no spare groups.
        requirement.availability is None
        or selection.sizing.total_groups <= selection.sizing.peak_groups
    ):
        return None
    relaxed_candidates = search.solve(
        replace(requirement, availability=None), offers
    ).candidates
    return _priced_binding(
        "sla.availability", 0.0, selection, relaxed_candidates, None
    )


def relaxations(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    budget_usd: Decimal | None,
) -> tuple[BindingLimit, ...]:
    """Return each single change with which a fleet exists, the cheapest first.

    With `budget_usd`, in USD a month, the limits can be met and only the budget cannot.
    Then `buy.budget` states a budget that is enough; other changes must keep the budget.
    """
    offers = offer_filter.cheapest()
    relaxed_bindings: list[BindingLimit] = []
    # Cost of the unchanged requirement: the budget that is enough.
    if budget_usd is not None:
        relaxed_bindings += _relaxation(
            "buy.budget", None, search, requirement, offers
        )
    for limit in requirement.limits:
        relaxed_bindings += _loosened_limit(
            requirement, search, offers, limit, budget_usd
        )
    for constraint in (
        "where.clouds",
        "where.regions",
        "where.accelerators",
        "buy",
    ):
        relaxed_offers = offer_filter.cheapest(constraint)
        if relaxed_offers != offers:
            relaxed_bindings += _relaxation(
                constraint, ANY_VALUE, search, requirement, relaxed_offers
            )
    # Fewer bytes per weight: less memory and shorter steps.
    for precision in ("fp8", "int4"):
        if precision not in requirement.precisions:
            relaxed_requirement = replace(
                requirement, precisions=(*requirement.precisions, precision)
            )
            relaxed_bindings += _relaxation(
                "model.precision",
                because("also-precision", precision=precision),
                search,
                relaxed_requirement,
                offers,
            )
    if budget_usd is not None:
        relaxed_bindings = [
            relaxed_binding
            for relaxed_binding in relaxed_bindings
            # A larger budget is itself the change.
            if relaxed_binding.constraint == "buy.budget"
            or _within_budget(relaxed_binding, budget_usd)
        ]
    return tuple(
        sorted(
            relaxed_bindings,
            key=lambda relaxed_binding: (
                relaxed_binding.usd or 0,
                relaxed_binding.constraint,
            ),
        )
    )


def _within_budget(binding: BindingLimit, budget_usd: Decimal) -> bool:
    return binding.usd is not None and binding.usd <= budget_usd


def _loosened_limit(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    limit: LatencyLimit,
    budget_usd: Decimal | None,
) -> list[BindingLimit]:
    """Return the fleet for a looser limit, an empty list when none exists.

    Without a budget the limit moves to its nearest reachable value. With a budget the limit is
    dropped, and `relax_to` is the value that the cheapest fleet then reaches.
    """
    unlimited_candidates = search.solve(
        requirement.without_limit(limit.key), offers
    ).candidates
    # Another constraint alone makes the requirement infeasible.
    if not unlimited_candidates:
        return []
    if budget_usd is not None:
        predicted_s = unlimited_candidates[0].sizing.service.assured_quantile(
            limit.metric, limit.percentile
        )
        return _relaxation(
            limit.key,
            # Rounded up, so that the fleet meets the written limit.
            because("seconds-at-least", value_s=predicted_s),
            search,
            requirement.without_limit(limit.key),
            offers,
        )
    reachable_s = _reachable_limit(requirement, search, offers, limit)
    if reachable_s is None:
        return []
    relaxed_limit = replace(limit, seconds=reachable_s)
    relaxed_limits = tuple(
        relaxed_limit if sla_limit.key == limit.key else sla_limit
        for sla_limit in requirement.limits
    )
    relaxed_requirement = replace(requirement, limits=relaxed_limits)
    return _relaxation(
        limit.key,
        because("seconds-at-least", value_s=float(reachable_s)),
        search,
        relaxed_requirement,
        offers,
    )


def _relaxation(
    constraint: str,
    relax_to: Cause | None,
    search: ServingSearch,
    requirement: ServingRequirement,
    offers: list[Offer],
) -> list[BindingLimit]:
    candidates = search.solve(requirement, offers).candidates
    if not candidates:
        return []
    usd_month = candidates[0].bill.total
    return [
        BindingLimit(
            constraint=constraint,
            slack=None,
            # Without a value it is a budget: its value is the cost.
            relax_to=relax_to
            or because("usd-month-at-least", value_usd=usd_month),
            saves_usd=None,
            usd=usd_month,
            fleet=describe_fleet(candidates[0]),
        )
    ]


def describe_fleet(candidate: ServingCandidate) -> FleetSummary:
    """Return cloud, region, machine type and nodes of a candidate."""
    offer = candidate.offer
    return FleetSummary(
        offer.provider,
        offer.region,
        offer.instance.instance_type,
        candidate.sizing.nodes,
    )


def _reachable_limit(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    limit: LatencyLimit,
) -> Decimal | None:
    """Return the tightest value of a limit that some layout meets, in seconds.

    value = 1.05 * min over layouts of the idle quantile, rounded up to two digits
    All other limits still apply. Only layouts on one node are tried. Load only adds delay, so
    5 % above the idle quantile a finite fleet exists.
    """
    fastest_s = math.inf
    relaxed_requirement = requirement.without_limit(limit.key)
    for offer in offers:
        for replica, group in search.one_node_replicas(
            relaxed_requirement, offer
        ):
            # Weights and one sequence do not fit.
            if not replica.max_batch:
                continue
            idle_s = replica.idle_quantile(limit.metric, limit.percentile)
            # Sized without this limit: the layout must meet all the others.
            if idle_s < fastest_s and isinstance(
                search.size_layout(relaxed_requirement, replica, group),
                FleetSizing,
            ):
                fastest_s = idle_s
    if fastest_s == math.inf:
        return None
    # Two significant digits: 10^d with d = 1 - floor(log10(value)).
    decimal_digits = 3 - math.floor(math.log10(fastest_s * 1.05)) - 2
    rounding_scale = 10.0**decimal_digits
    return Decimal(
        str(math.ceil(fastest_s * 1.05 * rounding_scale) / rounding_scale)
    )


def _limit_slack(sizing: FleetSizing, limit: LatencyLimit) -> float:
    predicted_s = sizing.service.assured_quantile(
        limit.metric, limit.percentile
    )
    # Share of the limit that is not used.
    return 1 - predicted_s / float(limit.seconds)


def _priced_binding(
    constraint: str,
    slack: float | None,
    selection: ServingCandidate,
    relaxed_candidates: tuple[ServingCandidate, ...],
    limit: LatencyLimit | None,
) -> BindingLimit | None:
    if (
        # No fleet, or no cheaper one: the constraint does not bind.
        not relaxed_candidates
        or relaxed_candidates[0].bill.total >= selection.bill.total
    ):
        return None
    cheapest_candidate = relaxed_candidates[0]
    relax_to = (
        because("purchase", purchase=cheapest_candidate.offer.purchase)
        if constraint == "buy"
        else ANY_VALUE
    )
    if limit is not None:
        # The limit would have to move to what the cheaper fleet reaches.
        predicted_s = cheapest_candidate.sizing.service.assured_quantile(
            limit.metric, limit.percentile
        )
        relax_to = because("seconds-at-least", value_s=predicted_s)
    return BindingLimit(
        constraint=constraint,
        slack=slack,
        relax_to=relax_to,
        saves_usd=selection.bill.total - cheapest_candidate.bill.total,
        usd=cheapest_candidate.bill.total,
        fleet=describe_fleet(cheapest_candidate),
    )
