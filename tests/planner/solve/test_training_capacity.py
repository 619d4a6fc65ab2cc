"""A gang is no larger than what is to be had, and the plan says what to ask for beyond it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.market.capacity import gang_limit
from planner.market.offer import Catalog
from planner.sentence import describe
from planner.solve.solution import Scenario, Solution
from planner.solve.training.capacity import newest_block_price
from tests.conftest import BLUEPRINTS, only, present, solve

SPEC = """
apiVersion: tonnage/v1
kind: Training
name: t
model: {name: MODEL}
data: {tokens: TOKENS, location: "s3://bucket/tokens"}
train: {method: pretrain, sequence: 4k, global_batch: 1024, deadline: DEADLINE}
buy: {spot: SPOT}
"""


def trained(
    catalog: Catalog,
    tokens: str,
    deadline: str,
    spot: str,
    model: str = "llama-3.1-70b",
) -> Solution:
    """The solution of a pretraining job."""
    text = SPEC
    for word, value in {
        "MODEL": model,
        "TOKENS": tokens,
        "DEADLINE": deadline,
        "SPOT": spot,
    }.items():
        text = text.replace(word, value)
    return solve(catalog, text)


def bought(solution: Solution) -> tuple[str, int]:
    """How the machines of the job are bought, and how many."""
    [pool] = solution.pools
    [part] = pool.purchases
    return part.purchase, part.nodes


def scenario(solution: Solution, name: str) -> Scenario:
    """The scenario of a name."""
    run = present(solution.training_run)
    return next(way for way in run.scenarios if way.name == name)


@pytest.mark.parametrize(
    ("tokens", "deadline"), [("1T", "50d"), ("3T", "49d"), ("15T", "30d")]
)
def test_hundreds_of_the_newest_machines_on_spot_are_no_answer(
    tokens: str, deadline: str, catalog: Catalog
) -> None:
    purchase, nodes = bought(trained(catalog, tokens, deadline, "auto"))
    assert purchase == "on_demand"
    assert nodes > 8


def test_a_job_of_few_machines_goes_on_spot(catalog: Catalog) -> None:
    solution = trained(catalog, "10B", "60d", "auto")
    purchase, nodes = bought(solution)
    assert purchase == "spot"
    assert nodes <= 5


def test_more_than_eight_machines_go_on_spot_when_the_spec_asks(
    catalog: Catalog,
) -> None:
    small = only(
        catalog,
        lambda offer: offer.instance.instance_type == "g6e.48xlarge",
    )
    allowed = trained(small, "300B", "20d", "auto", "llama-3.1-8b")
    asked = trained(small, "300B", "20d", "only", "llama-3.1-8b")
    assert bought(asked)[0] == "spot"
    assert 8 < bought(asked)[1] <= 16
    assert bought(allowed)[0] == "on_demand"
    told = scenario(allowed, "spot").remarks[-1]
    assert "buy.spot: only" in describe(told)


def test_asking_for_spot_that_is_not_to_be_had_is_told_what_to_ask_for(
    catalog: Catalog,
) -> None:
    asked = trained(catalog, "1T", "50d", "only")
    fixed = trained(catalog, "1T", "50d", "never")
    assert asked.status == "infeasible"
    nearest = asked.bindings[0]
    assert nearest.constraint == "buy.spot"
    assert nearest.usd == present(fixed.bill).total
    assert "ask for a capacity block (49 days, " in describe(nearest.relax_to)


def test_more_machines_than_a_quota_are_told_the_price_of_a_block(
    catalog: Catalog,
) -> None:
    """A block is paid for every hour of its days."""
    some = only(catalog, lambda o: o.instance.instance_type == "p5.48xlarge")
    solution = trained(some, "300B", "60d", "never")
    nodes = bought(solution)[1]
    told = {warning.code: warning.reason for warning in solution.warnings}
    assert told["capacity"].values["nodes"] == nodes > 1
    price = told["capacity-price"]
    quote = present(newest_block_price(some, some.offers[0]))
    # The page of prices of 2026-10-07: 41.528 USD an hour for 8 H100.
    assert quote.usd_hour == Decimal("41.528")
    days = int(price.values["days"])
    assert price.values["block_usd"] == round(
        Decimal("41.528") * nodes * 24 * days, 2
    )
    # A block ends when its days do.
    assert float(days) * 24 >= present(solution.training_run).hours_p50_p90[1]


def test_one_machine_within_its_quota_is_not_warned_of(
    catalog: Catalog,
) -> None:
    some = only(catalog, lambda o: o.instance.instance_type == "p5.48xlarge")
    solution = trained(some, "2B", "60d", "never", "llama-3.1-8b")
    assert bought(solution)[1] == 1
    assert "capacity" not in {warning.code for warning in solution.warnings}


def test_a_cloud_without_blocks_is_told_the_price_of_a_reservation(
    catalog: Catalog,
) -> None:
    some = only(
        catalog,
        lambda o: o.instance.instance_type == "Standard_ND96isr_H100_v5",
    )
    solution = trained(some, "100B", "60d", "never")
    told = {warning.code: warning.reason for warning in solution.warnings}
    assert told["capacity"].values["machines"] == 0
    assert told["capacity-price"].code == "ask-commitment"
    assert "reserved 1y costs" in describe(told["capacity-price"])


@pytest.mark.parametrize(
    "path",
    [p for p in BLUEPRINTS if b"kind: Training" in p.read_bytes()],
    ids=lambda path: path.stem,
)
def test_on_demand_and_spot_stand_side_by_side(path, catalog: Catalog) -> None:
    solution = solve(catalog, path.read_text())
    scenarios = present(solution.training_run).scenarios
    assert {way.name for way in scenarios[:2]} == {"on_demand", "spot"}
    purchase, nodes = bought(solution)
    assert scenarios[0].name == purchase
    assert scenarios[0].usd is not None
    spot = scenario(solution, "spot")
    # What is not to be had has no price, and says why.
    codes = {remark.code for remark in spot.remarks}
    assert (spot.usd is None) == bool(codes & {"beyond-spot", "not-sold"})
    if purchase == "spot":
        chosen = solution.pools[0]
        offers = [
            offer
            for offer in catalog.offers
            if offer.purchase == "spot"
            and offer.instance.instance_type == chosen.instance.instance_type
        ]
        assert nodes <= present(gang_limit(offers[0], spot_by_name=True))


def test_machines_that_are_not_sold_on_spot_say_so(catalog: Catalog) -> None:
    some = only(
        catalog,
        lambda o: (
            o.instance.instance_type == "Standard_ND96isr_H200_v5"
            and o.purchase != "spot"
        ),
    )
    solution = trained(some, "10B", "60d", "auto")
    spot = scenario(solution, "spot")
    assert spot.usd is None
    assert spot.remarks[0].code == "not-sold"
