"""Training on given machines: a run that never ends is refused before its days are counted."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from planner.errors import InfeasibleError
from planner.solve.training.cluster import LONGEST_RUN_S
from planner.solve.training.fixed import estimate_training
from planner.solve.training.requirement import (
    TrainingRequirement,
    training_requirement,
)
from planner.solve.training.search import TrainSearch
from planner.spec.load import load_spec
from planner.spec.model import Training
from planner.units import SECONDS_PER_HOUR
from providers.catalog.load import load_catalog

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.training.objective import Objective

CATALOG = load_catalog(None)
SPEC = """apiVersion: tonnage/v1
kind: Training
name: huge
model: {name: llama-3.1-405b}
data: {tokens: TOKENS, location: "s3://bucket/tokens", size: 1GB, storage: object}
train: {method: pretrain, sequence: 8k, global_batch: 16M tokens, deadline: 14d}
"""
LAYOUT = {"tp": "8", "pp": "16", "cp": "1"}


def requirement(tokens: str) -> TrainingRequirement:
    spec = load_spec(SPEC.replace("TOKENS", tokens).encode(), "t.yaml")
    assert isinstance(spec, Training)
    return training_requirement(spec, lambda _: b"", 0.9)


def offer_of(machine: str) -> Offer:
    return next(
        offer
        for offer in CATALOG.offers
        if offer.instance.instance_type == machine
        and offer.purchase == "on_demand"
    )


@pytest.mark.parametrize("nodes", [64, 512, 2048])
@pytest.mark.parametrize("tokens", ["16M", "10T", "1000T"])
def test_a_run_ends_within_a_century_or_is_refused_at_once(
    nodes: int, tokens: str
) -> None:
    offer = offer_of("p5.48xlarge")
    try:
        estimate = estimate_training(
            requirement(tokens), offer, nodes, LAYOUT, CATALOG.price_book
        )
    except InfeasibleError as refusal:
        [problem] = refusal.problems
        assert problem.code == "infeasible"
        assert "more than 100 years" in problem.message
        assert problem.next_step
        assert (nodes, tokens) not in {(64, "16M"), (512, "16M")}
    else:
        days_usd = estimate.expected_usd / (
            offer.usd_hour * nodes / SECONDS_PER_HOUR
        )
        assert days_usd <= Decimal(LONGEST_RUN_S) * 2
        assert (nodes, tokens) != (2048, "16M")


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
def test_a_pipeline_has_the_sharding_that_is_asked_for(sharding: str) -> None:
    """Meta sharded gradients of Llama 3.1 405B, in a pipeline; a search looks at ZeRO-1 alone."""
    asked, machine = requirement("16M"), offer_of("p5.48xlarge")
    named = LAYOUT | {"sharding": sharding}
    found = estimate_training(asked, machine, 64, named, CATALOG.price_book)
    assert {x.job.layout.sharding for x in found.layouts} == {sharding}
    assert {x.job.layout.pp for x in found.layouts} == {16}
    free = estimate_training(asked, machine, 64, LAYOUT, CATALOG.price_book)
    assert free.layouts[0].job.layout.sharding == "zero1"


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_no_plan_has_a_run_whose_mean_never_ends(objective: Objective) -> None:
    # On objects, so that a restart of so many machines takes longer than they run.
    offers = [
        offer
        for offer in CATALOG.offers
        if offer.instance.instance_type in {"p5.48xlarge", "p4de.24xlarge"}
        and offer.purchase == "on_demand"
    ]
    search = TrainSearch(
        requirement("16M"), CATALOG.price_book, objective=objective
    )
    feasible = search.solve(offers, len(offers)).feasible
    assert feasible
    assert all(found.cluster.ends for found in feasible)
