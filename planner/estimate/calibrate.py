"""Learns from a user's own benchmark, says what it changed, and warns about what looks wrong."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from planner.errors import Place, Problem, UsageError
from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.perf import shape
from planner.perf.correction import Belief, Correction, features, learned
from planner.perf.engine import engine, kv_precision
from planner.perf.layout import Layout, Node
from planner.perf.setup import Demand, Setup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.estimate.benchmark import Point

SCHEMA: Final = "tonnage.calibration/1"
METRICS: Final = ("tpot", "ttft")
OUTLIER: Final = 3.0  # spreads from what the other points say
DIGITS: Final = 9
HOST: Final = 8
FAR: Final = 3.0  # a logarithm that no correction reaches
WILD: Final = 1.6  # a log ratio that says that the point is of something else


@dataclass(frozen=True, slots=True)
class Compared:
    """One point: measured and predicted seconds before and after, by the other points."""

    point: Point
    measured: dict[str, float]
    before: dict[str, float]
    after: dict[str, float]
    odd: bool


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned, point by point, and what to look at."""

    correction: Correction
    compared: tuple[Compared, ...]
    warnings: tuple[str, ...]


def calibrate(points: Sequence[Point], given: Mapping[str, str]) -> Learned:
    """Learn from points of one deployment; raises UsageError when it is not known which.

    `given` names what the files leave out: model, gpu, tp, precision, framework. Points of another
    model or accelerator than most are left out, and said so.
    """
    known = [_described(point, given) for point in points]
    kinds = [(p.model, p.gpu, p.tp, p.precision) for p in known]
    main = max(set(kinds), key=lambda kind: (kinds.count(kind), kind))
    used = [p for p, kind in zip(known, kinds, strict=True) if kind == main]
    warnings = [
        f"{p.place} is of {p.model or 'an unnamed model'} on {p.gpu} tp {p.tp} in {p.precision}: "
        "it is left out"
        for p, kind in zip(known, kinds, strict=True)
        if kind != main
    ]
    setups = [_setup(point) for point in used]
    rows = [
        _row(point, setup) for point, setup in zip(used, setups, strict=True)
    ]
    wild = [max(abs(x) for x in row.ratio.values()) > WILD for row in rows]
    warnings += [
        f"{p.place} is more than {math.exp(WILD):.0f} times off: it is left out"
        for p, off in zip(used, wild, strict=True)
        if off
    ]
    used = [p for p, off in zip(used, wild, strict=True) if not off]
    rows = [r for r, off in zip(rows, wild, strict=True) if not off]
    if not used:
        step = "check --model, --gpu, --tp and --precision"
        raise _unknown(
            points[0],
            "has no point that its deployment could have measured",
            step,
        )
    compared = tuple(_compare(place, used, rows) for place in range(len(used)))
    warnings += [
        f"{c.point.place} is far from what the other points say"
        for c in compared
        if c.odd
    ]
    first = setups[0]
    correction = Correction(
        model=first.llm.model,
        accelerator=first.node.accelerator.accelerator,
        precision=first.layout.precision,
        tp=first.layout.tp,
        points=len(used),
        beliefs={
            m: learned(m, [(r.at, r.ratio[m]) for r in rows]) for m in METRICS
        },
    )
    return Learned(correction, compared, tuple(warnings))


@dataclass(frozen=True, slots=True)
class _Row:
    at: tuple[float, ...]
    ratio: dict[str, float]
    predicted: dict[str, float]


def _described(point: Point, given: Mapping[str, str]) -> Point:
    """Fill in what a file leaves out, and bring names to ours; what is given wins."""
    found = replace(
        point,
        model=given.get("model") or point.model,
        gpu=given.get("gpu") or point.gpu,
        tp=int(given.get("tp") or point.tp or 1),
        precision=given.get("precision") or point.precision or "",
        framework=given.get("framework") or point.framework or "vllm",
    )
    for name in ("model", "gpu"):
        if not getattr(found, name):
            raise _unknown(point, f"does not say its {name}", f"add --{name}")
    try:
        llm = names.model(found.model)
        precision = found.precision or llm.precision
        return replace(
            found,
            model=llm.model,
            gpu=names.gpu(found.gpu).accelerator,
            precision=names.precision(precision),
            framework=names.framework(found.framework),
        )
    except RefusedError as error:
        raise _unknown(
            point, str(error), "name it with --model, --gpu or --precision"
        ) from None


def _unknown(point: Point, message: str, step: str) -> UsageError:
    place = Place(point.place)
    return UsageError(
        Problem(code="benchmark", message=message, place=place, next_step=step)
    )


def _setup(point: Point) -> Setup:
    llm, chip = names.model(point.model), names.gpu(point.gpu)
    precision = point.precision
    if llm.precision == "mxfp4" and precision in ("fp4", "fp8"):
        precision = llm.precision
    layout = Layout(
        precision=precision,
        kv_precision=kv_precision(point.framework, llm, precision),
        tp=point.tp,
    )
    linked = "pcie" if chip.link == "none" else chip.link
    node = Node(
        accelerator=chip,
        count=max(HOST, point.tp),
        memory_gib=chip.memory_gib,
        fraction=1.0,
        scaleup=linked,
        network_gb_s=1.0,
    )
    demand = Demand(
        kind="closed" if point.users else "open",
        prompt=point.prompt,
        answer=point.answer,
        users=point.users,
        rate=point.rate,
        lengths=("spread",),
    )
    return Setup(
        llm=llm,
        layout=layout,
        node=node,
        engine=engine(point.framework),
        demand=demand,
    )


def _row(point: Point, setup: Setup) -> _Row:
    server = setup.server()
    if server.room < 1:
        step = "check --gpu, --tp and --precision"
        raise _unknown(
            point, "does not fit on what it is said to have run on", step
        )
    found = (
        shape.closed(server, point.users)
        if point.users
        else shape.poisson(server, point.rate)
    )
    predicted = {"tpot": found.tpot, "ttft": found.ttft}
    measured = {"tpot": point.tpot, "ttft": point.ttft}
    ratio = {m: math.log(measured[m] / predicted[m]) for m in METRICS}
    return _Row(
        features(found.batch, point.prompt + point.answer / 2), ratio, predicted
    )


def _compare(
    place: int, points: Sequence[Point], rows: Sequence[_Row]
) -> Compared:
    """Predict one point by the others, so that the improvement shown is not that of a copy."""
    row, point = rows[place], points[place]
    others = [r for i, r in enumerate(rows) if i != place]
    after, odd = {}, False
    for metric in METRICS:
        belief = learned(metric, [(r.at, r.ratio[metric]) for r in others])
        after[metric] = row.predicted[metric] * math.exp(belief.mean(row.at))
        away = abs(row.ratio[metric] - belief.mean(row.at)) / belief.spread(
            row.at
        )
        odd = odd or away > OUTLIER
    measured = {"tpot": point.tpot, "ttft": point.ttft}
    return Compared(point, measured, row.predicted, after, odd)


def dump(found: Correction, sources: Mapping[str, str]) -> str:
    """Return the calibration as JSON; `sources` are the files with their SHA-256."""
    content = {
        "schema": SCHEMA,
        "model": found.model,
        "accelerator": found.accelerator,
        "precision": found.precision,
        "tp": found.tp,
        "points": found.points,
        "sources": dict(sources),
        "beliefs": {
            name: {
                "weights": _rounded(b.weights),
                "noise": b.noise,
                "covariance": [_rounded(row) for row in b.covariance],
            }
            for name, b in found.beliefs.items()
        },
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _rounded(numbers: Sequence[float]) -> list[float]:
    return [round(x, DIGITS) for x in numbers]


def parse(raw: bytes, path: str) -> Correction:
    """Return a calibration; raises UsageError."""
    try:
        content: dict[str, Any] = json.loads(raw)
        known = {SCHEMA: content}[content["schema"]]
        beliefs = {
            metric: _belief(known["beliefs"][metric]) for metric in METRICS
        }
        fields = ("model", "accelerator", "precision", "tp", "points")
        found = Correction(
            beliefs=beliefs, **{name: known[name] for name in fields}
        )
        _counted(found)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        problem = Problem(
            code="calibration",
            message="is no calibration of this program",
            place=Place(path),
            next_step="make one: tonnage calibrate BENCH -o FILE",
        )
        raise UsageError(problem) from error
    return replace(found, sha256=hashlib.sha256(raw).hexdigest())


def _belief(told: Mapping[str, Any]) -> Belief:
    """Return a belief as far as its numbers can be one; raises ValueError."""
    weights = tuple(float(x) for x in told["weights"])
    covariance = tuple(
        tuple(float(x) for x in row) for row in told["covariance"]
    )
    size = len(features(1, 1))
    square = len(covariance) == size and all(
        len(row) == size for row in covariance
    )
    small = all(
        abs(x) < FAR
        for x in (*weights, *(x for row in covariance for x in row))
    )
    if not (
        square
        and small
        and len(weights) == size
        and 0 < float(told["noise"]) < FAR
    ):
        raise ValueError(weights)
    if any(covariance[i][i] < 0 for i in range(size)):
        raise ValueError(covariance)
    return Belief(weights, covariance, float(told["noise"]))


def _counted(found: Correction) -> None:
    """Raise ValueError when the counts of a calibration cannot be."""
    if not (1 <= int(found.tp) <= HOST**2 and int(found.points) >= 1):
        raise ValueError(found.tp)
