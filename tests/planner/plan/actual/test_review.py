"""Laws of a review: causes add up, the plan itself has no difference, others change nothing."""

from __future__ import annotations

import json
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.plan.actual.review import (
    Review,
    ReviewedLine,
    proposed_move,
    review,
)
from tests.planner.plan.actual.conftest import (
    DAYS,
    HOURS,
    charges_of,
    export_row,
    planned_rows,
)

LENIENT = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MACHINES = "machines of serve"
MONEY = st.decimals(-10, 10_000, places=7)
SERVICES = st.sampled_from(
    [
        ("Compute Engine", "Nvidia L4 GPU running in Virginia", "hour"),
        ("Compute Engine", "Balanced PD Capacity in Virginia", "parsec"),
        ("Networking", "Networking Cloud Nat Data Processing", "gibibyte"),
        ("Vertex AI", "something", "hour"),
        ("", "", ""),
    ]
)
ROWS = st.lists(
    st.builds(
        lambda usd, what, quantity, day, node: export_row(
            EffectiveCost=f"{usd:f}",
            ServiceName=what[0],
            ChargeDescription=what[1],
            ConsumedUnit=what[2],
            ConsumedQuantity=f"{quantity:f}",
            ResourceId=f"vm-{node}",
            ChargePeriodStart=f"2026-10-{day:02}T00:00:00Z",
            ChargePeriodEnd=f"2026-10-{day + 1:02}T00:00:00Z",
        ),
        MONEY,
        SERVICES,
        st.decimals(0, 1000, places=4),
        st.integers(1, 28),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=12,
)


def line_of(reviewed: Review, name: str) -> ReviewedLine:
    return next(line for line in reviewed.lines if line.name == name)


def causes_of(line: ReviewedLine) -> dict[str, Decimal]:
    return {part.cause: part.usd for part in line.causes}


def test_an_export_that_is_the_plan_has_no_difference(plan) -> None:
    reviewed = review(plan, charges_of(planned_rows(plan)))
    assert reviewed.causes == ()
    assert [line.name for line in reviewed.lines if line.causes] == []
    assert reviewed.actual_usd == reviewed.planned_usd
    # The month, scaled to the hours of the export.
    assert reviewed.time.hours == HOURS
    assert abs(reviewed.planned_usd - plan.cost.total * HOURS / 730) < Decimal(
        "0.01"
    )


def test_the_rate_of_such_an_export_is_the_bill(plan) -> None:
    reviewed = review(plan, charges_of(planned_rows(plan)))
    assert abs(reviewed.actual_period_usd - plan.cost.total) < Decimal("0.05")


@LENIENT
@given(rows=ROWS)
def test_causes_add_up_to_the_difference_to_the_cent(plan, rows) -> None:
    reviewed = review(plan, charges_of(rows))
    for line in reviewed.lines:
        difference = line.actual_usd - (line.planned_usd or Decimal(0))
        assert sum(causes_of(line).values(), Decimal(0)) == difference
    assert (
        sum((part.usd for part in reviewed.causes), Decimal(0))
        == reviewed.difference_usd
    )
    exact = sum((Decimal(row["EffectiveCost"]) for row in rows), Decimal(0))
    assert abs(reviewed.actual_usd - exact) <= Decimal("0.005")


@LENIENT
@given(rows=ROWS, data=st.data())
def test_the_order_of_rows_does_not_matter(plan, rows, data) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert review(plan, charges_of(rows)) == review(plan, charges_of(shuffled))


@LENIENT
@given(rows=ROWS, others=ROWS)
def test_rows_of_other_stacks_change_nothing(plan, rows, others) -> None:
    strangers = [
        {**row, "Tags": json.dumps({"tonnage-stack": name})}
        for row, name in zip(others, ["chat-2", "Chat"] * 6, strict=False)
    ]
    assert review(plan, charges_of(rows)) == review(
        plan, charges_of([*strangers, *rows])
    )


def test_another_time_scales_both_sides(plan) -> None:
    short = review(plan, charges_of(planned_rows(plan, DAYS)))
    long = review(plan, charges_of(planned_rows(plan, 2 * DAYS)))
    cent = Decimal("0.02")
    assert abs(long.actual_usd - 2 * short.actual_usd) <= cent
    assert abs(long.planned_usd - 2 * short.planned_usd) <= cent


def test_a_run_stays_a_run(plan) -> None:
    """What ends is compared as a whole, however long its export is."""
    run = replace(plan, cost=replace(plan.cost, period="run"))
    reviewed = review(run, charges_of(planned_rows(plan)))
    assert reviewed.planned_usd == plan.cost.total
    assert reviewed.actual_period_usd == reviewed.actual_usd


def test_another_price_is_the_price(plan) -> None:
    rows = planned_rows(plan)
    for row in rows:
        row["EffectiveCost"] = f"{Decimal(row['EffectiveCost']) * 2:f}"
    line = line_of(review(plan, charges_of(rows)), MACHINES)
    assert set(causes_of(line)) == {"price"}
    assert line.actual_usd - (line.planned_usd or 0) == causes_of(line)["price"]


def with_machines(plan, rows, quantity: Decimal):
    """The rows with so many times the hours of machines, at the planned price."""
    for row in rows:
        if "Nvidia" in row["ChargeDescription"]:
            for column in ("EffectiveCost", "ConsumedQuantity"):
                row[column] = f"{Decimal(row[column]) * quantity:f}"
    return rows


def test_longer_hours_are_hours(plan) -> None:
    rows = with_machines(plan, planned_rows(plan), Decimal("1.5"))
    line = line_of(review(plan, charges_of(rows)), MACHINES)
    assert set(causes_of(line)) == {"hours"}


def test_another_machine_is_a_count(plan) -> None:
    rows = planned_rows(plan)
    nodes = plan.solution.pools[0].nodes
    more = [
        {**row, "ResourceId": f"{row['ResourceId']}-more"}
        for row in rows
        if "Nvidia" in row["ChargeDescription"]
    ]
    line = line_of(review(plan, charges_of([*rows, *more])), MACHINES)
    # Twice the machines at the same hours and price: all of it is their count.
    assert set(causes_of(line)) == {"count"}
    assert len(more) == nodes * DAYS


def test_without_names_of_machines_more_of_them_are_hours(plan) -> None:
    rows = with_machines(plan, planned_rows(plan), Decimal(2))
    for row in rows:
        row["ResourceId"] = ""
    line = line_of(review(plan, charges_of(rows)), MACHINES)
    assert set(causes_of(line)) == {"hours"}


def test_gigabytes_are_a_quantity(plan) -> None:
    rows = planned_rows(plan)
    for row in rows:
        if "Nat Data" in row["ChargeDescription"]:
            for column in ("EffectiveCost", "ConsumedQuantity"):
                row[column] = f"{Decimal(row[column]) * 3:f}"
    line = line_of(review(plan, charges_of(rows)), "NAT data")
    assert set(causes_of(line)) == {"quantity"}


def test_new_missing_and_unknown_lines_are_told(plan) -> None:
    rows = [
        row
        for row in planned_rows(plan)
        if "Forwarding Rule" not in row["ChargeDescription"]
    ]
    reviewed = review(
        plan,
        charges_of(
            [
                *rows,
                export_row(
                    ServiceName="Azure Bastion",
                    ChargeDescription="Standard Gateway",
                ),
                export_row(ServiceName="Vertex AI", ChargeDescription="x"),
                export_row(ChargeCategory="Tax", EffectiveCost="2"),
            ]
        ),
    )
    for name, cause in (
        ("load balancer", "missing"),
        ("way in to the machines", "new"),
        ("unknown: Vertex AI", "unknown"),
        ("tax", "new"),
    ):
        assert set(causes_of(line_of(reviewed, name))) == {cause}


def test_a_unit_that_is_not_known_is_not_guessed(plan) -> None:
    rows = planned_rows(plan)
    for row in rows:
        if "Nvidia" in row["ChargeDescription"]:
            row["ConsumedUnit"] = "fortnight"
            row["EffectiveCost"] = "1"
    line = line_of(review(plan, charges_of(rows)), MACHINES)
    assert set(causes_of(line)) == {"unknown"}
    assert line.actual_quantity is None


def test_a_line_without_a_planned_price_is_unknown(plan) -> None:
    lines = tuple(
        replace(line, usd=None, unit_price=None, price_found=False)
        if line.kind == "logs"
        else line
        for line in plan.cost.lines
    )
    partial = replace(plan, cost=replace(plan.cost, lines=lines))
    line = line_of(review(partial, charges_of(planned_rows(plan))), "logs")
    assert (line.planned_usd, set(causes_of(line))) == (None, {"unknown"})


def test_a_move_saves_what_was_paid_above_the_plan_of_today(plan) -> None:
    reviewed = review(plan, charges_of(planned_rows(plan)))
    cheaper = replace(
        plan, cost=replace(plan.cost, total=plan.cost.total - 100)
    )
    move = proposed_move(reviewed, plan, cheaper)
    assert move.saves_usd == reviewed.actual_period_usd - cheaper.cost.total
    assert (move.fleet_changes, move.spec_changed) == (False, False)
    # A run and a month have no difference.
    run = replace(cheaper, cost=replace(cheaper.cost, period="run"))
    assert proposed_move(reviewed, plan, run).saves_usd is None
