"""Counterfactuals of a solution: another machine type, or another amount of traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import MissingError, Problem
from planner.market.offer import group_offers
from planner.market.offer_filter import OfferFilter, spec_rules
from planner.solve.serving.explain import describe_fleet, rejection_reason
from planner.solve.serving.search import ServingSearch
from planner.solve.solution import FleetSummary
from planner.solve.training.requirement import training_requirement
from planner.solve.training.search import TrainSearch
from planner.solve.workspace.requirement import (
    workspace_bill,
    workspace_requirement,
)
from planner.spec.model import Training, Workspace

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.market.offer import Offer
    from planner.solve.solver import Solver
    from planner.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What another machine type or another load would take.

    `fleet`  the fleet or machine type, None when there is none
    `usd`  its cost for a month, or for the run of a training job; None without a fleet
    `reason`  why it is not chosen, empty when a changed load can be served
    `users`  people of a workspace
    """

    fleet: FleetSummary | None
    usd: Decimal | None
    reason: str
    users: int = 0


def why_not(spec: Spec, solver: Solver, pattern: str) -> list[Counterfactual]:
    """Return for each matching machine type why it is not chosen.

    In order: rules that exclude it, a limit that it misses, its price.
    `pattern` is a glob over machine types and accelerators. Raises MissingError when nothing
    matches.
    """
    matching_offers = [
        offer
        for offer in solver.catalog.offers
        if _matches_pattern(offer, pattern)
    ]
    if not matching_offers:
        next_step = "run: tonnage offers --limit 1000"
        message = f"no machine type matches '{pattern}'"
        raise MissingError(
            Problem(code="offer", message=message, next_step=next_step)
        )
    # One answer for each type, over all regions and purchase options.
    machine_types = sorted(
        {
            (offer.provider, offer.instance.instance_type)
            for offer in matching_offers
        }
    )
    return [
        _explain_type(
            spec,
            solver,
            [
                offer
                for offer in matching_offers
                if _machine_key(offer) == machine_type
            ],
        )
        for machine_type in machine_types
    ]


def what_if(
    spec: Spec, solver: Solver, traffic_factor: float
) -> Counterfactual:
    """Return the fleet and its cost at `traffic_factor` times the traffic.

    A workspace scales its users, a training run its tokens. A serving fleet is not simulated.
    """
    offers = OfferFilter(
        solver.catalog.offer_groups, spec_rules(spec, solver.unbuilt_reason)
    ).cheapest()
    if isinstance(spec, Training):
        return _scaled_training(spec, solver, traffic_factor)
    if isinstance(spec, Workspace):
        # The load of a workspace is its users.
        user_count = max(1, round(spec.users * traffic_factor))
        solution = solver.solve(replace(spec, users=user_count))
        usd_month = solution.bill.total if solution.bill else None
        return Counterfactual(
            None,
            usd_month,
            "" if usd_month is not None else "infeasible",
            users=user_count,
        )
    # Rate or concurrency is scaled; lengths and limits stay.
    requirement = solver.requirement(spec).with_scaled_load(traffic_factor)
    candidates = (
        ServingSearch(solver.catalog.price_book)
        .solve(requirement, offers)
        .candidates
    )
    if not candidates:
        return Counterfactual(None, None, "infeasible")
    return Counterfactual(
        describe_fleet(candidates[0]), candidates[0].bill.total, ""
    )


def _scaled_training(
    spec: Training, solver: Solver, token_factor: float
) -> Counterfactual:
    """Return the cluster and its cost at `token_factor` times the training tokens."""
    # Resolved tokens: the spec may give samples, or nothing.
    token_count = (
        training_requirement(
            spec, solver.read_file, solver.confidence.level
        ).tokens
        * token_factor
    )
    solution = solver.solve(
        replace(spec, data=replace(spec.data, tokens=round(token_count)))
    )
    if solution.bill is None:
        return Counterfactual(None, None, "infeasible")
    pool = solution.pools[0]
    fleet = replace(_machine_type(pool.offer), nodes=pool.nodes)
    return Counterfactual(fleet, solution.bill.total, "")


def _explain_type(
    spec: Spec, solver: Solver, offers: list[Offer]
) -> Counterfactual:
    offer_filter = OfferFilter(
        group_offers(offers), spec_rules(spec, solver.unbuilt_reason)
    )
    allowed_offers = offer_filter.cheapest()
    machine_type = _machine_type(offers[0])
    if not allowed_offers:
        # The offer with the fewest violations is nearest to the rules.
        violated_rules = min(
            (offer_filter.violations(offer) for offer in offers), key=len
        )
        # A type without a stack has a reason of its own.
        unbuilt_reason = solver.unbuilt_reason(offers[0].instance)
        return Counterfactual(
            machine_type,
            None,
            unbuilt_reason
            or "excluded by " + ", ".join(sorted(violated_rules)),
        )
    if isinstance(spec, Training):
        return _explain_training(spec, solver, machine_type, allowed_offers)
    if isinstance(spec, Workspace):
        shortfall = workspace_requirement(spec).shortfall(
            allowed_offers[0].instance
        )
        # Allowed offers differ in the purchase option.
        cheapest_offer = min(
            allowed_offers, key=lambda offer: (offer.usd_hour, offer.key)
        )
        usd_month = workspace_bill(
            spec, cheapest_offer, solver.catalog.price_book
        ).total
        return Counterfactual(
            replace(machine_type, nodes=spec.users),
            None if shortfall else usd_month,
            shortfall or "price",
        )
    # A search over this machine type alone gives its best fleet.
    search_result = ServingSearch(solver.catalog.price_book).solve(
        solver.requirement(spec), allowed_offers
    )
    if search_result.candidates:
        return Counterfactual(
            describe_fleet(search_result.candidates[0]),
            search_result.candidates[0].bill.total,
            "price",
        )
    # Offers are ordered by cost bound; the first one is reported.
    if search_result.rejected_offers:
        return Counterfactual(
            machine_type,
            None,
            rejection_reason(search_result.rejected_offers[0].rejection),
        )
    return Counterfactual(
        machine_type, None, "no layout of the model fits its accelerators"
    )


def _explain_training(
    spec: Training,
    solver: Solver,
    machine_type: FleetSummary,
    allowed_offers: list[Offer],
) -> Counterfactual:
    requirement = training_requirement(
        spec, solver.read_file, solver.confidence.level
    )
    search_result = TrainSearch(requirement, solver.catalog.price_book).solve(
        allowed_offers, 1
    )
    # A feasible cluster can only lose by its cost.
    if search_result.feasible:
        best_candidate = search_result.feasible[0]
        return Counterfactual(
            replace(machine_type, nodes=best_candidate.cluster.nodes),
            best_candidate.bill.total,
            "price",
        )
    return Counterfactual(machine_type, None, search_result.rejected[0].reason)


def _machine_type(offer: Offer) -> FleetSummary:
    """Return the machine type of an offer, without region and number of nodes."""
    return FleetSummary(offer.provider, "", offer.instance.instance_type, 0)


def _machine_key(offer: Offer) -> tuple[str, str]:
    return offer.provider, offer.instance.instance_type


def _matches_pattern(offer: Offer, pattern: str) -> bool:
    lowered_pattern = pattern.lower()
    searched_names = (
        offer.instance.instance_type.lower(),
        # Accelerator names are lower case in the facts.
        offer.instance.accelerator,
    )
    return any(
        fnmatchcase(searched_name, lowered_pattern)
        for searched_name in searched_names
    )
