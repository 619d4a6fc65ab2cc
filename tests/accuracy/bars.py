"""The bars: what is promised, and what the model reaches."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import TonnageError
from planner.estimate.memory import predict_memory as memory_answer
from planner.estimate.names import RefusedError
from tests.accuracy import cross, margins, own, server, strangers
from tests.accuracy.adapter import startup_row
from tests.accuracy.bands import of_few_sources
from tests.accuracy.cross import Scheme
from tests.accuracy.sample import Batch
from tests.accuracy.score import (
    BANDED,
    LOADS,
    coverage,
    inside,
    optimistic,
    order,
    ratios,
    score,
)

EARLIER: Final = "; rows from before 2026-11-22"
SERVED: Final = "rate served at the measured TPOT"
ERRORS: Final = {
    "throughput, offline maximum": ((8.5, 12, 12, 20), (6, 9, 9, 14)),
    "throughput, static batch": ((6, 8, 10, 10), (4.5, 6, 7, 7)),
    "TPOT, closed loop": ((6, 11, 10, 12), (4.5, 8, 8, 9)),
    "TTFT, idle": ((10, 12, 13, 17), (7, 9, 10, 12)),
    "TTFT, closed loop": ((12, 40, 25, 20), (9, 25, 18, 15)),
    SERVED: ((8, 20, 20, 20), (6, 12, 12, 12)),
}
WITHIN_LIMITS: Final = "rate within both limits"
WITHIN_MOST: Final = 15.0
# What no fit had seen at all: a cluster, an engine, an architecture.
STRANGERS: Final = ("source", "engine", "maker")
WIDTHS: Final = {"tpot": 3.0, "throughput": 2.5, "ttft": 15.0}
# Confidence, and the least and most of the rows that may be within the plan.
CONFIDENCES: Final = ((0.5, 45.0, 60.0), (0.9, 87.0, 95.0))
# Bars that are shown as missed, and do not fail the check. Those that say why they are were met
# once, the others never.
# Three seemed to be while fits with rows left out began at the fit to all rows, and knew them.
# Those of errors without a remark on rows are of all of them: the same bars are kept, and
# enforced, on the rows from before the table grew.
NOT_YET: Final = (
    "TPOT, closed loop; all data",
    "TPOT, closed loop; source out",
    "TTFT, closed loop; all data",
    "TTFT, closed loop; source out",
    "rate served at the measured TPOT; family out",
    "TPOT and TTFT within the plan at 90% confidence, source out",
    # 61 % are within, and 60 may be: such plans are more careful than they say (decision 118).
    "TPOT and TTFT within the plan at 50% confidence, source out; rows from before 2026-11-22",
    # Scored since November 2026. Three families in three rounds of one benchmark have such rows,
    # and the errors of two say little of the third.
    "90 % bands of served_rps: rows inside, left out",
    # 95.6 % are inside where 95 may be: three groups ask for more than they need (decision 125).
    "90 % bands of served_rps: inside, whole sources, engines and makers left out; "
    "rows from before 2026-11-22",
)
LOGS: Final = Path(__file__).parents[1] / "data" / "truth" / "startup.csv"


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: what was reached, the least and (for shares to be inside) the most allowed."""

    name: str
    reached: float
    least: float | None
    most: float | None
    unit: str = "%"

    @property
    def met(self) -> bool:
        """Whether the figure lies where it should."""
        low = self.least is None or self.reached >= self.least
        return low and (self.most is None or self.reached <= self.most)

    @property
    def sign(self) -> str:
        """The unit as it follows a figure."""
        return f" {self.unit}"


def bars(
    batch: Batch, schemes: Sequence[Scheme], refused: Sequence[str]
) -> Iterator[Bar]:
    """Yield every bar. `schemes` are: all data, then each of cross.SCHEMES out."""
    usual = schemes[: len(cross.USUAL) + 1]
    yield from _errors(batch, usual)
    yield from _optimistic(batch, usual[1:])
    yield from _bands(batch, usual[1:])
    yield from _strangers(batch, schemes)
    yield from _stated(batch, schemes)
    yield from _margins(batch, usual)
    yield from _answered(batch, refused)
    share, _ = order(batch, next(s for s in schemes if s.name == "GPU"))
    yield Bar(
        "order of GPUs at equal workload, GPU left out", 100 * share, 92.0, None
    )
    share, _ = server.share(batch)
    yield Bar(
        "MLPerf Server rates within 25 %, by simulation",
        100 * share,
        60.0,
        None,
    )
    yield from pools()
    source = next(s for s in schemes if s.name == "source")
    taught = own.gain(batch, source, "tpot")
    yield Bar(
        "TPOT after a calibration of 10 points, mean",
        100 * taught.after,
        None,
        10.0,
    )


def _errors(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    """Yield the errors on the rows from before the table grew, then on all rows."""
    for earlier, remark in ((True, EARLIER), (False, "")):
        for measure, (limits, _) in ERRORS.items():
            for scheme, limit in zip(schemes, limits, strict=True):
                found = ratios(batch, scheme, measure, earlier=earlier)
                yield Bar(
                    f"{measure}; {label(scheme)}{remark}",
                    100 * score(batch, found).cells,
                    None,
                    limit,
                )
    source = next(s for s in schemes if s.name == "source")
    for earlier, remark in ((True, EARLIER), (False, "")):
        found = ratios(batch, source, WITHIN_LIMITS, earlier=earlier)
        yield Bar(
            f"{WITHIN_LIMITS}; source out{remark}",
            100 * score(batch, found).cells,
            None,
            WITHIN_MOST,
        )


def _optimistic(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    for name, target, groups, most in (
        ("throughput", "throughput", ("offline", "static"), 13.0),
        ("closed-loop TPOT", "tpot", ("closed",), 18.0),
    ):
        for earlier, remark in ((True, EARLIER), (False, "")):
            shares = [
                optimistic(batch, scheme, target, groups, earlier=earlier)
                for scheme in schemes
            ]
            yield Bar(
                f"{name} optimistic by > 20 %, worst left-out scheme{remark}",
                100 * max(shares),
                None,
                most,
            )


def _strangers(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    """Yield the coverage on whole sources, engines and makers that no fit had seen, together."""
    strange = [s for s in schemes if s.name in STRANGERS]
    for earlier, remark in ((True, EARLIER), (False, "")):
        for number, target in BANDED.items():
            found = [
                coverage(batch, scheme, target, LOADS, earlier=earlier)
                for scheme in strange
            ]
            yield Bar(
                f"90 % bands of {number}: inside, whole sources, engines and makers left out"
                f"{remark}",
                100 * inside(found),
                85.0,
                95.0,
            )


def _stated(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    """Yield how often the bands that are stated hold vendors and releases that no fit had seen."""
    by_name = {scheme.name: scheme for scheme in schemes}
    for target in WIDTHS:
        vendors = strangers.of_vendors(batch, by_name["source"], target)
        releases = strangers.of_releases(batch, by_name[cross.RELEASE], target)
        for name, found in (
            ("vendors of one source, without it", vendors),
            ("newest releases, without them", releases),
        ):
            yield Bar(
                f"90 % bands of {target}: inside, {name}",
                100 * found.inside,
                85.0,
                None,
            )


def label(scheme: Scheme) -> str:
    """Say what was left out."""
    return "all data" if scheme.name == cross.WHOLE else f"{scheme.name} out"


def _bands(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    for earlier, remark in ((True, EARLIER), (False, "")):
        for number, target in BANDED.items():
            found = [
                coverage(batch, scheme, target, LOADS, earlier=earlier)
                for scheme in schemes
            ]
            yield Bar(
                f"90 % bands of {number}: rows inside, left out{remark}",
                100 * inside(found),
                85.0,
                96.0,
            )
        for target, width in WIDTHS.items():
            loads = (("closed",),) if target == "tpot" else LOADS
            widest = max(
                coverage(batch, scheme, target, loads, earlier=earlier).width
                for scheme in schemes
            )
            yield Bar(
                f"90 % bands of {target}: median high / low{remark}",
                widest,
                None,
                width,
                "x",
            )


def _margins(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[Bar]:
    yield Bar(
        "stored margins: largest difference from these errors",
        100 * margins.difference(batch, schemes),
        None,
        0.5,
    )
    source = next(s for s in schemes if s.name == "source")
    loops = margins.loops(batch, schemes[0].fits[cross.WHOLE])
    for rows, remark in ((batch.earlier, EARLIER), (True, "")):
        for level, least, most in CONFIDENCES:
            yield Bar(
                f"TPOT and TTFT within the plan at {level:.0%} confidence, source out{remark}",
                100 * margins.met(batch, source, level, loops & rows),
                least,
                most,
            )
    few = loops & of_few_sources(batch)
    yield Bar(
        "TPOT and TTFT within the plan at 90% confidence, vendors of one source, without it",
        100 * margins.met(batch, source, 0.9, few),
        87.0,
        None,
    )
    tuned = margins.met(batch, source, 0.9, batch.group == "server")
    yield Bar(
        "the same at 90%, servers tuned to a limit on TTFT",
        100 * tuned,
        60.0,
        None,
    )


def _answered(batch: Batch, refused: Sequence[str]) -> Iterator[Bar]:
    for quality, least in (("A", 98.0), ("B", 93.0)):
        answered = int((batch.quality == quality).sum())
        share = answered / (answered + sum(q == quality for q in refused))
        yield Bar(
            f"rows of quality {quality} answered", 100 * share, least, None
        )


def pools() -> Iterator[Bar]:
    """Score the KV pool on published start-up logs: dense models, then latent and hybrid ones."""
    dense: list[float] = []
    other: list[float] = []
    rows = list(csv.DictReader(LOGS.read_text(encoding="utf-8").splitlines()))
    for row in rows:
        error = _pool(row)
        if error is not None:
            special = any(
                x in row["model"]
                for x in ("deepseek", "gemma", "gpt-oss", "qwen3.5")
            )
            (other if special else dense).append(error)
    yield Bar(
        f"KV pool against {len(dense)} of {len(rows)} vLLM logs, dense, median",
        100 * statistics.median(dense),
        None,
        1.0,
    )
    yield Bar(
        f"KV pool against {len(other)} of {len(rows)} vLLM logs, hybrid and MLA, median",
        100 * statistics.median(other),
        None,
        5.0,
    )


def _pool(row: dict[str, str]) -> float | None:
    """Error of the pool of a log whose settings are the defaults; None when they are not."""
    if not row["kv_gib"] or "odd" in row["note"] or float(row["kv_gib"]) < 10:
        return None
    try:
        answer = memory_answer(startup_row(row))
    except (RefusedError, TonnageError):
        return None
    held_gib = answer.columns["kv_cache_gib_per_gpu"].value
    return abs(held_gib / float(row["kv_gib"]) - 1)
