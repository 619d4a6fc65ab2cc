"""Stickiness: what stands stays unless moving pays, and then the plan is the cheapest again."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from msgspec.structs import replace

from planner.solve.settings import SolveSettings
from planner.solve.solution import Solution
from planner.spec.model import Spec
from planner.units import SECONDS_PER_MONTH
from planner.workload.fallback import cheapest_among
from planner.workload.solver import find
from planner.workload.standing import Staying, offer_keys, stay_or_move
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, only, spec_of

DAYS = 24 * 3600


def settings(catalog) -> SolveSettings:
    return SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
    )


def spec_at(rps: float, horizon: str = "30d") -> Spec:
    return spec_of(
        chat(traffic=f"peak_rps: {rps}", extra=f"buy: {{horizon: {horizon}}}")
    )


def planned(catalog, spec: Spec, standing) -> tuple[Solution, Staying | None]:
    return stay_or_move(
        spec, settings(catalog), find(spec, settings(catalog)), standing
    )


def total(solution: Solution) -> Decimal:
    assert solution.bill is not None
    return solution.bill.total


def test_without_a_stack_the_cheapest_is_bought(catalog) -> None:
    spec = spec_at(2)
    found, staying = planned(catalog, spec, ())
    assert staying is None
    assert offer_keys(found) == offer_keys(find(spec, settings(catalog)))


@pytest.mark.parametrize("horizon", ["1d", "30d", "1095d"])
@pytest.mark.parametrize("rps", [1, 4, 10, 25, 60])
def test_it_moves_exactly_when_the_saving_exceeds_the_cost(
    catalog, rps, horizon
) -> None:
    """Judged by the numbers that it gives for staying."""
    spec = spec_at(rps, horizon)
    best = find(spec, settings(catalog))
    standing = ("aws", "us-east-1", "g6.xlarge", "on_demand")
    stays = cheapest_among(
        spec,
        settings(catalog),
        lambda o: (
            (
                o.provider,
                o.region,
                o.instance.instance_type,
                o.purchase,
            )
            == standing
        ),
    )
    assert stays is not None
    found, staying = planned(catalog, spec, (standing,))
    if staying is None:
        assert offer_keys(found) == offer_keys(best)
        assert total(found) == total(best)
        return
    assert offer_keys(found) == {standing}
    assert total(found) == total(stays)
    assert staying.saved_usd == total(stays) - total(best)
    months = spec.buy.horizon / SECONDS_PER_MONTH
    assert staying.saved_usd * months <= staying.moving_usd


def test_a_longer_horizon_never_makes_it_stay(catalog) -> None:
    standing = (("aws", "us-east-1", "g6.xlarge", "on_demand"),)
    for rps in (1, 4, 10):
        moved = [
            planned(catalog, spec_at(rps, horizon), standing)[1] is None
            for horizon in ("1d", "30d", "365d", "1095d")
        ]
        assert moved == sorted(moved)


def repriced(catalog, region: str, factor: str):
    """The catalog with other prices of one region."""
    return replace(
        catalog,
        offers=tuple(
            replace(o, usd_hour=o.usd_hour * Decimal(factor))
            if o.region == region
            else o
            for o in catalog.offers
        ),
    )


def test_prices_that_wander_by_a_percent_move_nothing(catalog) -> None:
    """The cheapest region flips with every price list; the fleet does not follow."""
    spec = spec_of(
        chat(
            traffic="peak_rps: 2",
            extra="where: {accelerators: {allow: [l4]}}\nbuy: {horizon: 30d}",
        )
    )
    regions = [
        offer.region
        for offer in catalog.offers
        if offer.provider == "gcp"
        and offer.instance.instance_type == "g2-standard-4"
        and offer.purchase == "on_demand"
    ]
    first, second = regions[:2]
    usd = {
        o.region: o.usd_hour
        for o in catalog.offers
        if o.key == ("gcp", "g2-standard-4", o.region, "on_demand")
    }
    # Both regions cost the same at first.
    two = repriced(
        only(
            catalog, lambda o: o.region in regions[:2] and o.provider == "gcp"
        ),
        second,
        str(usd[first] / usd[second]),
    )
    lists = [repriced(two, regions[number % 2], "0.99") for number in range(6)]
    cheapest = [offer_keys(find(spec, settings(c))) for c in lists]
    assert all(before != after for before, after in pairwise(cheapest))
    standing = tuple(sorted(cheapest[0]))
    for prices in lists:
        solution, _ = planned(prices, spec, standing)
        assert tuple(sorted(offer_keys(solution))) == standing
    # A region at half the price is worth a move.
    [(_, here, _, _)] = standing
    other = next(region for region in regions[:2] if region != here)
    moved, staying = planned(repriced(two, other, "0.5"), spec, standing)
    assert staying is None
    assert {key[1] for key in offer_keys(moved)} == {other}


def test_what_no_longer_serves_is_left(catalog) -> None:
    """A machine that is too small for the model is no place to stay."""
    spec = spec_of(chat(model="llama-3.3-70b"))
    standing = (("aws", "us-east-1", "g6.xlarge", "on_demand"),)
    solution, staying = planned(catalog, spec, standing)
    assert staying is None
    assert solution.pools
