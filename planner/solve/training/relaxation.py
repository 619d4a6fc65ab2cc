"""The nearest feasible values of an infeasible training job."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.market.public_address import ADDRESS_KEY
from planner.solve.cause import because
from planner.solve.solution import BindingLimit, FleetSummary
from planner.solve.training.cluster import LONGEST_RUN_S
from planner.solve.training.machine_layouts import layout_searches
from planner.solve.training.search import TrainSearch

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.training.ranking import FeasibleCluster
    from planner.solve.training.requirement import TrainingRequirement

MIN_SEQUENCE: Final = 1024  # tokens
BATCH_DOUBLINGS: Final = 5  # up to those of a machine of eight, and pairs


def nearest_feasible(
    requirement: TrainingRequirement, offers: list[Offer], price_book: PriceBook
) -> tuple[BindingLimit, ...]:
    """Return the relaxations of an infeasible job; each changes one constraint.

    1. the lowest cost, when only a budget is violated
    2. else the shortest duration, and the global batch rounded up to a power of two
    3. else the longest sequence that fits in memory

    Where no allowed accelerator multiplies in an asked precision, it is one of all accelerators.
    """
    if not any(
        layout_searches(requirement, offer.instance, 1) for offer in offers
    ):
        return _usual_precision(requirement, offers, price_book)
    without_budget = replace(
        requirement, budget_usd=None, monthly_budget_usd=None
    )
    # A cluster without budgets shows that a budget is the only obstacle.
    feasible = TrainSearch(without_budget, price_book).solve(offers, 1).feasible
    if (
        feasible
        and requirement.budget_usd is not None
        and feasible[0].bill.total > requirement.budget_usd
    ):
        enough = because("usd", value_usd=feasible[0].bill.total)
        return (_relaxation("train.budget", feasible[0], enough),)
    # The budget of the run is met here, so the monthly one is violated.
    if feasible and requirement.monthly_budget_usd is not None:
        enough = because(
            "usd-month-at-least", value_usd=feasible[0].monthly_usd
        )
        return (_relaxation("buy.budget", feasible[0], enough),)
    without_deadline = _without_deadline(without_budget)
    fastest_clusters = (
        TrainSearch(without_deadline, price_book, objective="time")
        .solve(offers, 1)
        .feasible
    )
    relaxations = [
        _relaxation(
            limit_key,
            candidate,
            because("run-time", value_s=candidate.cluster.estimated_end_s),
        )
        for candidate in fastest_clusters[:1]
        for limit_key in requirement.broken_time_limits(
            candidate.cluster.estimated_end_s
        )
    ]
    relaxations += _better_batch(without_budget, offers, price_book)
    # No layout fits in any time, so memory is the obstacle.
    return tuple(relaxations) or _longest_sequence(
        without_deadline, offers, price_book
    )


def _usual_precision(
    requirement: TrainingRequirement, offers: list[Offer], price_book: PriceBook
) -> tuple[BindingLimit, ...]:
    """Return what 16 bit, or experts in the precision of all, would cost; nothing if neither.

    Of both keys the one that is enough by itself comes first.
    """
    usual = {
        "train.expert_precision": replace(requirement, expert_precision=""),
        "train.precision": replace(requirement, precisions=("bf16",)),
    }
    for key, relaxed in usual.items():
        feasible = TrainSearch(relaxed, price_book).solve(offers, 1).feasible
        if feasible and relaxed != requirement:
            software = feasible[0].cluster.timed_layout.job.software
            told = because("told", told=software.precision_of_experts)
            return (_relaxation(key, feasible[0], told),)
    return ()


def behind_nat(
    requirement: TrainingRequirement, market: OfferFilter, catalog: Catalog
) -> tuple[BindingLimit, ...]:
    """Return the cheapest cluster behind a NAT, where the machines were to have addresses."""
    if not requirement.has_addresses:
        return ()
    search = TrainSearch(
        replace(requirement, has_addresses=False), catalog.price_book
    )
    feasible = search.solve(market.cheapest(ADDRESS_KEY), 1).feasible
    return tuple(
        _relaxation(ADDRESS_KEY, candidate, because("told", told="false"))
        for candidate in feasible[:1]
    )


def _better_batch(
    requirement: TrainingRequirement, offers: list[Offer], price_book: PriceBook
) -> list[BindingLimit]:
    """Return the least power of two above the batch with which a job is in time, if any.

    A power of two divides by more data-parallel sizes and micro-batches. A framework without
    other cuts needs a sequence for each accelerator of a machine, so a few are tried.
    """
    least_exponent = math.ceil(math.log2(max(2, requirement.global_batch)))
    for exponent in range(least_exponent, least_exponent + BATCH_DOUBLINGS):
        batch = 2**exponent
        if batch == requirement.global_batch:
            continue
        feasible = (
            TrainSearch(replace(requirement, global_batch=batch), price_book)
            .solve(offers, 1)
            .feasible
        )
        if feasible:
            enough = because("count", value=batch)
            return [_relaxation("train.global_batch", feasible[0], enough)]
        # Where a batch fits and is late, larger ones change little.
        if "tensor" in requirement.framework.cuts:
            break
    return []


def _without_deadline(requirement: TrainingRequirement) -> TrainingRequirement:
    """Return a requirement in which a century is the limit of the duration.

    That excludes only runs that never end.
    """
    return replace(
        requirement,
        deadline_s=LONGEST_RUN_S,
        shutdown=replace(requirement.shutdown, ttl=None),
        block_s=None,
        flex_s=None,
    )


def _longest_sequence(
    requirement: TrainingRequirement, offers: list[Offer], price_book: PriceBook
) -> tuple[BindingLimit, ...]:
    """Return the longest sequence that fits on any offer, by repeated halving.

    Lengths below `MIN_SEQUENCE` tokens are not tried.
    """
    # Halving lowers the activations, which grow with the sequence.
    while requirement.sequence > MIN_SEQUENCE:
        requirement = replace(requirement, sequence=requirement.sequence // 2)
        feasible = (
            TrainSearch(requirement, price_book).solve(offers, 1).feasible
        )
        if feasible:
            return (
                _relaxation(
                    "train.sequence",
                    feasible[0],
                    because("count", value=requirement.sequence),
                ),
            )
    return ()


def _relaxation(
    constraint: str, candidate: FeasibleCluster, relaxed_value: Cause
) -> BindingLimit:
    offer = candidate.cluster.offer
    nodes = candidate.cluster.nodes
    return BindingLimit(
        constraint=constraint,
        slack=None,
        relax_to=relaxed_value,
        saves_usd=None,
        usd=candidate.bill.total,
        fleet=FleetSummary(
            offer.provider, offer.region, offer.instance.instance_type, nodes
        ),
        unpriced=candidate.bill.unpriced_lines,
    )
