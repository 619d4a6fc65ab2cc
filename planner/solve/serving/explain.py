"""Explains a serving fleet: rejected alternatives, and the price of each constraint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner import figures
from planner.solve.cause import ANY_VALUE, DEARER, because
from planner.solve.serving.rejection import nearest_rejected, rejection_reason
from planner.solve.serving.requirement import other_precisions
from planner.solve.serving.search import CENT_USD
from planner.solve.serving.sizing import FleetSizing
from planner.solve.serving.smaller_fleet import smaller_fleet
from planner.solve.solution import BindingLimit, FleetSummary, RivalFleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import (
        ServingCandidate,
        ServingResult,
        ServingSearch,
    )
    from planner.solve.settings import SolveSettings
    from planner.spec.model import LatencyLimit

# Factors above the idle quantile at which a limit is tried.
IDLE_SLACKS: Final = (1.05, 1.15, 1.3, 1.6, 2.0)


def alternatives(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    search_result: ServingResult,
    *,
    selection: ServingCandidate,
    settings: SolveSettings,
) -> tuple[RivalFleet, ...]:
    """Return other fleets in the order of cost, each with why it is not chosen.

    `settings.alternative_count` limits each kind of alternative.
    """
    max_count = settings.alternative_count
    pricier_options = [
        RivalFleet(
            offer=candidate.offer,
            nodes=candidate.sizing.nodes,
            usd=candidate.bill.total,
            rejected_by=DEARER,
        )
        for candidate in search_result.estimated[:max_count]
    ]
    cheaper_options = (
        # One group fewer shows which limit sets the size of the fleet.
        [smaller_fleet(requirement, search, selection)]
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
    excluded = (
        excluded_by_purchase(requirement, search, offer_filter, selection)
        if settings.explains
        else None
    )
    if excluded is not None:
        cheaper_options.append(
            RivalFleet(
                offer=excluded.offer,
                nodes=excluded.sizing.nodes,
                usd=excluded.bill.total,
                # It meets every limit; the purchase rule excludes it.
                rejected_by=exclusion_reason(excluded.offer, selection.offer),
            )
        )
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
) -> tuple[BindingLimit, ...]:
    """Return the constraints that cost money, the most expensive first.

    saving = cost of the selection - cost of the optimum without the constraint, USD a month
    slack  = 1 - predicted / limit, for latency limits
    """
    offers = offer_filter.cheapest()
    priced_bindings = [
        *_limit_bindings(requirement, search, offers, selection),
        _priced_binding(
            "buy",
            None,
            selection,
            excluded_by_purchase(requirement, search, offer_filter, selection),
        ),
        *_offer_bindings(requirement, search, offer_filter, selection),
        *_spare_bindings(requirement, search, offers, selection),
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
    """Yield the price of each latency limit, None where a looser one saves nothing.

    The limit moves to what the cheapest fleet without it reaches, and is planned again.
    """
    for limit in requirement.limits:
        unlimited = cheaper_fleet(
            requirement.without_limit(limit.key), search, offers, selection
        )
        if unlimited is None:
            continue
        seconds = _kept_seconds(requirement, search, limit, unlimited)
        yield _priced_binding(
            limit.key,
            _limit_slack(requirement, search, limit, selection),
            selection,
            cheaper_fleet(
                requirement.with_limit(limit.key, seconds),
                search,
                offers,
                selection,
            ),
            because("seconds-at-least", value_s=float(seconds)),
        )


def _kept_seconds(
    requirement: ServingRequirement,
    search: ServingSearch,
    limit: LatencyLimit,
    candidate: ServingCandidate,
) -> Decimal:
    """Return a value of a limit that a fleet keeps, as slow as all the limits ask for."""
    reached = search.judge.reached(
        requirement, search.same_fleet(requirement, candidate), limit
    )
    return figures.printed_seconds(reached.high_s)


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
            yield _priced_binding(
                constraint,
                None,
                selection,
                cheaper_fleet(requirement, search, relaxed_offers, selection),
            )


def _spare_bindings(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> Iterator[BindingLimit | None]:
    """Yield the price of each rule that asks for spare groups, None when it costs nothing."""
    if not selection.sizing.spare_groups:
        return
    for constraint, relaxed in (
        ("sla.availability", replace(requirement, availability=None)),
        ("sla.survives", replace(requirement, survives=None)),
    ):
        if relaxed != requirement:
            yield _priced_binding(
                constraint,
                0.0,
                selection,
                cheaper_fleet(relaxed, search, offers, selection),
            )


def excluded_by_purchase(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    selection: ServingCandidate,
) -> ServingCandidate | None:
    """Return the cheapest fleet if only the way of buying keeps it out."""
    return cheaper_fleet(
        requirement, search, offer_filter.cheapest("buy"), selection
    )


def cheaper_fleet(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> ServingCandidate | None:
    """Return the cheapest fleet if it is cheaper than the selection by a cent or more."""
    return search.solve(
        requirement,
        offers,
        ceiling_usd=float(selection.bill.total - CENT_USD),
    ).best


def relaxations(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    budget_usd: Decimal | None,
) -> tuple[BindingLimit, ...]:
    """Return each single change with which a fleet exists, the cheapest first.

    With `budget_usd`, in USD of the period, the limits can be met and only the budget cannot.
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
    for constraint, relax_to, relaxed, relaxed_offers in _without_one_rule(
        requirement, offer_filter
    ):
        relaxed_bindings += _relaxation(
            constraint, relax_to, search, relaxed, relaxed_offers
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


def _without_one_rule(
    requirement: ServingRequirement, offer_filter: OfferFilter
) -> Iterator[tuple[str, Cause, ServingRequirement, list[Offer]]]:
    """Yield each rule that can be dropped, with what is then asked for and the offers."""
    offers = offer_filter.cheapest()
    if requirement.survives is not None:
        yield (
            "sla.survives",
            ANY_VALUE,
            replace(requirement, survives=None),
            offers,
        )
    for constraint in (
        "where.clouds",
        "where.regions",
        "where.accelerators",
        "buy",
    ):
        relaxed_offers = offer_filter.cheapest(constraint)
        if relaxed_offers != offers:
            yield constraint, ANY_VALUE, requirement, relaxed_offers
    # Fewer bytes per weight: less memory and shorter steps.
    for precision in other_precisions(requirement):
        yield (
            "model.precision",
            because("also-precision", precision=precision),
            replace(
                requirement, precisions=(*requirement.precisions, precision)
            ),
            offers,
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

    Without a budget the limit moves to its nearest reachable value. With a budget it moves to
    what the cheapest fleet without it reaches.
    """
    unlimited = search.solve(requirement.without_limit(limit.key), offers).best
    # Another constraint alone makes the requirement infeasible.
    if unlimited is None:
        return []
    if budget_usd is not None:
        limit_values = [_kept_seconds(requirement, search, limit, unlimited)]
    else:
        limit_values = _reachable_limits(requirement, search, offers, limit)
    for seconds in limit_values:
        relaxed = _relaxation(
            limit.key,
            because("seconds-at-least", value_s=float(seconds)),
            search,
            requirement.with_limit(limit.key, seconds),
            offers,
        )
        if relaxed:
            return relaxed
    return []


def _relaxation(
    constraint: str,
    relax_to: Cause | None,
    search: ServingSearch,
    requirement: ServingRequirement,
    offers: list[Offer],
) -> list[BindingLimit]:
    fleet = search.solve(requirement, offers).best
    if fleet is None:
        return []
    return [
        BindingLimit(
            constraint=constraint,
            slack=None,
            # Without a value it is a budget: its value is the cost.
            relax_to=relax_to
            or because("usd-month-at-least", value_usd=fleet.bill.monthly_usd),
            saves_usd=None,
            usd=fleet.bill.total,
            fleet=describe_fleet(fleet),
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


def _reachable_limits(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    limit: LatencyLimit,
) -> list[Decimal]:
    """Return values of a limit that some layout may meet, the tightest first, in seconds.

    value = slack * min over layouts of the idle quantile, rounded up as it is printed
    All other limits still apply. Only layouts on one node are tried. Load only adds delay, so
    above the idle quantile a finite fleet exists; how far above, the simulation decides.
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
        return []
    return [figures.printed_seconds(slack * fastest_s) for slack in IDLE_SLACKS]


def _limit_slack(
    requirement: ServingRequirement,
    search: ServingSearch,
    limit: LatencyLimit,
    selection: ServingCandidate,
) -> float:
    reached = search.judge.reached(requirement, selection.sizing, limit)
    # Share of the limit that is not used.
    return 1 - reached.estimate_s / float(limit.seconds)


def _priced_binding(
    constraint: str,
    slack: float | None,
    selection: ServingCandidate,
    relaxed: ServingCandidate | None,
    relax_to: Cause = ANY_VALUE,
) -> BindingLimit | None:
    # No cheaper fleet: the constraint does not bind.
    if relaxed is None:
        return None
    if constraint == "buy":
        relax_to = because("purchase", purchase=relaxed.offer.purchase)
    return BindingLimit(
        constraint=constraint,
        slack=slack,
        relax_to=relax_to,
        saves_usd=selection.bill.total - relaxed.bill.total,
        usd=relaxed.bill.total,
        fleet=describe_fleet(relaxed),
    )
