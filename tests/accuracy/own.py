"""A calibration of ten points of one deployment, judged on its other rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.perf.serving import load_shape
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.correction import (
    FeatureVector,
    feature_vector,
    posterior,
)
from tests.accuracy.cross import Scheme
from tests.accuracy.fit import server
from tests.accuracy.least import Array, current
from tests.accuracy.sample import Batch

TAUGHT: Final = 10
FEWEST: Final = 15
DRAWS: Final = 5
DEPLOYMENT: Final = (
    "source_group",
    "model",
    "gpu",
    "weight_precision",
    "tp",
    "pp",
    "ep",
    "framework",
)


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean error over rows before and after, and how many deployments there are."""

    before: float
    after: float
    deployments: int


def gain(batch: Batch, scheme: Scheme, target: str) -> Gain:
    """Teach ten rows of each deployment, whose source the coefficients have not seen."""
    ratio = -scheme.ratio(target)
    with np.errstate(all="ignore"):
        flight = load_shape.closed_latency(
            server(batch, batch.coefficients(current(SERVING))), batch.users
        ).batch_size
    before = []
    after = []
    groups = list(_deployments(batch, ratio))
    for places in groups:
        for draw in range(DRAWS):
            chosen = set(random.Random(draw).sample(places, TAUGHT))
            told = [
                (_at(batch, flight, i), float(ratio[i])) for i in sorted(chosen)
            ]
            belief = posterior(target, told)
            for i in set(places) - chosen:
                left = float(ratio[i]) - belief.mean(_at(batch, flight, i))
                before.append(abs(float(np.expm1(-ratio[i]))))
                after.append(abs(float(np.expm1(-left))))
    return Gain(float(np.mean(before)), float(np.mean(after)), len(groups))


def _at(batch: Batch, flight: Array, place: int) -> FeatureVector:
    context = batch.prompt[place] + batch.answer[place] / 2
    return feature_vector(float(flight[place]), float(context))


def _deployments(batch: Batch, ratio: np.ndarray) -> Iterator[list[int]]:
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    here = (
        (batch.group == "closed") & (batch.quality == "A") & np.isfinite(ratio)
    )
    for place in np.flatnonzero(here):
        row = batch.samples[place].row
        found[tuple(row[name] for name in DEPLOYMENT)].append(int(place))
    yield from (places for places in found.values() if len(places) >= FEWEST)
