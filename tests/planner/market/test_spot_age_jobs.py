"""Batches and trainings go on spot by themselves only where an old price wins at its upper end."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pytest
from msgspec.structs import replace

from planner.market.offer import Catalog
from planner.market.slice import slice_offers, slice_shapes
from planner.market.spot_age import with_deciding_spot
from planner.plan.types import Plan
from planner.sentence import describe
from planner.solve.settings import SolveSettings
from planner.solve.solution import Scenario, Solution
from planner.workload.solver import why_not
from stacks.spec.table import unsupported_reason
from tests.conftest import find, only, present, spec_of
from tests.planner.market.test_spot_age import TODAY, dated
from tests.planner.solve.serving.test_spot_promise import LASTING
from tests.stacks.engine.test_simulated import plan_of

OLD: Final = "2025-12-01"
# From today's to one that is older than a year, each older than the one before.
DATES: Final = (TODAY, "2026-09-01", "2026-07", "2026-02", OLD, "2025", "2024")
BATCH: Final = """
apiVersion: tonnage/v1
kind: Batch
name: backlog
model: {name: llama-3.1-8b}
traffic: {total_requests: 200k, input_tokens: 1000, output_tokens: 200}
deadline: 1d
buy: {spot: auto}
"""
TRAINING: Final = """
apiVersion: tonnage/v1
kind: Training
name: adapters
model: {name: llama-3.1-8b}
data: {tokens: 20M, location: "s3://bucket/tokens"}
train: {method: lora, sequence: 2k, global_batch: 64, rank: 16, deadline: 2d}
buy: {spot: auto}
"""
JOBS: Final = {"batch": BATCH, "training": TRAINING}
# What it costs on demand is 1.861 USD an hour.
NEAR: Final = "1.20"
FAR: Final = "0.30"


def purchase_of(solution: Solution) -> str:
    [pool] = solution.pools
    [part] = pool.purchases
    return part.purchase


def total(solution: Solution) -> Decimal:
    return present(solution.bill).total


def warned(solution: Solution, code: str) -> list[str]:
    """The sentences of the warnings of a code."""
    return [
        describe(warning.reason)
        for warning in solution.warnings
        if warning.code == code
    ]


def spot_row(solution: Solution) -> Scenario:
    """What a training says of the same machines on spot."""
    ways = present(solution.training_run).scenarios
    return next(way for way in ways if way.name == "spot")


def sure(catalog: Catalog, confidence: str) -> Catalog:
    """A catalog with another confidence in its prices of spot."""
    return replace(
        catalog,
        offers=tuple(
            replace(offer, confidence=confidence)
            if offer.purchase == "spot"
            else offer
            for offer in catalog.offers
        ),
    )


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("usd_hour", [NEAR, FAR])
def test_an_older_date_of_a_price_makes_no_plan_cheaper_nor_more_of_it_spot(
    catalog: Catalog, kind: str, usd_hour: str
) -> None:
    solutions = [
        find(dated(catalog, as_of, usd_hour), JOBS[kind], keep=0)
        for as_of in DATES
    ]
    totals = [*map(total, solutions)]
    assert totals == sorted(totals)
    are_on_spot = [purchase_of(one) == "spot" for one in solutions]
    assert are_on_spot == sorted(are_on_spot, reverse=True)
    assert are_on_spot[0]


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize(
    ("as_of", "usd_hour", "is_on_spot"),
    [(TODAY, NEAR, True), (OLD, NEAR, False), (OLD, FAR, True)],
)
def test_a_job_takes_spot_only_where_it_holds_at_the_upper_end(
    catalog: Catalog, kind: str, as_of: str, usd_hour: str, *, is_on_spot: bool
) -> None:
    few = dated(catalog, as_of, usd_hour)
    solution = find(few, JOBS[kind], keep=0)
    assert (purchase_of(solution) == "spot") is is_on_spot
    never = find(few, JOBS[kind].replace("auto", "never"), keep=0)
    assert total(solution) <= total(never)
    told = warned(solution, "moved-price")
    assert bool(told) is (is_on_spot and as_of == OLD)
    for sentence in told:
        assert f"the upper end of {usd_hour} of {as_of}" in sentence


@pytest.mark.parametrize("kind", JOBS)
def test_a_spec_that_asks_for_spot_has_the_price_that_was_found(
    catalog: Catalog, kind: str
) -> None:
    few = dated(catalog, OLD, NEAR)
    asked = JOBS[kind].replace("auto", "only")
    [pool] = find(few, asked, keep=0).pools
    assert pool.usd_hour == Decimal(NEAR)
    # The same plan at a price of today: its age changes the band and not the total.
    assert total(find(few, asked, keep=0)) == total(
        find(dated(catalog, TODAY, NEAR), asked, keep=0)
    )


def test_a_stated_share_of_a_batch_has_the_price_that_was_found(
    catalog: Catalog,
) -> None:
    text = BATCH.replace("spot: auto", "on_demand_base: 50%").replace(
        "200k", "20M"
    )
    [pool] = find(dated(catalog, OLD, NEAR), text, keep=0).pools
    prices = {part.purchase: part.usd_hour for part in pool.purchases}
    assert prices["spot"] == Decimal(NEAR)


@pytest.mark.parametrize("kind", JOBS)
def test_a_weak_price_is_bought_by_name_alone(
    catalog: Catalog, kind: str
) -> None:
    weak = sure(dated(catalog, TODAY, FAR), "low")
    assert purchase_of(find(weak, JOBS[kind], keep=0)) == "on_demand"
    asked = JOBS[kind].replace("auto", "only")
    assert purchase_of(find(weak, asked, keep=0)) == "spot"


def test_no_place_of_the_catalog_has_spot_to_choose_that_is_not_below_on_demand(
    catalog: Catalog,
) -> None:
    chosen = with_deciding_spot(catalog)
    found = {offer.key: offer for offer in catalog.offers}
    spot = [offer for offer in chosen.offers if offer.purchase == "spot"]
    assert spot
    for offer in spot:
        on_demand = chosen.offers_by_place[offer.key[:3]].get("on_demand")
        assert on_demand is None or offer.usd_hour < on_demand.usd_hour
        assert offer.usd_hour >= found[offer.key].usd_hour
        assert not offer.is_weakly_priced
    # Nothing else is another, and what is left out is spot.
    others = {key for key in found if key[3] != "spot"}
    assert others == {
        offer.key for offer in chosen.offers if offer.purchase != "spot"
    }


def test_a_slice_counts_as_its_machines_do(catalog: Catalog) -> None:
    hosts = with_deciding_spot(
        only(catalog, lambda o: o.instance.instance_type in slice_shapes())
    )
    by_place = {offer.key: offer for offer in hosts.offers}
    moved = [
        offer
        for offer in slice_offers(hosts.offers)
        if offer.found_usd_hour is not None
    ]
    assert moved
    for offer in moved:
        machine = offer.instance
        host = by_place[
            (offer.provider, machine.host_type, offer.region, offer.purchase)
        ]
        assert offer.usd_hour == host.usd_hour * machine.machines
        assert offer.found_usd_hour == machine.machines * present(
            host.found_usd_hour
        )


def banded(plan: Plan, found_usd: float) -> None:
    """Hold a plan on spot whose prices are at their upper end, and were found at so much."""
    [cause] = [
        cause
        for cause in present(plan.cost.band).causes
        if cause.cause == "prices"
    ]
    [line] = [one for one in plan.cost.lines if one.name.endswith(" spot")]
    spot_usd = float(present(line.usd))
    total_usd = float(present(plan.cost.total))
    # It may be below what was found, too.
    found_share = found_usd / float(present(line.unit_price))
    assert 0 < found_share < 1
    assert float(cause.low) <= total_usd - spot_usd * (1 - found_share)
    assert float(cause.high) - total_usd < 0.01 * spot_usd


@pytest.mark.parametrize("kind", JOBS)
def test_the_band_begins_where_the_price_that_was_found_may_have_fallen_to(
    catalog: Catalog, kind: str
) -> None:
    banded(plan_of(dated(catalog, OLD, FAR), JOBS[kind]), float(FAR))


def test_the_band_of_a_slice_begins_where_that_of_its_machines_does(
    catalog: Catalog,
) -> None:
    text = (
        TRAINING.replace("lora", "pretrain")
        .replace("rank: 16, ", "")
        .replace("s3:", "gs:")
        .replace("20M", "1B")
        + "where: {clouds: [gcp], accelerators: {allow: [tpu-v6e]}}\n"
    )
    plan = plan_of(catalog, text)
    [pool] = plan.solution.pools
    host, _, _ = pool.instance_type.rpartition("-")
    assert host in slice_shapes()
    [warning] = [one for one in plan.warnings if one.code == "moved-price"]
    [machine] = [
        offer
        for offer in catalog.offers
        if offer.key == ("gcp", host, pool.region, "spot")
    ]
    machines = next(
        offer.instance.machines
        for offer in slice_offers([machine])
        if offer.instance.instance_type == pool.instance_type
    )
    found_usd = machine.usd_hour * machines
    assert f"the upper end of {found_usd:,.2f} " in warning.message
    banded(plan, float(found_usd))


def test_a_training_tells_what_spot_costs_at_its_upper_end(
    catalog: Catalog,
) -> None:
    """Where it was not to be chosen as well: nobody has to guess why."""
    row = spot_row(find(dated(catalog, OLD, NEAR), TRAINING, keep=0))
    assert describe(row.remarks[0]) == (
        f"at the upper end of its price of {OLD}, {NEAR} USD an hour"
    )
    solution = find(dated(catalog, OLD, NEAR), TRAINING, keep=0)
    assert present(row.usd) > total(solution)
    unsure = find(sure(dated(catalog, TODAY, FAR), "low"), TRAINING, keep=0)
    assert spot_row(unsure).usd is not None
    assert describe(spot_row(unsure).remarks[0]) == (
        "its price has low confidence"
    )


def test_a_batch_off_spot_tells_what_was_found(catalog: Catalog) -> None:
    [told] = warned(
        find(dated(catalog, OLD, NEAR), BATCH, keep=0), "spot-unused"
    )
    assert f"the price of {LASTING} there, {NEAR} USD an hour of {OLD}" in told
    [told] = warned(
        find(sure(dated(catalog, TODAY, FAR), "low"), BATCH, keep=0),
        "spot-unused",
    )
    assert "weak prices do not count" in told
    # What was never allowed, or costs more by a price of today, is no news.
    for text, catalog_of_case in (
        (BATCH.replace("auto", "never"), dated(catalog, OLD, NEAR)),
        (BATCH, dated(catalog, TODAY, "5.00")),
    ):
        assert not warned(find(catalog_of_case, text, keep=0), "spot-unused")


def test_a_type_that_is_sold_on_spot_alone_says_why_it_is_no_choice(
    catalog: Catalog,
) -> None:
    few = only(
        sure(dated(catalog, TODAY, FAR), "low"),
        lambda offer: offer.purchase == "spot",
    )
    settings = SolveSettings(
        catalog=few,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    [answer] = why_not(spec_of(BATCH), settings, LASTING)
    assert "buy.spot: only" in describe(present(answer.reason))
