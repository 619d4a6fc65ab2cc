"""From steps to a run: failures, checkpoints, and the share of the time that is progress.

A run is a chain of segments: work for an interval, then save. With failures of rate 1 / mtbf and a
restart after each, a segment takes (e^(segment / mtbf) - 1) * (mtbf + restart) on average (Daly,
2006), in which the interval is progress. Seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from planner.facts import table
from planner.perf.common.constant import constant
from planner.perf.training.model_states import adapter_params, optimizers

if TYPE_CHECKING:
    from planner.perf.training.job import Job

DAY_S: Final = 86_400.0
MONTH_S: Final = 730 * 3600.0
SECTION_STEPS: Final = 60
MAX_INTERVAL_S: Final = 30 * DAY_S
ReclaimLevel: TypeAlias = Literal[
    "never", "monthly", "low", "high"
]  # of reclaims: a column


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """What stops a run: failures of machines, and machines that are taken back.

    `failures_per_s` and `reclaims_per_s` a second of the whole cluster; `restart_s` seconds after a failure,
    `wait_s` until a reclaimed cluster is whole again, `notice_s` before it is taken; `partial_speed` is
    the share of the speed at which the rest of the machines go on.
    """

    failures_per_s: float
    reclaims_per_s: float
    restart_s: float
    wait_s: float
    notice_s: float
    partial_speed: float = 0.0

    @property
    def mtbf_s(self) -> float:
        """Mean seconds between stops of any kind."""
        stops_per_s = self.failures_per_s + self.reclaims_per_s
        return 1 / stops_per_s if stops_per_s else math.inf

    @property
    def mean_pause_s(self) -> float:
        """Mean seconds from a stop until work goes on."""
        stops_per_s = self.failures_per_s + self.reclaims_per_s
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
    column_types: dict[str, Any] = {
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
    csv_text = (
        files("planner.perf")
        .joinpath("data", "reclaims.csv")
        .read_text(encoding="utf-8")
    )
    keyed_rows = table.rows_by_key(
        table.read_rows(csv_text, "reclaims.csv", column_types),
        "provider",
        "family",
    )
    return {
        (provider, family): reclaim_row
        for (provider, family), reclaim_row in keyed_rows.items()
    }


def no_spare_share(spare_count: int, offered_load: float) -> float:
    """Share of failures that find no spare machine: Erlang's loss formula.

    `offered_load` is failures a second times the seconds until a machine that failed is replaced.
    """
    blocked_share = 1.0
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
) -> Hazard:
    """Return what stops a run on so many machines of a cloud, with published rates of reclaims.

    Machines fail independently; without a spare one has to boot first. Spot machines of one kind
    are taken together: of a reclaim of one, all others follow within minutes in most cases, so
    the cluster's rate is hardly larger.
    """
    failures_per_s = machine_count * constant("node_failures") / DAY_S
    restart_s = constant("train_restart")
    restart_s += constant("boot") * no_spare_share(
        spare_count, failures_per_s * constant("boot")
    )
    if reclaim_level == "never":
        return Hazard(
            failures_per_s=failures_per_s,
            reclaims_per_s=0.0,
            restart_s=restart_s,
            wait_s=0.0,
            notice_s=0.0,
        )
    reclaim_row = (
        _reclaim_table().get((provider, family))
        or _reclaim_table()[provider, ""]
    )
    reclaims_per_s = (
        -math.log(1 - min(0.99, reclaim_row[reclaim_level])) / MONTH_S
    )
    separate_share = 1 - constant("reclaim_together")
    return Hazard(
        failures_per_s=failures_per_s,
        reclaims_per_s=reclaims_per_s
        * (1 + separate_share * (machine_count - 1)),
        restart_s=restart_s,
        wait_s=reclaim_row["wait_h"] * 3600,
        notice_s=reclaim_row["notice_s"],
    )


def checkpoint_bytes(job: Job) -> float:
    """Bytes of a full checkpoint: weights, master copy and states of all that is trained."""
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
    """Share of the time that is progress when a checkpoint is saved after every interval.

    A segment that ends has seen e^(segment / mtbf) - 1 stops; while spot is away, others go on.
    """
    if hazard.mtbf_s == math.inf:
        return interval_s / (interval_s + save_s)
    segment_ratio = (interval_s + save_s) / hazard.mtbf_s
    if segment_ratio > 50:
        return 0.0
    expected_stops = math.expm1(segment_ratio)
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
    """Seconds within which a share of the runs ends: the mean, and a normal quantile of its sum.

    Each of the stops loses a uniform part of a segment and a pause; their number is Poisson, so
    the variance is the mean number of stops times the mean square of a loss.
    """
    mean_s = (
        work_s / progress_share(interval_s, save_s, hazard)
        if progress_share(interval_s, save_s, hazard)
        else math.inf
    )
    stops_per_s = hazard.failures_per_s + hazard.reclaims_per_s
    if not stops_per_s or mean_s == math.inf:
        return mean_s
    half_segment_s = (interval_s + save_s) / 2
    mean_absence_s = hazard.reclaims_per_s / stops_per_s * hazard.wait_s
    mean_square_s2 = (
        4 * half_segment_s**2 / 3
        + 2 * half_segment_s * hazard.mean_pause_s
        + hazard.restart_s**2
    )
    mean_square_s2 += 2 * mean_absence_s * (hazard.wait_s + hazard.restart_s)
    return mean_s + NormalDist().inv_cdf(run_share) * math.sqrt(
        mean_s * stops_per_s * mean_square_s2
    )


def young_interval(save_s: float, mtbf_s: float) -> float:
    """Young's interval: sqrt(2 * save * mtbf)."""
    return math.sqrt(2 * save_s * mtbf_s)


def daly_interval(save_s: float, mtbf_s: float, restart_s: float) -> float:
    """Daly's first order: sqrt(2 * save * (mtbf + restart)) - save."""
    return max(save_s, math.sqrt(2 * save_s * (mtbf_s + restart_s)) - save_s)


def best_interval(save_s: float, hazard: Hazard) -> float:
    """The interval of the largest effective share, by golden section; longest without stops."""
    shortest_s = save_s / 10 + 1.0
    longest_s = min(
        MAX_INTERVAL_S,
        max(10 * young_interval(save_s, hazard.mtbf_s), 60.0),
    )
    if hazard.mtbf_s == math.inf:
        return constant("train_interval")
    golden_ratio = (math.sqrt(5) - 1) / 2
    for _ in range(SECTION_STEPS):
        left_probe_s = longest_s - golden_ratio * (longest_s - shortest_s)
        right_probe_s = shortest_s + golden_ratio * (longest_s - shortest_s)
        if progress_share(left_probe_s, save_s, hazard) < progress_share(
            right_probe_s, save_s, hazard
        ):
            shortest_s = left_probe_s
        else:
            longest_s = right_probe_s
    return (shortest_s + longest_s) / 2
