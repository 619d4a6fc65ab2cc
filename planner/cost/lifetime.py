"""The life of machines, from the launch to the release, and the hours that are billed.

A machine is billed from its launch until it is given back, whatever it does meanwhile: it boots,
works, and then waits for what releases it. That is its job, which says that it is done; the idle
limit; the end of its daily window; or the time to live of the stack. The agent of a machine reads
the same table of times, data/lifetimes.csv.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from planner.cost.weekly_load import standing_minutes
from planner.facts import table
from planner.units import (
    DAYS_PER_MONTH,
    HOURS_PER_MONTH,
    MINUTES_PER_DAY,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

if TYPE_CHECKING:
    from planner.spec.model import ShutdownRule

# A run is one job, a life the time to live of what stands; a month is for what does not end.
Period: TypeAlias = Literal["month", "run", "life"]
# What releases a machine: its job, the idle limit, the end of its window, the time to live.
Release: TypeAlias = Literal["done", "idle", "window", "ttl"]


class Lifetime(Struct, frozen=True, kw_only=True):
    """What one machine of a job is billed for, seconds.

    `boot_s`  from the launch until it works
    `work_s`  work; less than the job needs when `release` cuts it off
    `tail_s`  from the end of the work until the release
    `release`  what releases the machine
    `is_finished`  whether the work ends before the release
    """

    boot_s: float
    work_s: float
    tail_s: float
    release: Release
    is_finished: bool

    @property
    def billed_s(self) -> float:
        """Seconds that are billed: boot + work + tail."""
        return self.boot_s + self.work_s + self.tail_s

    @property
    def billed_hours(self) -> Decimal:
        """Hours that are billed: (boot + work + tail) / 3600."""
        return Decimal(self.billed_s / SECONDS_PER_HOUR)


@cache
def release_time(rule: str) -> Decimal:
    """Return a time of data/lifetimes.csv in seconds, a rate in bytes/s, or a factor."""
    columns = {
        "rule": table.nonempty_text,
        "value": table.finite_decimal,
        "unit": table.one_of("s", "bytes/s", "factor"),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    times = table.rows_by_key(
        table.load_rows("planner.cost", "lifetimes.csv", columns), "rule"
    )
    seconds: Decimal = times[(rule,)]["value"]
    return seconds


def job_lifetime(
    boot_s: float,
    work_s: float,
    shutdown: ShutdownRule,
    *,
    says_done: bool,
    window_s: float | None = None,
) -> Lifetime | None:
    """Return the life of each machine of a job, None when nothing ever ends it.

    end of work = boot + work
    done    = end of work + release_s, when the job says that it is done
    idle    = max(end of work, boot_grace_s) + idle limit
    window  = window_s, of a job that starts every day
    ttl     = time to live
    The earliest of those that exist releases the machine. Seconds from the launch, which follows
    apply at once. Sources: data/lifetimes.csv.
    """
    work_end_s = boot_s + work_s
    release_s: dict[Release, float] = {}
    if says_done:
        release_s["done"] = work_end_s + float(release_time("release_s"))
    if shutdown.idle is not None:
        idle_s = float(shutdown.idle)
        # A machine that has just booted does not count as idle.
        grace_s = float(release_time("boot_grace_s"))
        release_s["idle"] = max(work_end_s, grace_s) + idle_s
    if window_s is not None:
        release_s["window"] = window_s
    if shutdown.ttl is not None:
        release_s["ttl"] = float(shutdown.ttl)
    if not release_s:
        return None
    release = min(release_s, key=release_s.__getitem__)
    end_s = release_s[release]
    billed_boot_s = min(boot_s, end_s)
    billed_work_s = min(work_s, end_s - billed_boot_s)
    return Lifetime(
        boot_s=billed_boot_s,
        work_s=billed_work_s,
        tail_s=max(0.0, end_s - work_end_s),
        release=release,
        is_finished=end_s >= work_end_s,
    )


def daily_hours(life: Lifetime, shutdown: ShutdownRule) -> Decimal:
    """Return the hours that are billed of a machine whose job starts every day.

    without ttl: billed hours of a day * 365 / 12, those of a month
    with ttl:    billed hours * whole days + min(billed hours, hours of the day that is cut off)
    The first day starts at apply.
    """
    if shutdown.ttl is None:
        return life.billed_hours * DAYS_PER_MONTH
    whole_days, rest_s = divmod(shutdown.ttl, Decimal(SECONDS_PER_DAY))
    return life.billed_hours * whole_days + min(
        life.billed_hours, rest_s / SECONDS_PER_HOUR
    )


def standing_lifetime(shutdown: ShutdownRule) -> Lifetime | None:
    """Return the life of machines without a job that ends, None without a time to live."""
    if shutdown.ttl is None:
        return None
    return Lifetime(
        boot_s=0.0,
        work_s=float(shutdown.ttl),
        tail_s=0.0,
        release="ttl",
        is_finished=True,
    )


def life_hours(life: Lifetime | None) -> Decimal:
    """Return the hours that a bill is for: those of a life, else a month of 730 hours."""
    return HOURS_PER_MONTH if life is None else life.billed_hours


def committed_hours(life: Lifetime | None) -> Decimal:
    """Return the hours that a commitment bills: every hour, and a month at least."""
    return max(HOURS_PER_MONTH, life_hours(life))


def bill_period(shutdown: ShutdownRule, *, is_one_job: bool) -> Period:
    """Return what a bill is for: a run of one job, a life with a time to live, or a month."""
    if is_one_job:
        return "run"
    return "month" if shutdown.ttl is None else "life"


def daily_window_s(deadline_s: float) -> float:
    """Return the seconds from midnight in which a daily job has its machines.

    whole minutes of the deadline, and a minute less than a day at most
    """
    whole_minutes = deadline_s // SECONDS_PER_MINUTE
    return SECONDS_PER_MINUTE * min(MINUTES_PER_DAY - 1, whole_minutes)


@cache
def standing_hours(
    hourly_nodes: tuple[int, ...],
    shutdown: ShutdownRule,
    lead_minutes: int = 0,
) -> Decimal:
    """Return the node-hours of machines that run by the hours of the week.

    without ttl: mean over the week * 730
    with ttl:    the most node-hours of any stretch of the ttl, wherever in the week it starts
    `hourly_nodes` are the nodes of the 168 hours of a week, which are there by a lead before
    them. Outside the schedule nothing runs.
    Billed <= this: an idle limit only shortens the hours.
    """
    minute_nodes = standing_minutes(
        hourly_nodes, shutdown.schedule, lead_minutes
    )
    week_minutes = len(minute_nodes)
    week_total = sum(minute_nodes)
    if shutdown.ttl is None:
        return week_total * HOURS_PER_MONTH / week_minutes
    ttl_minutes, rest_s = divmod(int(shutdown.ttl), SECONDS_PER_MINUTE)
    whole_weeks, stretch = divmod(ttl_minutes, week_minutes)
    # Sums from the start of the week, over two weeks: a stretch may pass Sunday.
    sums = [0, *accumulate(minute_nodes + minute_nodes)]
    most_node_s = max(
        SECONDS_PER_MINUTE * (sums[start + stretch] - sums[start])
        # The part of a minute that is left of the ttl.
        + minute_nodes[(start + stretch) % week_minutes] * rest_s
        for start in range(week_minutes)
    )
    all_weeks_s = whole_weeks * week_total * SECONDS_PER_MINUTE
    return Decimal(all_weeks_s + most_node_s) / SECONDS_PER_HOUR
