"""Cost: hours, tiers and unknown prices."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.cost.bill_line import (
    Usage,
    egress_lines,
    service_lines,
    sum_lines,
)
from planner.cost.energy import PoweredMachine, machine_energy
from planner.cost.service_price import PriceBook
from planner.cost.weekly_load import (
    SpareGroups,
    running_shares,
    standing_minutes,
    weekly_load,
)
from planner.facts.accelerator import accelerators
from planner.spec.schedule import open_minutes, parse_schedule
from tests.conftest import chat, find, present, spec_of


def use(provider: str, **more: object) -> Usage:
    words: dict[str, object] = {
        "provider": provider,
        "node_hours": Decimal(730),
        "cache_gb": Decimal(0),
        "stored_gb_months": Decimal(16),
        "sent_gb": Decimal(0),
        "received_gb": Decimal(0),
        "serves_traffic": True,
        **more,
    }
    return Usage(**words)  # type: ignore[arg-type] # words of each test


def test_a_month_is_730_hours() -> None:
    assert weekly_load("flat", None).node_hours(3, 1) == 3 * 730


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("weekdays 07:00-20:00 Europe/Berlin", 65),
        ("daily 00:00-24:00", 168),
        ("weekends 22:00-02:00", 8),
        ("mon-wed,fri 09:30-10:00", 2),
        ("fri-mon 00:00-24:00", 96),
    ],
)
def test_schedules_run_the_hours_that_they_say(
    schedule: str, hours: int
) -> None:
    assert sum(running_shares(schedule)) == hours


@pytest.mark.parametrize("bad", ["weekdays 25:00-26:00", "daily 09:75-10:00"])
def test_times_that_do_not_exist_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_schedule(bad)


@given(st.integers(1, 50), st.sampled_from([1, 2, 4]))
def test_nodes_follow_the_load_and_never_fall_below_one_unit(
    groups: int, unit: int
) -> None:
    shape = weekly_load("diurnal", None)
    nodes = shape.hourly_nodes(groups, unit)
    spared = shape.hourly_nodes(groups, unit, SpareGroups(2))
    assert [s - n for s, n in zip(spared, nodes, strict=True)] == [
        2 * unit
    ] * len(nodes)
    busy = shape.hourly_nodes(groups, unit, SpareGroups(2, from_load=0.5))
    assert [s - n for s, n in zip(busy, nodes, strict=True)] == [
        (2 if load >= 0.5 else 1) * unit for load in shape.relative_load
    ]
    assert max(nodes) == groups * unit
    assert min(nodes) >= unit
    for count, share in zip(nodes, shape.relative_load, strict=True):
        assert count / (groups * unit) >= share - 1e-9


@given(
    day=st.lists(st.integers(0, 3), min_size=24, max_size=24),
    schedule=st.sampled_from(
        [None, "weekdays 07:00-20:30 UTC", "sat-sun 22:00-02:00 UTC"]
    ),
    lead=st.sampled_from([0, 1, 17, 60, 191, 1500, 10_079, 20_000]),
)
def test_machines_stand_for_the_most_that_a_minute_of_their_lead_needs(
    day: list[int], schedule: str | None, lead: int
) -> None:
    hourly = tuple(day * 6 + [0] * 24)
    is_open = np.array(open_minutes(schedule))
    needed = np.repeat(hourly, 60) * is_open
    # The longest lead reaches into the third week.
    ahead = np.concatenate([needed] * 4)[: len(needed) + lead]
    most = np.lib.stride_tricks.sliding_window_view(ahead, lead + 1).max(axis=1)
    assert standing_minutes(hourly, schedule, lead) == tuple(most * is_open)


def test_egress_tiers_add_up_as_a_person_would(catalog) -> None:
    lines = egress_lines("aws", Decimal(20_000), catalog.price_book)
    found = sum(present(x.usd) for x in lines)
    by_hand = (10_240 - 100) * Decimal("0.09") + (20_000 - 10_240) * Decimal(
        "0.085"
    )
    assert found == by_hand.quantize(Decimal("0.01"))


def test_a_missing_price_is_unknown_and_never_zero(catalog) -> None:
    prices = {
        key: found
        for key, found in catalog.price_book.prices.items()
        if key != ("gcp", "logs")
    }
    lines = service_lines(use("gcp"), PriceBook(prices))
    logs = next(x for x in lines if x.kind == "logs")
    assert logs.usd is None
    assert logs.unit_price is None
    known, unknown = sum_lines(lines)
    assert unknown == ["logs"]
    assert known == sum(x.usd for x in lines if x.usd is not None)


def test_every_line_has_unit_quantity_source_and_age(catalog) -> None:
    bill = find(catalog, chat()).bill
    assert bill is not None
    for line in bill.lines:
        assert line.unit
        assert line.quantity >= 0
        assert (line.source and line.as_of) or not line.is_priced


def test_a_commitment_is_paid_whether_it_runs_or_not(catalog) -> None:
    text = chat(
        extra='buy: {commit: [1y]}\nshutdown: {schedule: "weekdays 08:00-10:00"}'
    )
    solution = find(catalog, text)
    assert solution.bill is not None
    machines = solution.bill.lines[0]
    assert machines.quantity == 730 * solution.pools[0].nodes


def test_specs_without_a_schedule_run_all_week() -> None:
    assert spec_of(chat()).shutdown.schedule is None
    assert weekly_load("flat", None).running_hours == 730


def test_the_energy_of_a_machine_is_that_of_its_data_sheet() -> None:
    """DGX H100: 10.2 kW at most for 8 boards of 700 W; here at 85 % of it, with the PUE of AWS."""
    one = PoweredMachine(
        provider="aws",
        region="us-east-1",
        chip=accelerators()["h100-sxm"],
        board_count=8.0,
        role="train",
    )
    found = machine_energy(one, 2, Decimal(200))
    assert found is not None
    assert found.kw == pytest.approx(2 * 10.2 * 0.85 * 1.15, rel=0.01)
    assert found.kwh == pytest.approx(found.kw * 100)
    assert found.kg_co2e is not None
    assert 0.2 < found.kg_co2e / found.kwh < 0.6
    idle = machine_energy(replace(one, role="workspace"), 2, Decimal(200))
    assert idle is not None
    assert idle.kwh < found.kwh
    assert (
        machine_energy(
            replace(one, chip=accelerators()["tpu-v5e"]), 2, Decimal(200)
        )
        is None
    )
