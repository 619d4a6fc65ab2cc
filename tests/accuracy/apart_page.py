"""Bars and page of the rows that are kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tests.accuracy import apart, bands, margins
from tests.accuracy.bars import Bar
from tests.accuracy.least import Array

# Targets whose stated bands are judged; the own band of times per token is judged without itself.
STATED: Final = ("ttft", "throughput")
DECODED: Final = 15.0
INSIDE: Final = 85.0
PLANNED: Final = 87.0


def bars() -> Iterator[Bar]:
    """Yield the bars of the rows that are kept apart, deployments left out."""
    yield Bar(
        "kept apart: TPOT on TPUs, deployment out, median over rows",
        100 * _middle(apart.errors("tpot")),
        None,
        DECODED,
    )
    for target in STATED:
        yield Bar(
            f"kept apart: 90 % bands of {target}, deployment out",
            100 * float(np.nanmean(apart.inside(target))),
            INSIDE,
            None,
        )
    for kind, inside, planned in own_left_out():
        yield Bar(
            f"kept apart: own 90 % band of tpot on {kind}, made without the deployment",
            100 * inside,
            INSIDE,
            None,
        )
        yield Bar(
            f"kept apart: TPOT on {kind} within a plan at 90% confidence, made without it",
            100 * planned,
            PLANNED,
            None,
        )


def own_left_out() -> Iterator[tuple[str, float, float]]:
    """Yield which rows the own band and the own margin of an architecture hold without them.

    Of each architecture that has them: its name, the share of rows inside the band, and of those
    whose time per token is within a plan, both made from its other deployments.
    """
    batch, found = apart.load(), apart.errors("tpot")
    names, kinds = apart.deployments(batch), apart.architectures()
    loops = (batch.group == "closed") & np.isfinite(found)
    pairs = np.stack([found] * 2, axis=-1)
    for row in bands.apart_rows():
        kind = row["load"].removeprefix("closed ")
        inside: list[bool] = []
        planned: list[bool] = []
        for name in sorted(set(names[loops & (kinds == kind)])):
            own = loops & (names == name)
            others = loops & (kinds == kind) & (names != name)
            low, high, _ = bands.spread(batch, -found, others, names)
            error = margins.rate_of(margins.by_cell(batch, pairs, others))
            most = np.log(error.slowdown(apart.LEVEL))
            inside += [bool(low <= x <= high) for x in found[own]]
            planned += [bool(x <= most) for x in found[own]]
        yield kind, float(np.mean(inside)), float(np.mean(planned))


def page() -> str:
    """Return the part of the page: errors by engine, accelerator and source."""
    before = apart.unmodified()
    lines = [
        TEXT,
        "| engine | accelerator | source | "
        + " | ".join(
            f"{name}, plain | {name}" for name in apart.NUMBERS.values()
        )
        + " | rows |",
        "|---|---|---|" + "--:|" * (2 * len(apart.NUMBERS) + 1),
    ]
    for name, here in apart.groups():
        cells = [
            _cell(np.where(here, found, np.nan))
            for target in apart.NUMBERS
            for found in (before[target], apart.errors(target))
        ]
        rows = int((here & apart.scored(apart.load())).sum())
        lines.append(f"| {' | '.join((*name, *cells))} | {rows} |")
    return "\n".join(lines) + "\n"


def _cell(found: Array) -> str:
    if not np.isfinite(found).any():
        return ""
    bias = 100 * np.expm1(-np.nanmedian(found))
    return f"{100 * _middle(found):.0f} % ({bias:+.0f})"


def _middle(found: Array) -> float:
    """Return the median error, of the prediction over what was measured."""
    return float(np.nanmedian(np.abs(np.expm1(-found))))


TEXT: Final = """## TPUs, kept apart

No coefficient of hardware was fitted to these rows, and no prediction of anything else moves with
them ([decision 108](decisions/0108-tpus-that-were-measured.md)). They are of TPUs, by vLLM and by
SGLang-JAX. Most of their sources do not say whether they are means or medians. Median error over
rows whose users have slots; in brackets the median bias, with a plus where more is predicted than
was measured.
"Plain" is without what was fitted to early vLLM on TPUs, which ran there by PyTorch/XLA until
October 2025; the column beside it is predicted without the deployment. First tokens of the sweep
are of answers of one token, and wait for the prompts of all users.
"""
