"""What to expect of a prediction, by engine, family of models and accelerator, under each load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from tests.accuracy.cross import LEAVES, Scheme
from tests.accuracy.sample import Batch, Sample

FEWEST: Final = 3  # rows of a figure
TARGETS: Final = ("throughput", "tpot", "ttft", "within")
LOADS: Final[Mapping[str, tuple[str, ...]]] = {
    "saturated": ("offline",),
    "one batch": ("static",),
    "all at once": ("burst",),
    "closed loop": ("closed",),
    "given rate": ("open", "server"),
}
KINDS: Final[Mapping[str, Callable[[Sample], str]]] = {
    "engine": LEAVES["engine"],
    "family": LEAVES["family"],
    "accelerator": LEAVES["maker"],
}


def rows(batch: Batch, scheme: Scheme) -> Iterator[tuple[str, ...]]:
    """Yield kind, name, load, the median errors of the targets with their bias, and rows.

    Rows are of quality A, each predicted without its source.
    """
    sure = batch.quality == "A"
    for kind, value in KINDS.items():
        names = np.array([value(sample) for sample in batch.samples])
        for name in sorted(set(names[sure])):
            for load, groups in LOADS.items():
                here = sure & (names == name) & np.isin(batch.group, groups)
                figures = [
                    _figure(scheme.ratio(target)[here]) for target in TARGETS
                ]
                if any(figures):
                    yield kind, name, load, *figures, str(int(here.sum()))


def _figure(ratio: np.ndarray) -> str:
    """The median error and the median bias, or nothing of too few rows."""
    found = ratio[np.isfinite(ratio)]
    if len(found) < FEWEST:
        return ""
    error = float(np.median(np.abs(np.expm1(found))))
    bias = float(np.expm1(np.median(found)))
    return f"{100 * error:.0f} % ({100 * bias:+.0f})"
