"""From the bytes of a file to a Spec, or to every problem that it has."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Final

from planner.errors import Place, Problem, SpecError
from planner.spec.field import Block, Choice, Report
from planner.spec.model import (
    Batch,
    Buy,
    Inference,
    Shutdown,
    Spec,
    Training,
    Workspace,
)
from planner.spec.shape import KINDS, kind_of
from planner.spec.source import Mapping, parse

# What people forget sleeps unless the spec says otherwise: workspaces, and batches that are done.
DEFAULT_IDLE: Final = Decimal(3600)


def load(raw: bytes, path: str) -> Spec:
    """Read a spec; raises SpecError with all problems of the file at once."""
    root = parse(raw, path)
    if not isinstance(root, Mapping):
        raise SpecError(
            _problem(
                root.place, "type", "a spec is a mapping of keys to values"
            )
        )
    kind = kind_of(root)
    report = Report()
    if kind not in KINDS:
        if "kind" in root.items:
            Choice(tuple(KINDS)).read(root.items["kind"], "kind", report)
        else:
            report.add(
                root.place,
                "missing-key",
                "kind is missing",
                "write kind: Inference",
            )
        raise SpecError(*report.problems)
    block = KINDS[kind]
    spec = Block(
        block.name, _head_off(block), block.fields, choose=block.choose
    ).read(root, "", report)
    if report.problems:
        raise SpecError(*sorted(report.problems, key=_position))
    return _checked(spec)


def normal(value: Any) -> Any:
    """A spec as plain JSON values: base units, decimals as strings, without file positions."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = {
            f.name: getattr(value, f.name)
            for f in fields(value)
            if f.name != "place"
        }
        return {k: normal(v) for k, v in pairs.items() if v is not None}
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [normal(item) for item in value]
    return (
        format(value.normalize(), "f") if isinstance(value, Decimal) else value
    )


def _head_off(block: Block) -> Any:
    def build(**values: Any) -> Any:
        for key in ("apiVersion", "kind"):
            values.pop(key)
        return block.build(**values)

    return build


def _checked(spec: Spec) -> Spec:
    """Apply the rules that concern several blocks at once."""
    problems: list[Problem] = []
    if isinstance(spec, Inference | Batch):
        traffic = spec.traffic
        if traffic.trace is None:
            problems.extend(
                Problem(
                    code="missing-key",
                    message=f"traffic.{key} is missing",
                    place=traffic.place,
                    next_step=f"write {key}: {{mean: 1200, p95: 4000}}",
                )
                for key in ("input_tokens", "output_tokens")
                if getattr(traffic, key) is None
            )
    if (
        isinstance(spec, Workspace | Batch | Training)
        and spec.shutdown == Shutdown()
    ):
        spec = replace(spec, shutdown=Shutdown(idle=DEFAULT_IDLE))
    if isinstance(spec, Training):
        problems.extend(_dataset(spec))
    problems.extend(_buying(spec.buy))
    if problems:
        raise SpecError(*problems)
    return spec


def _dataset(spec: Training) -> list[Problem]:
    data, method = spec.data, spec.train.method
    if data.tokens and data.samples:
        message, step = (
            "data: tokens and samples exclude each other",
            "keep one of them",
        )
    elif not (data.tokens or data.samples) and method != "pretrain":
        message = f"data: method {method} needs tokens or samples"
        step = "write how much is trained on, for example tokens: 100M"
    else:
        return []
    return [
        Problem(code="data", message=message, place=data.place, next_step=step)
    ]


def _buying(buy: Buy) -> list[Problem]:
    if buy.spot != "only" or buy.commit == ("none",) or buy.place is None:
        return []
    message = "buy.spot: only and buy.commit exclude each other"
    step = "spot cannot be committed to: remove commit, or write spot: auto"
    return [
        Problem(
            code="conflict", message=message, place=buy.place, next_step=step
        )
    ]


def _position(problem: Problem) -> tuple[int, int]:
    place = problem.place or Place("")
    return place.line, place.column


def _problem(place: Place, code: str, message: str) -> Problem:
    step = "run: tonnage init"
    return Problem(code=code, message=message, place=place, next_step=step)
