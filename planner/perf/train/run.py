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
from planner.perf.constant import constant
from planner.perf.train.states import adapters, optimizers

if TYPE_CHECKING:
    from planner.perf.train.job import Job

DAY: Final = 86_400.0
MONTH: Final = 730 * 3600.0
HALVINGS: Final = 60
LONGEST: Final = 30 * DAY
Rates: TypeAlias = Literal[
    "never", "monthly", "low", "high"
]  # of reclaims: a column


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """What stops a run: failures of machines, and machines that are taken back.

    `failures` and `reclaims` a second of the whole cluster; `restart` seconds after a failure,
    `wait` until a reclaimed cluster is whole again, `notice` before it is taken; `meanwhile` is
    the share of the speed at which the rest of the machines go on.
    """

    failures: float
    reclaims: float
    restart: float
    wait: float
    notice: float
    meanwhile: float = 0.0

    @property
    def mtbf(self) -> float:
        """Mean seconds between stops of any kind."""
        rate = self.failures + self.reclaims
        return 1 / rate if rate else math.inf

    @property
    def pause(self) -> float:
        """Mean seconds from a stop until work goes on."""
        rate = self.failures + self.reclaims
        taken = self.reclaims * (self.wait + self.restart)
        return (
            (self.failures * self.restart + taken) / rate
            if rate
            else self.restart
        )


@cache
def _reclaims() -> dict[tuple[str, str], table.Row]:
    number = table.real(0, 10_000)
    columns: dict[str, Any] = {
        "provider": table.text,
        "family": table.free,
        "monthly": number,
        "low": number,
        "high": number,
        "notice_s": number,
        "wait_h": number,
        "meaning": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "reclaims.csv")
        .read_text(encoding="utf-8")
    )
    rows = table.keyed(
        table.rows(text, "reclaims.csv", columns), "provider", "family"
    )
    return {(provider, family): row for (provider, family), row in rows.items()}


def unspared(spares: int, load: float) -> float:
    """Share of failures that find no spare machine: Erlang's loss formula.

    `load` is failures a second times the seconds until a machine that failed is replaced.
    """
    found = 1.0
    for k in range(1, spares + 1):
        found = load * found / (k + load * found)
    return found


def hazard(
    machines: int,
    provider: str,
    family: str,
    rates: Rates = "never",
    spares: int = 0,
) -> Hazard:
    """Return what stops a run on so many machines of a cloud, with published rates of reclaims.

    Machines fail independently; without a spare one has to boot first. Spot machines of one kind
    are taken together: of a reclaim of one, all others follow within minutes in most cases, so
    the cluster's rate is hardly larger.
    """
    failures = machines * constant("node_failures") / DAY
    restart = constant("train_restart")
    restart += constant("boot") * unspared(spares, failures * constant("boot"))
    if rates == "never":
        return Hazard(
            failures=failures,
            reclaims=0.0,
            restart=restart,
            wait=0.0,
            notice=0.0,
        )
    row = _reclaims().get((provider, family)) or _reclaims()[provider, ""]
    each = -math.log(1 - min(0.99, row[rates])) / MONTH
    alone = 1 - constant("reclaim_together")
    return Hazard(
        failures=failures,
        reclaims=each * (1 + alone * (machines - 1)),
        restart=restart,
        wait=row["wait_h"] * 3600,
        notice=row["notice_s"],
    )


def checkpoint_bytes(job: Job) -> float:
    """Bytes of a full checkpoint: weights, master copy and states of all that is trained."""
    form = optimizers()[job.optimizer]
    if job.frozen:
        s = job.spread
        return adapters(job) * s.tp * s.pp * (form.weight + form.kept)
    return job.llm.params * (form.weight + form.kept)


def effective(interval: float, save: float, risk: Hazard) -> float:
    """Share of the time that is progress when a checkpoint is saved after every interval.

    A segment that ends has seen e^(segment / mtbf) - 1 stops; while spot is away, others go on.
    """
    if risk.mtbf == math.inf:
        return interval / (interval + save)
    segment = (interval + save) / risk.mtbf
    if segment > 50:
        return 0.0
    stops = math.expm1(segment)
    meanwhile = stops * risk.reclaims * risk.mtbf * risk.wait * risk.meanwhile
    return min(1.0, (interval + meanwhile) / (stops * (risk.mtbf + risk.pause)))


def late(
    work: float, every: float, save: float, risk: Hazard, share: float
) -> float:
    """Seconds within which a share of the runs ends: the mean, and a normal quantile of its sum.

    Each of the stops loses a uniform part of a segment and a pause; their number is Poisson, so
    the variance is the mean number of stops times the mean square of a loss.
    """
    mean = (
        work / effective(every, save, risk)
        if effective(every, save, risk)
        else math.inf
    )
    rate = risk.failures + risk.reclaims
    if not rate or mean == math.inf:
        return mean
    segment, away = (every + save) / 2, risk.reclaims / rate * risk.wait
    square = 4 * segment**2 / 3 + 2 * segment * risk.pause + risk.restart**2
    square += 2 * away * (risk.wait + risk.restart)
    return mean + NormalDist().inv_cdf(share) * math.sqrt(mean * rate * square)


def young(save: float, mtbf: float) -> float:
    """Young's interval: sqrt(2 * save * mtbf)."""
    return math.sqrt(2 * save * mtbf)


def daly(save: float, mtbf: float, restart: float) -> float:
    """Daly's first order: sqrt(2 * save * (mtbf + restart)) - save."""
    return max(save, math.sqrt(2 * save * (mtbf + restart)) - save)


def interval(save: float, risk: Hazard) -> float:
    """The interval of the largest effective share, by golden section; longest without stops."""
    low, high = (
        save / 10 + 1.0,
        min(LONGEST, max(10 * young(save, risk.mtbf), 60.0)),
    )
    if risk.mtbf == math.inf:
        return constant("train_interval")
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(HALVINGS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if effective(left, save, risk) < effective(right, save, risk):
            low = left
        else:
            high = right
    return (low + high) / 2
