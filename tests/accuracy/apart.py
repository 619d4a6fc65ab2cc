"""Rows that are kept apart: the fit of all others does not see them.

They are of TPUs (tests/data/truth/inference_apart.csv). No prediction of anything else moves with
them: fitted to them are factors of early vLLM on TPUs alone, given all other coefficients. Each
deployment is predicted with factors that were fitted without it.

Rows whose users are more than the slots of the replica are not scored: they wait for a slot, or
are computed again, which is no rate. Most rows are of quality B since their source does not say
whether it tabulates means or medians. By its throughputs they are medians, and a mean time per
token is up to 6 % longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import numpy as np

from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.error_band import (
    assess_novelty,
    error_band,
    load_of_accelerator,
)
from tests.accuracy.cross import TRUTH, Scheme, whole
from tests.accuracy.fit import SOFT, outcome, server
from tests.accuracy.least import (
    Array,
    Problem,
    current,
    save_held,
    solve,
)
from tests.accuracy.sample import Batch, read

TABLE: Final = TRUTH.with_name("inference_apart.csv")
KEYS: Final = ("vllm torch-xla",)  # whose factors are fitted to these rows
SPREAD: Final = 0.4  # of those factors around 1, ln
SHARED: Final = 0.5  # rows of a deployment are worth their number to this power
LEVEL: Final = 0.9
NUMBERS: Final = {"tpot": "TPOT", "ttft": "TTFT", "throughput": "throughput"}


@dataclass(frozen=True)
class ApartProblem(Problem):
    """A fit of the factors of `KEYS` alone; all other coefficients are as they stand."""

    @property
    def prior(self) -> Array:
        """The table as it stands, those factors being 1."""
        return np.where(_own_factors(), 0.0, current(self.book))

    @property
    def free(self) -> Array:
        """Places of those factors."""
        return np.flatnonzero(_own_factors())

    @property
    def spread(self) -> Array:
        """How far each of them may move."""
        return np.full(len(self.free), SPREAD)


def _own_factors() -> Array:
    return np.array([row.key in KEYS for row in SERVING.rows])


@cache
def load() -> Batch:
    """Read the rows; raises ValueError when one is refused."""
    samples, refused = read(TABLE.read_text(encoding="utf-8"))
    if refused:
        raise ValueError(refused[0])
    return Batch(samples)


def deployments(batch: Batch) -> Array:
    """Return the name of the deployment of each row."""
    return np.array([", ".join(sample.cell) for sample in batch.samples])


def scored(batch: Batch) -> Array:
    """Whether the users of each row are no more than the slots of its replica."""
    with np.errstate(all="ignore"):
        slots = server(batch, batch.coefficients(current(SERVING))).max_batch
    found: Array = (batch.group != "closed") | (batch.users <= slots)
    return found


def fitted(batch: Batch, train: Array) -> Array:
    """Return all parameters, those of `KEYS` fitted to the rows of `train`."""
    train = train & scored(batch)
    names = deployments(batch)
    count = Counter(names[train])
    each = np.array([max(1, count[name]) ** -SHARED for name in names])
    weight = np.where(train, each, 0.0)

    def residuals(parameters: Array) -> Array:
        found = outcome(batch, parameters)
        parts = (found.throughput, found.tpot, found.ttft)
        return np.concatenate([np.nan_to_num(x) for x in parts], axis=-1)

    # Before this maker had programs of its own an engine decoded more slowly. That is what the
    # factors are of, so times to the first token do not count.
    weights = np.concatenate([weight, weight, 0.0 * weight])
    return solve(ApartProblem(SERVING, weights, residuals, SOFT))


@cache
def left_out() -> Scheme:
    """Predict each deployment with factors that were fitted without it."""
    batch = load()
    groups = deployments(batch)
    names = sorted(set(groups))
    fits = {name: fitted(batch, groups != name) for name in names}
    result = whole(batch, current(SERVING))
    result = replace(result, name="deployment", groups=groups, fits=fits)
    with np.errstate(all="ignore"):
        parts = {
            target: result.by_fit(
                partial(_predicted_over_measured, batch, target)
            )
            for target in NUMBERS
        }
    return replace(result, found=replace(result.found, **parts))


def _predicted_over_measured(
    batch: Batch, target: str, parameters: Array
) -> Array:
    return getattr(outcome(batch, parameters), target)


def errors(target: str) -> Array:
    """Return ln(measured / predicted) of each row that is scored, NaN elsewhere."""
    return np.where(scored(load()), -left_out().ratio(target), np.nan)


def architectures() -> Array:
    """Return the architecture of each row."""
    return np.array(
        [x.setup.node.accelerator.architecture for x in load().samples]
    )


def save() -> None:
    """Write the factors into the table of coefficients, as values that no other fit moves."""
    batch = load()
    parameters = fitted(batch, np.ones(len(batch.samples), bool))
    save_held(SERVING, np.where(_own_factors(), parameters, np.nan))


def inside(target: str) -> Array:
    """Whether each scored row is inside the band that an estimate states; NaN elsewhere."""
    found = errors(target)
    for place in np.flatnonzero(np.isfinite(found)):
        setup = load().samples[place].setup
        novelties, basis = assess_novelty(
            setup.llm,
            setup.layout,
            setup.node.accelerator,
            setup.engine.kind,
        )
        load_kind, novelties = load_of_accelerator(
            target,
            setup.demand.load_kind,
            setup.engine.kind,
            setup.node.accelerator,
            novelties,
        )
        band = error_band(target, load_kind, novelties, basis)
        found[place] = band.low <= np.exp(found[place]) <= band.high
    return found


def unmodified() -> dict[str, Array]:
    """Return ln(measured / predicted) of the scored rows with the factors of `KEYS` at 1."""
    batch = load()
    plain = np.where(_own_factors(), 0.0, current(SERVING))
    with np.errstate(all="ignore"):
        return {
            target: np.where(
                scored(batch),
                -_predicted_over_measured(batch, target, plain),
                np.nan,
            )
            for target in NUMBERS
        }


def groups() -> Iterator[tuple[tuple[str, str, str], Array]]:
    """Yield the engine, accelerator and source of each group of rows, and which they are."""
    names = [
        (
            sample.row["framework"].split(" (")[0],
            sample.row["gpu"],
            sample.row["source_group"],
        )
        for sample in load().samples
    ]
    for name in sorted(set(names)):
        yield name, np.array([other == name for other in names])
