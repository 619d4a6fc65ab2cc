"""One published run taken for one's own: what it does to the error of the others like it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np

from planner.perf.training.correction import (
    RunKind,
    learn_bias,
    run_kind,
)
from planner.perf.training.error_band import half_width_ln
from tests.accuracy.least import Array
from tests.accuracy.training import Batch

Schemes = Mapping[str, tuple[Array, Array]]
FEWEST: Final = 2  # runs of a group, one of which teaches
# Groups that the page shows one by one.
SHOWN: Final = (
    ("llm_foundry_a100_40", "mpt-350m"),
    ("maxtext_v6e", "gemma-3-12b"),
    ("torchtitan_2024_a100", "llama-2-13b"),
)


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean error of the other runs of a group before and after one of them taught, in percent."""

    name: tuple[str, str]
    runs: int
    before: float
    after: float
    inside: float


def gains(batch: Batch, schemes: Schemes) -> list[Gain]:
    """Every group of runs of one kind and release, their source left out of the fit.

    Each run teaches in turn, alone, and all others of its group are predicted.
    """
    ratios = schemes["family"][0]
    groups: dict[tuple[str, str, RunKind], list[int]] = defaultdict(list)
    for place, run in enumerate(batch.runs):
        if run.row["quality"] == "A" and np.isfinite(ratios[place]):
            key = (
                run.row["source_group"],
                run.row["framework_version"],
                run_kind(run.read.job),
            )
            groups[key].append(place)
    return [
        _gain((source, kind.model), batch, ratios, places)
        for (source, _, kind), places in sorted(groups.items())
        if len(places) >= FEWEST
    ]


def _gain(
    name: tuple[str, str], batch: Batch, ratios: Array, places: list[int]
) -> Gain:
    before = []
    after = []
    inside = []
    for teacher, other in permutations(places, 2):
        # A run that is predicted too fast takes longer than predicted by as much.
        bias, half = learn_bias(
            [float(ratios[teacher])],
            half_width_ln(batch.runs[teacher].read.job),
        )
        left = float(ratios[other]) - bias
        before.append(abs(np.expm1(ratios[other])))
        after.append(abs(np.expm1(left)))
        inside.append(abs(left) <= half)
    return Gain(
        name,
        len(places),
        100 * float(np.mean(before)),
        100 * float(np.mean(after)),
        100 * float(np.mean(inside)),
    )
