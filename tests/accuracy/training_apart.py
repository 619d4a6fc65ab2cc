"""Training runs that are kept apart: no fit sees them.

They are of hybrids, and of mixtures whose experts have a precision of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from planner.perf.training.coefficients import TRAINING_TABLE
from planner.perf.training.error_band import half_width_ln
from tests.accuracy.bars import Bar
from tests.accuracy.least import Array, current
from tests.accuracy.training import APART, Batch, Run, load

# What two runs have in common of which one has experts in a precision of their own.
SAME: Final = ("source_group", "model", "gpu", "n_gpus", "tp", "ep", "act_ckpt")


def read_apart() -> Batch:
    """Return the runs that are kept apart; raises ValueError when one is refused."""
    runs, refused = load(APART)
    if refused:
        raise ValueError(refused[0])
    return Batch(runs)


def ratios(batch: Batch) -> Array:
    """Return the log of predicted over measured speed with the table as it stands."""
    return batch.ratios(current(TRAINING_TABLE))


def bars(batch: Batch) -> Iterator[Bar]:
    """Yield the bars of the runs that are kept apart."""
    ratio = ratios(batch)
    hybrids = np.array([bool(x.read.job.llm.state_layers) for x in batch.runs])
    yield Bar(
        f"training kept apart, {int(hybrids.sum())} runs of hybrids, mean",
        100 * float(np.mean(np.abs(np.expm1(ratio[hybrids])))),
        None,
        12,
    )
    yield Bar(
        f"90 % bands of training kept apart, {len(batch.runs)} runs: rows inside",
        100 * float(np.mean(np.abs(ratio) <= _halves(batch))),
        85,
        None,
    )


def _halves(batch: Batch) -> Array:
    return np.array(
        [
            half_width_ln(run.read.job, assumed=run.read.is_assumed)
            for run in batch.runs
        ]
    )


def page(batch: Batch) -> str:
    """Return the part of the page: errors by source, model and accelerator, and gains."""
    ratio = ratios(batch)
    inside = np.abs(ratio) <= _halves(batch)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, run in enumerate(batch.runs):
        groups[
            run.row["framework"].split(" (")[0],
            run.row["model"],
            run.row["gpu"],
            run.read.job.software.precision_text,
        ].append(place)
    lines = [
        TEXT,
        "| framework | model | accelerator | precision | rows | mean error | bias | inside |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    lines += group_lines(groups, ratio, inside)
    lines += [
        "",
        GAIN_TEXT,
        "| model | accelerator | from | to | runs | predicted | measured |",
        "|---|---|---|---|--:|--:|--:|",
    ]
    lines += _gain_lines(batch, ratio)
    return "\n".join(lines) + "\n"


def group_lines(
    groups: Mapping[tuple[str, ...], Sequence[int]], ratio: Array, inside: Array
) -> Iterator[str]:
    """Yield the rows, mean error, bias and share inside the band of each group of rows."""
    for group, places in sorted(groups.items()):
        own = ratio[places]
        yield (
            f"| {' | '.join(group)} | {len(places)} | "
            f"{100 * np.mean(np.abs(np.expm1(own))):.1f} % | "
            f"{100 * np.expm1(np.mean(own)):+.1f} % | "
            f"{100 * np.mean(inside[places]):.0f} % |"
        )


def _gain_lines(batch: Batch, ratio: Array) -> Iterator[str]:
    """Yield what a run gains whose experts have a precision of their own over one that has not."""
    gains: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for place, other in _pairs(batch.runs):
        mixed, plain = batch.runs[place], batch.runs[other]
        measured = float(np.log(batch.speed[place] / batch.speed[other]))
        predicted = measured + float(ratio[place] - ratio[other])
        gains[
            mixed.row["model"],
            mixed.row["gpu"],
            plain.read.job.software.precision_text,
            mixed.read.job.software.precision_text,
        ].append((predicted, measured))
    for group, found in sorted(gains.items()):
        predicted, measured = np.mean(np.array(found), axis=0)
        yield (
            f"| {' | '.join(group)} | {len(found)} | "
            f"{100 * np.expm1(predicted):+.1f} % | {100 * np.expm1(measured):+.1f} % |"
        )


def _pairs(runs: list[Run]) -> Iterator[tuple[int, int]]:
    """Yield the places of a run with two precisions and of one that has its first alone."""
    for place, run in enumerate(runs):
        software = run.read.job.software
        if not software.expert_precision:
            continue
        for other, plain in enumerate(runs):
            compared = plain.read.job.software
            if (
                not compared.expert_precision
                and compared.precision == software.precision
                and all(run.row[name] == plain.row[name] for name in SAME)
            ):
                yield place, other


TEXT: Final = """### Runs that are kept apart

No coefficient was fitted to these runs: hybrids on accelerators and of a size that the fit has not
seen, and mixtures whose experts have a precision of their own. The scan of a hybrid counts at the
rate of a published kernel of another kind (a gated delta rule on GB200); that it grows with the
32-bit units of an accelerator, and not with its matrix units or exponentials, was chosen while
looking at them. What is left of the factor of hybrids was fitted to five runs of one model. The
band of hybrids is that of these errors.

Nemotron 3 Super and 3.5 Lightning learn two further tokens at each position
([decision 99](decisions/0099-further-tokens.md)). Super's runs in NVFP4 have the last 14 of 88
layers in 16 bit too, which nothing here counts. NeMo AutoModel says nothing of recomputation:
where a job does not fit without, as much is assumed as memory makes necessary, and it was less.
Left out are runs of models whose shape is not listed, those that recompute single modules, and
those whose accelerator or precision no source names.
"""
GAIN_TEXT: Final = """What another precision of experts gains, in pairs of runs of one source that
differ in nothing else. A run with two precisions is taken for a tenth slower, as one that nobody
measured; the runs of Llama 4 have two layers, and their grouped products in 16 bit are slow.
"""
