"""What nobody answers stays; what is answered has the price of today, its day and its source."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from planner.facts.commitment import forms_of_sources
from planner.market.live import SpotPriceAnswer
from planner.market.price_row import PriceRow, read_price_rows
from planner.market.price_update import (
    COMMITTED,
    AnsweredQuestion,
    AskedScope,
    PriceQuestion,
    asked_form,
    price_questions,
    todays_prices,
    updated_rows,
)
from providers.catalog.manifest import CATALOG_FOLDER
from tests.planner.market.price_rows import NOW, answered, price_row

TODAY = "2026-11-22"
EMBEDDED = read_price_rows((CATALOG_FOLDER / "prices.csv").read_text())
EVERYTHING = price_questions(EMBEDDED, AskedScope())
# What an answer may change of a row at the same price.
PROVENANCE = {"as_of", "source", "basis", "confidence"}


def same_prices(rows: list[PriceRow], question: PriceQuestion) -> Any:
    """An answer with the prices that a table has."""
    asked = set(question.keys)
    if question.purchase == COMMITTED:
        terms: dict[str, dict[str, Decimal]] = {}
        for row in rows:
            if row.key in asked:
                terms.setdefault(row.instance_type, {})[row.purchase] = row.usd
        return AnsweredQuestion(
            question,
            SpotPriceAnswer(state="value", value=terms, as_of=NOW, request=""),
        )
    return answered(
        {row.instance_type: row.usd_hour for row in rows if row.key in asked},
        question.purchase,
        question.region,
        question.machine_types,
        question.cloud,
    )


def test_each_region_is_asked_both_ways_about_what_it_sells() -> None:
    keys = {key for question in EVERYTHING for key in question.keys}
    sold = {
        row.key
        for row in EMBEDDED
        if row.purchase in ("on_demand", "spot") and row.region != "*"
    }
    assert sold <= keys
    assert len({q.place for q in EVERYTHING}) == len(EVERYTHING)
    places = {(q.cloud, q.region) for q in EVERYTHING}
    terms = {place for place in places if asked_form(place[0])}
    assert {cloud for cloud, _ in terms} == {"aws"}
    assert len(EVERYTHING) == 2 * len(places) + len(terms)


def test_patterns_say_what_is_asked() -> None:
    scope = AskedScope(("aws",), ("us-*", "eu-west-1"), ("p5.*",))
    questions = price_questions(EMBEDDED, scope)
    assert questions
    for question in questions:
        assert question.cloud == "aws"
        assert question.region.startswith(("us-", "eu-west-1"))
        assert question.machine_types == ("p5.48xlarge",) or all(
            name.startswith("p5.") for name in question.machine_types
        )


def test_where_nobody_answers_nothing_changes() -> None:
    silent = [
        answered(None, q.purchase, q.region, q.machine_types, q.cloud)
        for q in EVERYTHING
    ]
    todays = todays_prices(silent, {})
    assert not todays.asked
    assert updated_rows(EMBEDDED, todays, TODAY) == EMBEDDED


@settings(deadline=None, max_examples=25)
@given(st.sets(st.sampled_from(range(len(EVERYTHING))), max_size=12))
def test_the_same_prices_change_only_where_they_are_from(
    numbers: set[int],
) -> None:
    questions = [EVERYTHING[number] for number in numbers]
    todays = todays_prices(
        [same_prices(EMBEDDED, q) for q in questions], {}, EMBEDDED
    )
    updated = updated_rows(EMBEDDED, todays, TODAY)
    assert len(updated) == len(EMBEDDED)
    for old, new in zip(EMBEDDED, updated, strict=True):
        if old.key not in todays.asked:
            assert new == old
            continue
        # The table has a few prices with more digits than a row keeps.
        assert abs(new.usd - old.usd) <= Decimal("0.000001")
        changed = {
            name
            for name, cell in asdict(new).items()
            if cell != getattr(old, name)
        }
        assert changed <= PROVENANCE | {"usd_hour", "usd_min", "usd_max"}
        assert (new.as_of, new.source) == (TODAY, f"live-{new.provider}")


def test_what_is_asked_and_not_answered_is_left_out() -> None:
    rows = [price_row("10"), price_row("20", instance_type="p4d.24xlarge")]
    todays = todays_prices(
        [
            answered(
                {"p5.48xlarge": "11"},
                machine_types=("p4d.24xlarge", "p5.48xlarge"),
            )
        ],
        {},
    )
    [row] = updated_rows(rows, todays, TODAY)
    assert (row.usd_hour, row.basis) == ("11", "observed")


def test_what_is_new_comes_last() -> None:
    rows = [price_row("10"), price_row("9", region="us-west-2")]
    todays = todays_prices([answered({"p5.48xlarge": "3.5"}, "spot")], {})
    assert updated_rows(rows, todays, TODAY) == [
        *rows,
        replace(price_row("3.5", "spot"), as_of=TODAY, source="live-aws"),
    ]


@pytest.mark.parametrize("usd", ["0", "-1", "NaN", "Infinity", "1e-9", "1e7"])
def test_what_nothing_may_cost_changes_no_row(usd: str) -> None:
    rows = [price_row("10")]
    todays = todays_prices([answered({"p5.48xlarge": usd})], {})
    assert updated_rows(rows, todays, TODAY) == rows


def test_a_fleet_is_spread_over_its_zones_so_their_mean_counts() -> None:
    """Local zones beside the region are not those of the catalog."""
    question = PriceQuestion("aws", "us-west-2", "spot", ("p5.48xlarge",))
    by_zone = {"a": Decimal(1), "b": Decimal(2), "lax-1a": Decimal(30)}
    answer = SpotPriceAnswer(
        state="value", value={"p5.48xlarge": by_zone}, as_of=NOW, request=""
    )
    place = ("aws", "us-west-2", "p5.48xlarge")
    key = (*place, "spot")
    one = [AnsweredQuestion(question, answer)]
    zones = {place: ("a", "b", "c")}
    assert todays_prices(one, zones).usd_hour == {key: Decimal("1.5")}
    # Without a zone that both know, the price is that of all.
    assert todays_prices(one, {place: ("d",)}).usd_hour == {key: Decimal(11)}


def test_a_range_grows_by_the_price_of_today() -> None:
    row = replace(price_row("10", "spot"), usd_min="8", usd_max="12")
    for usd, wanted in (("7", ("7", "12")), ("13", ("8", "13"))):
        todays = todays_prices([answered({"p5.48xlarge": usd}, "spot")], {})
        [updated] = updated_rows([row], todays, TODAY)
        assert (updated.usd_min, updated.usd_max) == wanted


def committed(usd: str, purchase: str = "reserved_1y") -> AnsweredQuestion:
    """An answer with a price of one term."""
    question = PriceQuestion("aws", "us-east-1", COMMITTED, ("p5.48xlarge",))
    answer = SpotPriceAnswer(
        state="value",
        value={"p5.48xlarge": {purchase: Decimal(usd)}} if usd else {},
        as_of=NOW,
        request="",
    )
    return AnsweredQuestion(question, answer)


def term_row(usd: str, source: str, purchase: str = "reserved_1y") -> PriceRow:
    return replace(price_row(usd, purchase), source=source)


def test_terms_are_asked_of_a_cloud_whose_list_names_them() -> None:
    rows = [price_row("10"), price_row("9", provider="gcp")]
    asked = {
        question.cloud
        for question in price_questions(rows, AskedScope())
        if question.purchase == COMMITTED
    }
    assert asked == {"aws"}


def test_a_term_paid_in_part_that_a_cloud_names_comes_into_the_table() -> None:
    rows = [price_row("10")]
    todays = todays_prices([committed("5", "reserved_3y_partial")], {}, rows)
    [_, added] = updated_rows(rows, todays, TODAY)
    assert (added.purchase, added.usd_hour) == ("reserved_3y_partial", "5")
    assert forms_of_sources()[added.source] == "reserved_instance"


@pytest.mark.parametrize(
    ("source", "answer", "left"),
    [
        # A reserved instance: its price of today, or it is not sold any more.
        ("vantage-2026-01", "6", ["6"]),
        ("vantage-2026-01", "8", ["8"]),
        ("vantage-2026-01", "", []),
        # A savings plan, which the list does not name: the cheaper form is kept.
        ("aws-sp-2026", "6", ["6"]),
        ("aws-sp-2026", "7", ["7"]),
        ("aws-sp-2026", "8", ["7"]),
        ("aws-sp-2026", "", ["7"]),
    ],
)
def test_of_two_forms_the_cheaper_one_is_kept(
    source: str, answer: str, left: list[str]
) -> None:
    rows = [term_row("7", source)]
    updated = updated_rows(
        rows, todays_prices([committed(answer)], {}, rows), TODAY
    )
    assert [row.usd_hour for row in updated] == left
    changed = answer and left == [answer] and answer != "7"
    assert [row.source for row in updated] == (
        ["live-aws"] if changed else [source] * len(left)
    )
