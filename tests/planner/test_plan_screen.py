"""The page of a plan, over all blueprints: short, narrow, and with the numbers of the document."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.market.price_age import age_days
from planner.render import markdown, text
from planner.render.bill import MOST_NAMED_LINES, NAMED_LINES
from planner.render.page import LINE_WIDTH, PAGE_LINES, PageTable
from planner.render.plan import fleet_page, plan_page, reasons_page
from providers.catalog.load import load_catalog
from tests.conftest import BLUEPRINTS, ROOT, TODAY, chat, present
from tests.stacks.engine.test_simulated import plan_of

NARROW = 80
EVERY = pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
DATES = st.dates(date(2020, 1, 1), date(2035, 12, 31))


@cache
def plan_at(path):
    return plan_of(load_catalog(), path.read_text())


def page_of(path, *, full: bool = False):
    return plan_page(
        plan_at(path), today=TODAY, full=full, saved_path="a.plan.json"
    )


def machine_names(plan) -> set[str]:
    chosen = {pool.instance_type for pool in plan.solution.pools}
    others = {
        pool.instance_type
        for alternative in plan.alternatives
        for pool in alternative.pools
    }
    relaxed = {
        limit.fleet.instance_type
        for limit in plan.solution.binding
        if limit.fleet is not None
    }
    return chosen | others | relaxed


@EVERY
def test_the_default_page_fits_a_screen(path) -> None:
    lines = text.render(page_of(path)).splitlines()
    assert len(lines) <= PAGE_LINES
    assert max(map(len, lines)) <= LINE_WIDTH


@EVERY
def test_the_page_that_a_command_writes_fits_a_screen(
    tonnage, here, path
) -> None:
    """With all fleets that were not chosen, and with the line of the file."""
    (here / path.name).write_text(path.read_text())
    shown = tonnage("plan", path.name, "-o", "a.plan.json")[1]
    lines = shown.splitlines()
    assert len(lines) <= PAGE_LINES, shown
    assert max(map(len, lines)) <= LINE_WIDTH
    again = tonnage("show", "a.plan.json")[1]
    assert len(again.splitlines()) <= PAGE_LINES


def test_of_many_small_lines_the_dearest_are_named() -> None:
    """A hundredth of the total is small; all of them are on the full page."""
    [path] = [one for one in BLUEPRINTS if one.stem == "pretrain-405b"]
    cost = plan_at(path).cost
    small = [
        line for line in cost.lines if present(line.usd) < cost.total / 100
    ]
    assert len(small) > MOST_NAMED_LINES
    [shown] = [
        row[0]
        for block in page_of(path)
        if isinstance(block, PageTable)
        for row in block.rows
        if row[0].endswith(f" and {len(small) - NAMED_LINES} more")
    ]
    ranked = sorted(small, key=lambda line: present(line.usd), reverse=True)
    named = [line.name in shown for line in ranked]
    assert named == [True] * NAMED_LINES + [False] * (len(small) - NAMED_LINES)


def test_an_infeasible_plan_fits_a_screen_too(tonnage, here) -> None:
    (here / "chat.yaml").write_text(
        chat(model="llama-3.3-70b", extra="buy: {budget: 9}")
    )
    shown = tonnage("plan", "chat.yaml")[1]
    assert "INFEASIBLE" in shown
    lines = shown.splitlines()
    assert len(lines) <= PAGE_LINES
    assert max(map(len, lines)) <= LINE_WIDTH


@pytest.mark.parametrize(
    ("chip", "told"),
    [
        ("inferentia2", r"inf2\.48xlarge +tpot_p95: \d+ ms > 40 ms"),
        ("tpu-v5e", r"ct5lp-hightpu-1t +memory: needs \d+ GiB of 16 GiB each"),
    ],
)
def test_an_infeasible_plan_says_what_stops_the_machines_that_are_left(
    tonnage, here, chip: str, told: str
) -> None:
    """The rules on offers let them through, so the funnel does not say it."""
    spec = (ROOT / "blueprints" / "chat-70b.yaml").read_text()
    head, _, _ = spec.partition("\nwhere:")
    (here / "chat.yaml").write_text(
        f"{head}\nwhere: {{accelerators: {{allow: [{chip}]}}}}\n"
    )
    shown = tonnage("plan", "chat.yaml")[1]
    assert "INFEASIBLE" in shown
    assert re.search(told, shown)


@EVERY
def test_a_narrow_terminal_breaks_no_machine_name(path) -> None:
    wide = text.render(page_of(path))
    narrow = text.render(page_of(path), width=NARROW)
    assert max(map(len, narrow.splitlines())) <= NARROW
    names = machine_names(plan_at(path))
    assert names
    for name in names:
        assert narrow.count(name) == wide.count(name), name


@EVERY
def test_text_and_markdown_show_the_same_cells(path) -> None:
    page = page_of(path)
    shown = markdown.render(page)
    for block in page:
        cells = (
            [cell for row in block.rows for cell in row]
            if isinstance(block, PageTable)
            else [block.text]
        )
        for cell in cells:
            assert markdown.escape(cell) in shown


@EVERY
def test_a_full_page_adds_and_keeps_the_decision(path) -> None:
    plan = plan_at(path)
    short = text.render(page_of(path)).splitlines()
    full = text.render(page_of(path, full=True))
    assert full.splitlines()[:6] == short[:6]
    assert len(full.splitlines()) > len(short)
    for resource in plan.graph.resources:
        assert resource.type in full
    for line in plan.cost.lines:
        assert line.name.split()[0] in full
    for name in machine_names(plan):
        assert name in full


@EVERY
def test_cost_of_tokens_times_tokens_is_the_total(path) -> None:
    plan = plan_at(path)
    tokens = plan.cost.tokens
    if plan.workload.kind == "workspace":
        assert tokens is None
        return
    tokens = present(tokens)
    counted = (
        tokens.prompt_tokens + tokens.output_tokens + tokens.trained_tokens
    )
    total = float(tokens.usd_per_million) * counted / 1e6
    # The price has four decimals.
    assert total == pytest.approx(
        float(plan.cost.total), abs=0.00005 * counted / 1e6 + 0.01, rel=1e-5
    )
    if tokens.usd_per_million_output is not None:
        assert tokens.usd_per_million_output >= tokens.usd_per_million
    if plan.workload.kind == "training":
        assert tokens.usd_per_thousand_requests is None
        return
    requests_usd = (
        float(present(tokens.usd_per_thousand_requests))
        * tokens.requests
        / 1000
    )
    assert requests_usd == pytest.approx(
        float(plan.cost.total),
        abs=0.00005 * tokens.requests / 1000 + 0.01,
        rel=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "output_tokens", "all_tokens"),
    [
        # Written by hand from the specs: requests * mean lengths, and the tokens of the data.
        ("pretrain-70b", 0, 1.4e12),
        ("classify-backlog", 20_000_000 * 12, 20_000_000 * (400 + 12)),
    ],
)
def test_tokens_are_those_of_the_spec(name, output_tokens, all_tokens) -> None:
    path = next(p for p in BLUEPRINTS if p.stem == name)
    tokens = present(plan_at(path).cost.tokens)
    assert tokens.output_tokens == pytest.approx(output_tokens, rel=1e-5)
    assert (
        tokens.prompt_tokens + tokens.output_tokens + tokens.trained_tokens
    ) == pytest.approx(all_tokens, rel=1e-5)


def test_a_flat_rate_writes_its_tokens_all_month() -> None:
    """2 requests/s of 900 and 200 tokens, for 730 hours."""
    tokens = present(plan_of(load_catalog(), chat()).cost.tokens)
    requests = 2 * 730 * 3600
    assert tokens.output_tokens == pytest.approx(200 * requests, rel=1e-5)
    assert tokens.prompt_tokens == pytest.approx(900 * requests, rel=1e-5)


def test_a_life_writes_the_tokens_of_its_hours() -> None:
    spec = chat(extra="shutdown: {ttl: 73h}")
    tokens = present(plan_of(load_catalog(), spec).cost.tokens)
    assert tokens.output_tokens == pytest.approx(200 * 2 * 73 * 3600, rel=1e-5)


@EVERY
def test_headroom_is_what_a_limit_leaves(path) -> None:
    plan = plan_at(path)
    limits = (plan.spec.normalized.get("sla") or {}).get("limits", [])
    for limit in limits:
        key = f"{limit['metric']}_p{limit['percentile']}_ms"
        assert plan.solution.limits[key].limit == pytest.approx(
            float(Decimal(limit["seconds"])) * 1000
        )
    for key, limit in plan.solution.limits.items():
        predicted = plan.solution.predicted[key].value
        left = limit.headroom * limit.limit
        assert left + predicted == pytest.approx(limit.limit, rel=1e-4)


@EVERY
def test_no_time_is_below_zero(path) -> None:
    verified = plan_at(path).solution.verified
    if verified is not None:
        for band in verified.found.values():
            assert 0 <= band.low <= band.value <= band.high


def test_a_rate_that_arrives_has_no_band_that_reads_as_failing() -> None:
    shown = text.render(plan_page(plan_of(load_catalog(), chat()), today=TODAY))
    assert "serves all that arrives: 2.0 requests/s, 400 output" in shown
    assert "requests/s  " not in shown


@given(DATES, DATES)
def test_ages_are_those_of_the_calendar(priced, today) -> None:
    days = (today - priced).days
    assert age_days(priced.isoformat(), today.isoformat()) == max(0, days)


@given(DATES)
def test_a_date_without_its_day_is_at_most_so_old(today) -> None:
    first_of_month = today.replace(day=1)
    last_month = first_of_month - timedelta(days=1)
    as_of = last_month.isoformat()[: len("2025-07")]
    assert (
        age_days(as_of, today.isoformat())
        == (today - last_month.replace(day=1)).days
    )
    year = str(today.year - 1)
    in_year = (today - date(today.year - 1, 1, 1)).days
    assert age_days(year, today.isoformat()) == in_year
    this_year = (today - date(today.year, 1, 1)).days
    assert age_days(str(today.year), today.isoformat()) == this_year
    assert age_days("unknown", today.isoformat()) is None


@pytest.mark.parametrize(
    ("as_of", "told"),
    [
        ("2026", "up to 331 days"),
        ("2026-11", "up to 27 days"),
        ("2026-11-18", "10 days"),
        ("unknown", "unknown"),
    ],
)
def test_the_age_of_a_date_without_its_day_is_a_bound(
    catalog, as_of: str, told: str
) -> None:
    """A price of this year was 0 days old, since its last day is still to come."""
    plan = plan_of(catalog, chat())
    dated = replace(
        plan,
        cost=replace(
            plan.cost,
            lines=(
                replace(plan.cost.lines[0], price_as_of=as_of),
                *plan.cost.lines[1:],
            ),
        ),
    )
    shown = text.render(plan_page(dated, today="2026-11-28"))
    name = plan.cost.lines[0].name
    [row] = [line for line in shown.splitlines() if f"  {name} " in line]
    assert row.endswith(f"  {told}")


def test_the_age_of_prices_counts_from_the_day_of_the_reader(catalog) -> None:
    plan = plan_of(catalog, chat())
    line = plan.cost.lines[0]
    priced = date.fromisoformat(present(line.price_as_of))
    later = priced + timedelta(days=31)
    shown = text.render(plan_page(plan, today=later.isoformat()))
    assert "31 days" in shown


def test_the_page_is_the_fleet_and_then_what_its_wishes_cost() -> None:
    """A terminal prints both one after the other, and sees the page that others see."""
    plan = plan_of(
        load_catalog(), chat(sla="ttft_p95: 2s, availability: 99.9%")
    )
    first_page = fleet_page(plan, today=TODAY)
    first = text.render(first_page)
    last = text.render(reasons_page(plan, first_page, saved_path="a.plan.json"))
    whole = text.render(plan_page(plan, today=TODAY, saved_path="a.plan.json"))
    assert first + last == whole
    assert "cheaper" not in first


def test_the_power_of_a_slice_is_told_in_watts(tonnage, here: Path) -> None:
    (here / "spec.yaml").write_text(
        chat(model="llama-3.2-1b", traffic="requests_per_day: 200")
    )
    _, page, _ = tonnage("plan", "spec.yaml")
    assert re.search(r"energy: [1-9]\d* W at work", page)
