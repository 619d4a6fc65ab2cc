"""Lives of machines against a replay, event by event, with the agent that runs on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.lifetime import (
    daily_hours,
    job_lifetime,
    life_hours,
    release_time,
    standing_hours,
    standing_lifetime,
)
from planner.cost.weekly_load import SpareGroups, weekly_load
from planner.sentence import describe
from planner.solve.serving.cost_bound import (
    layout_bounds_usd,
    offer_bound_usd,
)
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import ReplicaGroup, group_lower_bound
from planner.spec.model import Batch, Inference, ShutdownRule
from stacks.runtime.vm.node.agent import Limits, release_of
from stacks.runtime.vm.node.work import WorkState
from tests.conftest import chat, find, present, solve, spec_of

HOUR = 3600
DAY = 24 * HOUR


def rule(
    idle: int | None = None,
    ttl: int | None = None,
    schedule: str | None = None,
) -> ShutdownRule:
    return ShutdownRule(
        idle=None if idle is None else Decimal(idle),
        ttl=None if ttl is None else Decimal(ttl),
        schedule=schedule,
    )


def replayed_s(
    boot_s: float,
    is_busy: Callable[[float], bool],
    shutdown: ShutdownRule,
    cloud_end_s: float = math.inf,
) -> float:
    """Seconds until the agent, or the cloud from outside, gives a machine back."""
    limits = Limits(
        start=0.0,
        wait=0.0,
        grace=float(release_time("boot_grace_s")),
        idle=float(shutdown.idle or 0),
        ttl=float(shutdown.ttl or 0),
    )
    busy_s = now = 0.0
    while now < cloud_end_s:
        # Loading is no idleness.
        if now < boot_s or is_busy(now):
            busy_s = now
        phase = "starting" if now < boot_s else "working"
        state = WorkState(phase, "", "", 0.0, now, busy_s)
        if release_of(now, now, state, limits):
            return now
        now += float(release_time("poll_s"))
    return cloud_end_s


@settings(max_examples=60, deadline=None)
@given(
    boot_s=st.integers(0, 2 * HOUR),
    work_s=st.integers(1, 3 * DAY),
    idle_s=st.none() | st.integers(5 * 60, 6 * HOUR),
    ttl_s=st.none() | st.integers(10 * 60, 4 * DAY),
    window_s=st.none() | st.integers(10 * 60, DAY),
)
def test_a_job_is_billed_what_a_replay_of_its_machines_counts(
    boot_s: int,
    work_s: int,
    idle_s: int | None,
    ttl_s: int | None,
    window_s: int | None,
) -> None:
    shutdown = rule(idle_s, ttl_s)
    life = job_lifetime(
        boot_s, work_s, shutdown, says_done=False, window_s=window_s
    )
    if idle_s is ttl_s is window_s is None:
        assert life is None
        return
    counted_s = replayed_s(
        boot_s,
        lambda now: boot_s <= now < boot_s + work_s,
        shutdown,
        # The cloud ends the window and the time to live from outside.
        min(window_s or math.inf, ttl_s or math.inf),
    )
    assert life is not None
    assert life.billed_s == pytest.approx(counted_s, rel=0.01)
    assert life.is_finished == (life.work_s == work_s)


def test_a_batch_without_an_idle_limit_is_billed_until_its_time_to_live() -> (
    None
):
    work_s = 18.5 * HOUR - 420
    life = job_lifetime(420, work_s, rule(ttl=96 * HOUR), says_done=False)
    assert life is not None
    assert life.billed_hours == 96
    assert life.release == "ttl"
    both = rule(HOUR, 96 * HOUR)
    idle_too = job_lifetime(420, work_s, both, says_done=False)
    assert idle_too is not None
    assert idle_too.billed_hours == Decimal("19.5")
    told = job_lifetime(420, work_s, both, says_done=True)
    assert told is not None
    assert told.billed_s == 18.5 * HOUR + 60


def test_a_time_to_live_cuts_work_off_and_says_so() -> None:
    life = job_lifetime(420, 10 * HOUR, rule(ttl=2 * HOUR), says_done=True)
    assert life is not None
    assert not life.is_finished
    assert (life.boot_s, life.work_s, life.tail_s) == (420, 2 * HOUR - 420, 0)


@pytest.mark.parametrize("ttl_s", [HOUR, DAY, 3 * DAY, 3 * DAY + HOUR, 9 * DAY])
@pytest.mark.parametrize("idle_s", [None, 600])
def test_a_daily_job_is_billed_for_the_windows_of_its_life(
    ttl_s: int, idle_s: int | None
) -> None:
    shutdown = rule(idle_s, ttl_s)
    life = job_lifetime(
        420, 2 * HOUR, rule(idle_s), says_done=False, window_s=8 * HOUR
    )
    assert life is not None
    counted_s = 0.0
    for start_s in range(0, ttl_s, DAY):
        counted_s += replayed_s(
            420,
            lambda now: 420 <= now < 420 + 2 * HOUR,
            rule(idle_s),
            min(8 * HOUR, ttl_s - start_s),
        )
    hours = daily_hours(life, shutdown)
    assert float(hours) * HOUR == pytest.approx(counted_s, rel=0.01)


# What a schedule says, once more by hand: day of the week and minute of the day.
SCHEDULES: list[tuple[str | None, Callable[[int, int], bool]]] = [
    (None, lambda *_: True),
    (
        "weekdays 07:30-20:30",
        lambda day, minute: day < 5 and 450 <= minute < 1230,
    ),
    (
        "daily 22:00-06:00 Europe/Berlin",
        lambda _, minute: minute >= 1320 or minute < 360,
    ),
]


@pytest.mark.parametrize(("schedule", "is_open"), SCHEDULES)
@pytest.mark.parametrize("ttl_s", [605, 13 * HOUR, 3 * DAY, 8 * DAY])
@pytest.mark.parametrize("profile", ["flat", "rising"])
def test_what_stands_is_billed_the_dearest_stretch_of_the_week(
    schedule: str | None,
    is_open: Callable[[int, int], bool],
    ttl_s: int,
    profile: str,
) -> None:
    weights = "flat" if profile == "flat" else tuple(map(Decimal, range(1, 25)))
    hourly = weekly_load(weights, schedule).hourly_nodes(5, 2, SpareGroups(1))
    replays = []
    # Stretches begin on every half hour of the week, which is where anything changes.
    for start in range(0, 7 * 1440, 30):
        node_s, left_s, minute = 0, ttl_s, start
        while left_s > 0:
            day, minute_of_day = divmod(minute % 10_080, 1440)
            if is_open(day, minute_of_day):
                node_s += hourly[minute % 10_080 // 60] * min(60, left_s)
            left_s -= 60
            minute += 1
        replays.append(node_s)
    billed = standing_hours(hourly, rule(ttl=ttl_s, schedule=schedule))
    assert float(billed) * HOUR == pytest.approx(max(replays), rel=0.01)


def test_a_life_is_its_time_to_live_or_a_month() -> None:
    assert life_hours(standing_lifetime(rule())) == 730
    assert life_hours(standing_lifetime(rule(ttl=3 * DAY))) == 72
    assert standing_hours((1,) * 168, rule()) == 730
    assert standing_hours((2,) * 168, rule(ttl=3 * DAY)) == 144


BATCH = """apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: llama-3.1-8b}
traffic: {total_requests: 2M, input_tokens: 1000, output_tokens: 200}
deadline: 20h
"""
WORKSPACE = """apiVersion: tonnage/v1
kind: Workspace
name: w
accelerator: {memory: 20GiB}
users: 2
"""


@pytest.mark.parametrize("traffic", ["total_requests", "requests_per_day"])
@pytest.mark.parametrize(
    "shutdown", ["ttl: 4d", "idle: 30m", "idle: 1h, ttl: 4d", "ttl: 30h"]
)
def test_a_planned_batch_is_billed_what_its_machines_live(
    catalog, traffic: str, shutdown: str
) -> None:
    text = BATCH.replace("total_requests: 2M", f"{traffic}: 2M")
    spec_text = f"{text}shutdown: {{{shutdown}}}\n"
    solution = find(catalog, spec_text)
    rule_of = spec_of(spec_text).shutdown
    [pool] = solution.pools
    work_end_s = solution.predictions["duration_days"].value * DAY
    is_daily = traffic == "requests_per_day"
    # Machines of a day's run stay for their window: never past the deadline, nor a minute longer
    # than the run takes when it is as slow as planned.
    window_s = pool.run_window_s or 20 * HOUR
    assert window_s <= 20 * HOUR
    assert work_end_s <= window_s
    ttl_s = float(rule_of.ttl or (365 * DAY / 12 if is_daily else math.inf))
    counted_s = 0.0
    start_s = 0.0
    while start_s < ttl_s:
        counted_s += replayed_s(
            420,
            lambda now: 420 <= now < work_end_s,
            rule(None if rule_of.idle is None else int(rule_of.idle)),
            # One run is over when each line of its input has an answer.
            min(window_s if is_daily else work_end_s, ttl_s - start_s),
        )
        start_s += DAY if is_daily else math.inf
    bill = present(solution.bill)
    machines = sum(line.quantity for line in bill.lines if line.pool)
    # A month has 30.4 days: the last day of the replay is cut off where the bill takes its part.
    tolerance = 0.02 if is_daily and rule_of.ttl is None else 0.01
    assert float(machines) * HOUR == pytest.approx(
        counted_s * pool.nodes, rel=tolerance
    )
    has_end = rule_of.ttl is not None
    assert bill.period == (
        "run" if not is_daily else "life" if has_end else "month"
    )


def test_a_workspace_of_three_days_costs_three_days(catalog) -> None:
    for_good = present(find(catalog, WORKSPACE).bill)
    solution = find(catalog, WORKSPACE + "shutdown: {ttl: 3d}\n")
    bill = present(solution.bill)
    assert (for_good.period, bill.period) == ("month", "life")
    assert sum(line.quantity for line in bill.lines if line.pool) == 2 * 72
    # Every line of it, not the machines alone, is that of 72 of 730 hours.
    assert float(bill.total) == pytest.approx(
        float(for_good.total) * 72 / 730, rel=0.01
    )


def test_a_service_with_an_end_costs_its_life(
    catalog,
) -> None:
    by_month = present(find(catalog, chat()).bill)
    solution = solve(catalog, chat() + "shutdown: {ttl: 14d}\n")
    bill = present(solution.bill)
    assert bill.period == "life"
    [pool] = solution.pools
    machines = sum(line.quantity for line in bill.lines if line.pool)
    assert machines == pytest.approx(
        standing_hours(
            solution.week.hourly_nodes(
                pool.nodes // pool.nodes_per_group - pool.spares.count,
                pool.nodes_per_group,
                pool.spares,
            ),
            rule(ttl=14 * DAY),
        )
    )
    # Two whole weeks are what two weeks of the month are.
    assert float(bill.total) == pytest.approx(
        float(by_month.total) * 14 * 24 / 730, rel=0.05
    )


def test_a_budget_of_a_month_is_held_against_the_month_of_a_life(
    catalog,
) -> None:
    text = WORKSPACE + "shutdown: {ttl: 61d}\n"
    total = present(find(catalog, text).bill).total
    monthly = total * 730 / (61 * 24)
    enough = f"buy: {{budget: {math.ceil(monthly)}/month}}\n"
    assert find(catalog, text + enough).status == "optimal"
    short = f"buy: {{budget: {math.floor(monthly) - 1}/month}}\n"
    refused = solve(catalog, text + short)
    assert refused.status == "infeasible"
    [nearest] = refused.bindings
    assert nearest.usd == total
    assert describe(nearest.relax_to) == f"{math.ceil(monthly)}/month"


ENDING = [
    BATCH + "shutdown: {ttl: 4d}\n",
    BATCH.replace("total_requests", "requests_per_day")
    + "shutdown: {idle: 30m, ttl: 60h}\n",
    chat() + "shutdown: {ttl: 5h}\n",
    chat() + 'shutdown: {ttl: 9d, schedule: "weekdays 07:30-20:00"}\n',
]


@pytest.mark.parametrize("text", ENDING)
def test_no_bill_of_what_ends_is_below_the_bounds_of_the_search(
    catalog, text: str
) -> None:
    spec = spec_of(text)
    assert isinstance(spec, Batch | Inference)
    needed = serving_requirement(spec, lambda _: b"")
    cheapest = [group[0] for group in catalog.offer_groups[::5]]
    found = ServingSearch(catalog.price_book).solve(
        needed, cheapest, estimate_count=len(cheapest)
    )
    candidates = [found.best, *found.estimated]
    assert len(candidates) > 5
    for candidate in candidates:
        assert candidate is not None
        total = float(candidate.bill.total) + 0.005
        assert offer_bound_usd(needed, candidate.offer) <= total
        sizing = candidate.sizing
        group = ReplicaGroup(sizing.nodes_per_group, sizing.replicas_per_group)
        groups = group_lower_bound(needed, sizing.replica, group)
        [bound] = layout_bounds_usd(
            needed, candidate.offer, [(sizing.replica, group, groups)]
        )
        assert bound <= total
