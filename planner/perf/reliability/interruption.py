"""Failures, spot reclaims and checkpoints of a run, and its goodput.

A run is a chain of segments: an interval of work, then a checkpoint. With failures at rate
1 / mtbf and a restart after each, the mean time of a segment is

(exp(segment / mtbf) - 1) * (mtbf + restart)

of which the interval is progress (Daly, 2006). A stop during a restart begins it again, which the
restart has in its mean. Times are in seconds.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.facts import table
from planner.numeric import maximize, normal_quantile
from planner.perf.common.constant import constant
from planner.perf.training.model_states import adapter_params, optimizers
from planner.units import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
)

if TYPE_CHECKING:
    from planner.perf.training.job import Job

# Each step shrinks the bracket by 0.618: 60 reach 3e-13 of it.
SECTION_STEPS: Final = 60
# Mean times between stops that practically never pass without one.
ENDLESS: Final = 50
MAX_INTERVAL_S: Final = 30 * SECONDS_PER_DAY
# Columns of reclaims.csv with a rate of reclaims; never is no reclaim.
ReclaimLevel: TypeAlias = Literal["never", "monthly", "low", "high"]


class Hazard(Struct, frozen=True, kw_only=True):
    """Rates and durations of what stops a run on a cluster.

    failures_per_s  failures of all machines, 1/s
    reclaims_per_s  reclaims of spot machines, 1/s
    restart_s       time from a failure until work continues, s
    wait_s          mean time until a reclaimed cluster is complete again, s
    notice_s        warning before a reclaim, s
    partial_speed   share of the speed with the machines that remain after a reclaim
    """

    failures_per_s: float
    reclaims_per_s: float
    restart_s: float
    wait_s: float
    notice_s: float
    partial_speed: float = 0.0

    @property
    def mtbf_s(self) -> float:
        """Mean time between stops of any kind, in seconds."""
        stops_per_s = self.failures_per_s + self.reclaims_per_s
        return 1 / stops_per_s if stops_per_s else math.inf

    @property
    def mean_pause_s(self) -> float:
        """Mean time from a stop until work continues, in seconds.

        A failure pauses for `restart_s`, a reclaim for `wait_s` + `restart_s`.
        """
        stops_per_s = self.failures_per_s + self.reclaims_per_s
        # A reclaimed cluster first waits for machines, then restarts.
        reclaim_pauses = self.reclaims_per_s * (self.wait_s + self.restart_s)
        return (
            (self.failures_per_s * self.restart_s + reclaim_pauses)
            / stops_per_s
            if stops_per_s
            else self.restart_s
        )


@cache
def _reclaim_table() -> dict[tuple[str, str], table.TableRow]:
    number_type = table.real_between(0, 10_000)
    column_types: table.Columns = {
        "provider": table.nonempty_text,
        "family": table.any_text,
        "monthly": number_type,
        "low": number_type,
        "high": number_type,
        "notice_s": number_type,
        "wait_h": number_type,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.perf", "reclaims.csv", column_types),
        "provider",
        "family",
    )
    return {
        (provider, family): reclaim_row
        for (provider, family), reclaim_row in keyed_rows.items()
    }


def reclaim_row(provider: str, family: str) -> table.TableRow:
    """Return how often machines on spot are taken back; that of a cloud for other families."""
    return (
        _reclaim_table().get((provider, family))
        or _reclaim_table()[provider, ""]
    )


def reclaim_rate(month_share: float) -> float:
    """Return the reclaims of a machine, 1/s, by the share that is taken back in a month.

    -ln(1 - share) / seconds of a month; a share of one is taken as 0.99
    """
    return -math.log(1 - min(0.99, month_share)) / SECONDS_PER_MONTH


def no_spare_share(spare_count: int, offered_load: float) -> float:
    """Return the share of failures without a free spare machine.

    Erlang's loss formula: B(0) = 1, B(k) = a * B(k - 1) / (k + a * B(k - 1))

    a  `offered_load`: failures/s * seconds until a failed machine is replaced
    k  spare machines
    """
    blocked_share = 1.0
    # Recursion over the spares: no factorials, so no overflow.
    for spare_index in range(1, spare_count + 1):
        blocked_share = (
            offered_load
            * blocked_share
            / (spare_index + offered_load * blocked_share)
        )
    return blocked_share


def run_hazard(
    machine_count: int,
    provider: str,
    family: str,
    reclaim_level: ReclaimLevel = "never",
    spare_count: int = 0,
    *,
    load_s: float = 0.0,
) -> Hazard:
    """Return the hazard of a run on `machine_count` machines of a cloud.

    failures  machines * `node_failures`; machines fail independently
    restart   mean time of r = `train_restart` + `boot` * share of failures without a spare + load,
              which each stop in it begins again: (exp(stops * r) - 1) / stops
    load      `load_s`, time to load a checkpoint, s
    reclaims  r * (1 + (1 - `reclaim_together`) * (machines - 1)), r the rate of one machine

    Most reclaims take all spot machines of one type and zone within minutes, so the rate of a
    cluster is little above that of a machine. `reclaim_level` is a column of
    planner/perf/data/reclaims.csv.
    """
    # Failures a machine and day (arXiv:2410.21680, RSC-1).
    failures_per_s = machine_count * constant("node_failures") / SECONDS_PER_DAY
    restart_s = constant("train_restart") + load_s
    restart_s += constant("boot") * no_spare_share(
        spare_count, failures_per_s * constant("boot")
    )
    if reclaim_level == "never":
        return Hazard(
            failures_per_s=failures_per_s,
            reclaims_per_s=0.0,
            restart_s=_repeated_s(restart_s, failures_per_s),
            wait_s=0.0,
            notice_s=0.0,
        )
    row = reclaim_row(provider, family)
    # Share of reclaims that come alone (arXiv:2604.16457).
    separate_share = 1 - constant("reclaim_together")
    reclaims_per_s = reclaim_rate(row[reclaim_level]) * (
        1 + separate_share * (machine_count - 1)
    )
    return Hazard(
        failures_per_s=failures_per_s,
        reclaims_per_s=reclaims_per_s,
        restart_s=_repeated_s(restart_s, failures_per_s + reclaims_per_s),
        wait_s=row["wait_h"] * SECONDS_PER_HOUR,
        notice_s=row["notice_s"],
    )


def _repeated_s(pause_s: float, stops_per_s: float) -> float:
    """Return the mean time of a pause that each stop in it begins again, seconds.

    (exp(stops * pause) - 1) / stops, the pause itself where nothing stops

    Source: Daly (2006), whose restarts fail like everything else.
    """
    if not stops_per_s:
        return pause_s
    # A pause of `ENDLESS` mtbf practically never ends, and a longer one is no worse.
    return math.expm1(min(ENDLESS, stops_per_s * pause_s)) / stops_per_s


def checkpoint_bytes(job: Job) -> float:
    """Return the bytes of a full checkpoint.

    Weights, master copies and moments of all trained parameters; adapters alone with LoRA.
    """
    optimizer = optimizers()[job.optimizer]
    if job.frozen_bytes:
        layout = job.layout
        return (
            adapter_params(job)
            * layout.tp
            * layout.pp
            * (optimizer.weight_bytes + optimizer.state_bytes)
        )
    return job.llm.params * (optimizer.weight_bytes + optimizer.state_bytes)


def progress_share(interval_s: float, save_s: float, hazard: Hazard) -> float:
    """Return the share of the time that is progress.

    (interval + partial) / ((exp(x) - 1) * (mtbf + pause)), at most 1

    x        (interval + save) / mtbf
    partial  work of the remaining machines while spot machines are absent

    Source: Daly (2006). exp(x) - 1 is the mean number of stops of a segment.
    """
    if hazard.mtbf_s == math.inf:
        return interval_s / (interval_s + save_s)
    segment_ratio = (interval_s + save_s) / hazard.mtbf_s
    # A segment of `ENDLESS` mtbf practically never ends.
    if segment_ratio > ENDLESS:
        return 0.0
    expected_stops = math.expm1(segment_ratio)
    # Stops that are reclaims, each with `wait_s` at partial speed.
    partial_work_s = (
        expected_stops
        * hazard.reclaims_per_s
        * hazard.mtbf_s
        * hazard.wait_s
        * hazard.partial_speed
    )
    return min(
        1.0,
        (interval_s + partial_work_s)
        / (expected_stops * (hazard.mtbf_s + hazard.mean_pause_s)),
    )


def finish_quantile(
    work_s: float,
    interval_s: float,
    save_s: float,
    hazard: Hazard,
    run_share: float,
) -> float:
    """Return the time within which a share of the runs ends, in seconds.

    mean + z * sqrt(stops * E[L^2])

    The time without a stop, where that share of the runs has none: exp(-stops/s * time) >= share.

    mean   work / `progress_share`
    z      normal quantile of `run_share`
    stops  mean number of stops; their number is Poisson
    L      loss of a stop: a uniform part of a segment plus a pause
    """
    share = progress_share(interval_s, save_s, hazard)
    mean_s = work_s / share if share else math.inf
    stops_per_s = hazard.failures_per_s + hazard.reclaims_per_s
    if not stops_per_s or mean_s == math.inf:
        return mean_s
    unbroken_s = work_s + save_s * (work_s // interval_s)
    if math.exp(-stops_per_s * unbroken_s) >= run_share:
        return unbroken_s
    half_segment_s = (interval_s + save_s) / 2
    mean_absence_s = hazard.reclaims_per_s / stops_per_s * hazard.wait_s
    mean_square_s2 = (
        # Mean square of a uniform loss from 0 to a whole segment.
        4 * half_segment_s**2 / 3
        # Cross term of lost work and pause, which are independent.
        + 2 * half_segment_s * hazard.mean_pause_s
        + hazard.restart_s**2
    )
    # Exponential absence: mean square 2 wait^2, and its cross term.
    mean_square_s2 += 2 * mean_absence_s * (hazard.wait_s + hazard.restart_s)
    return mean_s + normal_quantile(run_share) * math.sqrt(
        mean_s * stops_per_s * mean_square_s2
    )


def young_interval(save_s: float, mtbf_s: float) -> float:
    """Return Young's checkpoint interval in seconds.

    sqrt(2 * save * mtbf)
    """
    return math.sqrt(2 * save_s * mtbf_s)


@lru_cache(maxsize=4096)
def best_interval(save_s: float, hazard: Hazard) -> float:
    """Return the checkpoint interval with the largest share of progress, in seconds.

    Golden-section search; the constant `train_interval` when nothing stops the run.
    """
    # The bracket is wide around Young's interval.
    shortest_s = save_s / 10 + 1.0
    longest_s = min(
        MAX_INTERVAL_S,
        max(10 * young_interval(save_s, hazard.mtbf_s), 60.0),
    )
    if hazard.mtbf_s == math.inf:
        return constant("train_interval")
    # The share of progress has one maximum.
    return maximize(
        lambda interval_s: progress_share(interval_s, save_s, hazard),
        shortest_s,
        longest_s,
        SECTION_STEPS,
    )
