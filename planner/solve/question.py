"""Questions about a solution: why not that machine, and what would more traffic cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import MissingError, Problem
from planner.solve.explain import fleet, reason
from planner.solve.offer import grouped
from planner.solve.rule import Market, rules
from planner.solve.search import Search
from planner.solve.train.need import train_need
from planner.solve.train.search import TrainSearch
from planner.solve.workspace import bill, room
from planner.spec.model import Training, Workspace

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.solve.answer import Solver
    from planner.solve.offer import Offer
    from planner.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Answer:
    """What a machine type could do: the fleet, USD a month, and why it is not chosen."""

    fleet: str
    usd_month: Decimal | None
    reason: str


def why_not(spec: Spec, solver: Solver, pattern: str) -> list[Answer]:
    """Say for every machine type that matches what keeps it from being chosen.

    First the rules that exclude it, then what it lacks or misses, then its price. Raises
    MissingError when no machine type matches.
    """
    matching_offers = [
        offer for offer in solver.catalog.offers if _matches(offer, pattern)
    ]
    if not matching_offers:
        next_step = "run: tonnage offers --limit 1000"
        message = f"no machine type matches '{pattern}'"
        raise MissingError(
            Problem(code="offer", message=message, next_step=next_step)
        )
    machine_types = sorted(
        {
            (offer.provider, offer.instance.instance_type)
            for offer in matching_offers
        }
    )
    return [
        _answer(
            spec,
            solver,
            [
                offer
                for offer in matching_offers
                if _kind(offer) == machine_type
            ],
        )
        for machine_type in machine_types
    ]


def what_if(spec: Spec, solver: Solver, traffic_factor: float) -> Answer:
    """Return the fleet for so many times the traffic (or the people of a workspace)."""
    offers = Market(solver.catalog.offer_groups, rules(spec, solver.unbuilt_reason)).cheapest()
    if isinstance(spec, Training):
        return _longer(spec, solver, traffic_factor)
    if isinstance(spec, Workspace):
        user_count = max(1, round(spec.users * traffic_factor))
        solution = solver.solve(replace(spec, users=user_count))
        usd_month = solution.bill.usd_month if solution.bill else None
        return Answer(
            f"{user_count} users",
            usd_month,
            "" if usd_month is not None else "infeasible",
        )
    requirement = solver.requirement(spec).with_scaled_load(traffic_factor)
    candidates = Search(solver.catalog.price_book).solve(requirement, offers).candidates
    if not candidates:
        return Answer("", None, "infeasible")
    return Answer(fleet(candidates[0]), candidates[0].bill.usd_month, "")


def _longer(spec: Training, solver: Solver, token_factor: float) -> Answer:
    """The cluster for so many times the tokens, or the pairs."""
    token_count = (
        train_need(spec, solver.read_file, solver.confidence.level).tokens
        * token_factor
    )
    solution = solver.solve(
        replace(spec, data=replace(spec.data, tokens=round(token_count)))
    )
    if solution.bill is None:
        return Answer("", None, "infeasible")
    pool = solution.pools[0]
    fleet_label = f"{pool.offer.provider} {pool.offer.instance.instance_type} x {pool.nodes}"
    return Answer(fleet_label, solution.bill.usd_month, "")


def _answer(spec: Spec, solver: Solver, offers: list[Offer]) -> Answer:
    offer_filter = Market(grouped(offers), rules(spec, solver.unbuilt_reason))
    allowed_offers = offer_filter.cheapest()
    machine_label = f"{offers[0].provider} {offers[0].instance.instance_type}"
    if not allowed_offers:
        violated_rules = min(
            (offer_filter.violations(offer) for offer in offers), key=len
        )
        unbuilt_reason = solver.unbuilt_reason(offers[0].instance)
        return Answer(
            machine_label,
            None,
            unbuilt_reason
            or "excluded by " + ", ".join(sorted(violated_rules)),
        )
    if isinstance(spec, Training):
        return _trained(spec, solver, machine_label, allowed_offers)
    if isinstance(spec, Workspace):
        shortfall = room(spec).shortfall(allowed_offers[0].instance)
        cheapest_offer = min(
            allowed_offers, key=lambda offer: (offer.usd_hour, offer.key)
        )
        usd_month = bill(spec, cheapest_offer, solver.catalog.price_book).usd_month
        return Answer(
            f"{machine_label} x {spec.users}",
            None if shortfall else usd_month,
            shortfall or "price",
        )
    search_result = Search(solver.catalog.price_book).solve(
        solver.requirement(spec), allowed_offers
    )
    if search_result.candidates:
        return Answer(
            fleet(search_result.candidates[0]),
            search_result.candidates[0].bill.usd_month,
            "price",
        )
    if search_result.rejected_offers:
        return Answer(
            machine_label, None, reason(search_result.rejected_offers[0].rejection)
        )
    return Answer(
        machine_label, None, "no layout of the model fits its accelerators"
    )


def _trained(
    spec: Training,
    solver: Solver,
    machine_label: str,
    allowed_offers: list[Offer],
) -> Answer:
    requirement = train_need(spec, solver.read_file, solver.confidence.level)
    search_result = TrainSearch(requirement, solver.catalog.price_book).solve(
        allowed_offers, 1
    )
    if search_result.candidates:
        best_candidate = search_result.candidates[0]
        return Answer(
            f"{machine_label} x {best_candidate.cluster.nodes}",
            best_candidate.bill.usd_month,
            "price",
        )
    return Answer(machine_label, None, search_result.rejected[0].reason)


def _kind(offer: Offer) -> tuple[str, str]:
    return offer.provider, offer.instance.instance_type


def _matches(offer: Offer, pattern: str) -> bool:
    lowered_pattern = pattern.lower()
    searched_names = (
        offer.instance.instance_type.lower(),
        offer.instance.accelerator,
    )
    return any(
        fnmatchcase(searched_name, lowered_pattern)
        for searched_name in searched_names
    )
