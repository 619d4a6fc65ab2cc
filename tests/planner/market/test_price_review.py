"""Each rule of the review fires on what it is for, and on nothing else."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.market.price_review import (
    PriceReview,
    UpdateLimits,
    review_prices,
    update_limits,
)
from planner.market.price_row import PriceRow
from planner.market.price_update import AnsweredQuestion, todays_prices
from tests.planner.market.price_rows import answered, price_row

LIMITS = UpdateLimits(
    jump_factor=Decimal(2),
    shift_factor=Decimal("1.05"),
    vanished_share=Decimal("0.05"),
    spot_above_share=Decimal("0.1"),
)
NAMES = tuple(f"type-{number:02d}" for number in range(40))


def review(rows: list[PriceRow], *answers: AnsweredQuestion) -> PriceReview:
    return review_prices(rows, todays_prices(answers, {}), LIMITS)


def kinds(found: PriceReview) -> list[str]:
    return [concern.kind for concern in found.concerns]


def test_the_limits_are_rows() -> None:
    assert update_limits() == LIMITS


@pytest.mark.parametrize(
    ("usd", "is_odd"),
    [
        ("20", False),
        ("20.01", True),
        ("5", False),
        ("4.99", True),
        # Of cents, of another currency, of a second, of a month.
        ("1000", True),
        ("1400", True),
        ("0.0028", True),
        ("7300", True),
    ],
)
def test_a_jump_is_more_than_the_factor_either_way(
    usd: str, is_odd: bool
) -> None:
    """Beside others that stay as they are."""
    names = ("p5.48xlarge", *NAMES[:4])
    found = review(
        [price_row("10", instance_type=name) for name in names],
        answered(
            {**dict.fromkeys(names, "10"), "p5.48xlarge": usd},
            machine_types=names,
        ),
    )
    assert kinds(found) == ["jump"] * is_odd
    assert bool(found.refusals) == is_odd


@pytest.mark.parametrize(
    ("factor", "is_refused"),
    [
        ("1", False),
        ("1.05", False),
        # What a dollar was in euro, in pound and in Canadian dollars.
        ("0.86", True),
        ("0.76", True),
        ("1.4", True),
    ],
)
def test_another_currency_moves_all_prices_on_demand(
    factor: str, is_refused: bool
) -> None:
    """One price in ten has a new price besides, so that not all move alike."""
    rows = [price_row("10", instance_type=name) for name in NAMES]
    prices = {
        name: str(Decimal(factor) * (12 if number % 10 == 0 else 10))
        for number, name in enumerate(NAMES)
    }
    found = review(rows, answered(prices, machine_types=NAMES))
    assert found.concerns == ()
    assert bool(found.refusals) == is_refused


def test_prices_on_spot_move_together() -> None:
    rows = [price_row("10", "spot", instance_type=name) for name in NAMES]
    prices = dict.fromkeys(NAMES, "14")
    found = review(rows, answered(prices, "spot", machine_types=NAMES))
    assert found == PriceReview((), ())


@pytest.mark.parametrize("usd", ["0", "-1", "NaN", "Infinity"])
def test_what_nothing_may_cost_is_refused(usd: str) -> None:
    found = review([price_row("10")], answered({"p5.48xlarge": usd}))
    assert kinds(found) == ["unusable"]
    assert found.refusals == ("1 are zero, negative or no number",)


def test_a_new_price_is_compared_with_those_of_other_regions() -> None:
    """A wrong unit has no old price to betray it."""
    rows = [
        price_row("3", "spot", "us-west-1"),
        price_row("5", "spot", "us-west-2"),
    ]
    for usd, is_odd in (("10", False), ("10.1", True), ("1.4", True)):
        found = review(rows, answered({"p5.48xlarge": usd}, "spot"))
        assert kinds(found) == ["jump"] * is_odd
    [concern] = found.concerns
    assert concern.detail == "3 to 5 in other regions"


def test_a_new_price_that_nothing_compares_with_is_refused() -> None:
    found = review([], answered({"p5.48xlarge": "3"}))
    assert kinds(found) == ["unmatched"]
    assert found.refusals


@pytest.mark.parametrize(("count", "is_refused"), [(2, False), (3, True)])
def test_a_few_prices_may_vanish(count: int, is_refused: bool) -> None:
    """Two of forty are a twentieth."""
    rows = [price_row("10", instance_type=name) for name in NAMES]
    found = review(
        rows,
        answered(dict.fromkeys(NAMES[count:], "10"), machine_types=NAMES),
    )
    assert kinds(found) == ["vanished"] * count
    assert bool(found.refusals) == is_refused


def test_a_small_cloud_does_not_hide_behind_a_large_one() -> None:
    rows = [price_row("10", instance_type=name) for name in NAMES] + [
        price_row("10", provider="azure", region="eastus")
    ]
    found = review(
        rows,
        answered(dict.fromkeys(NAMES, "10"), machine_types=NAMES),
        answered({}, region="eastus", cloud="azure"),
    )
    assert found.refusals == ("1 of 1 of azure on_demand vanished",)


def test_what_nobody_answered_has_not_vanished() -> None:
    assert review([price_row("10")], answered(None)).concerns == ()


@pytest.mark.parametrize(("count", "is_refused"), [(4, False), (5, True)])
def test_a_few_prices_on_spot_may_reach_on_demand(
    count: int, is_refused: bool
) -> None:
    rows = [
        price_row(usd, purchase, instance_type=name)
        for name in NAMES
        for purchase, usd in (("on_demand", "10"), ("spot", "9"))
    ]
    spot = {
        name: "10" if number < count else "9"
        for number, name in enumerate(NAMES)
    }
    found = review(rows, answered(spot, "spot", machine_types=NAMES))
    assert kinds(found) == ["spot_above"] * count
    assert bool(found.refusals) == is_refused


def test_on_demand_may_fall_below_an_old_price_on_spot() -> None:
    rows = [price_row("10"), price_row("9", "spot")]
    found = review(rows, answered({"p5.48xlarge": "8"}))
    assert kinds(found) == ["spot_above"]
    assert "1 of 1 of aws spot are not below on demand" in found.refusals
    # What was so before, and nobody answered, is no matter of this update.
    assert review([price_row("8"), price_row("9", "spot")]).concerns == ()
