"""Machines of small clouds are rows of prices in an update, and machines again after it."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.facts.price_endpoint import listed_machines
from planner.facts.small_cloud import (
    SMALL_CLOUD_FILE,
    read_small_clouds,
    small_cloud_machines,
    small_cloud_table,
)
from planner.market.price_update import (
    AskedScope,
    TodaysPrices,
    updated_rows,
)
from planner.market.small_cloud_update import (
    small_price_rows,
    small_questions,
    table_machines,
    updated_machines,
)

MACHINES = small_cloud_machines()
NOBODY = TodaysPrices(frozenset(), {})
TODAY = "2026-11-22"
USD = st.decimals(Decimal("0.0001"), Decimal(9999), places=4)


@given(st.lists(st.tuples(st.sampled_from(MACHINES), USD)))
def test_a_table_reads_back_as_it_was_written(chosen: list) -> None:
    machines = tuple(replace(each, usd_hour=usd) for each, usd in chosen)
    text = small_cloud_table(machines)
    assert read_small_clouds(text) == machines
    assert table_machines({SMALL_CLOUD_FILE: text}) == machines
    assert table_machines({}) == MACHINES


def test_where_nobody_answers_the_machines_are_what_they_were() -> None:
    rows = updated_rows(small_price_rows(MACHINES), NOBODY, TODAY)
    assert updated_machines(MACHINES, rows) == MACHINES


@given(st.dictionaries(st.sampled_from(MACHINES), USD))
def test_an_answer_changes_a_price_with_its_source_and_day_alone(
    prices: dict,
) -> None:
    rows = small_price_rows(MACHINES)
    usd_hour = {
        row.key: prices[machine]
        for row, machine in zip(rows, MACHINES, strict=True)
        if machine in prices
    }
    todays = TodaysPrices(frozenset(usd_hour), usd_hour)
    after = updated_machines(MACHINES, updated_rows(rows, todays, TODAY))
    assert after == tuple(
        replace(
            machine,
            usd_hour=prices[machine],
            source=f"live-{machine.cloud_name}",
            as_of=TODAY,
        )
        if machine in prices
        else machine
        for machine in MACHINES
    )


def test_all_that_is_listed_is_asked_for_on_demand_once() -> None:
    questions = small_questions(AskedScope())
    assert {q.cloud: set(q.machine_types) for q in questions} == {
        cloud: {machine.machine for machine in machines}
        for cloud, machines in listed_machines().items()
    }
    assert {q.purchase for q in questions} == {"on_demand"}
    assert len(questions) == len(listed_machines())


def test_patterns_say_what_is_asked() -> None:
    scope = AskedScope(("oci", "aws"), ("any-*",), ("*H?00*",))
    [question] = small_questions(scope)
    assert question.machine_types == ("BM.GPU.H100.8", "BM.GPU.H200.8")
    assert small_questions(AskedScope(regions=("us-*",))) == []
    assert small_questions(AskedScope(clouds=("aws",))) == []
