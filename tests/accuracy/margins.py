"""Margins from the cross-validations: how much slower than predicted the rates of a replica are.

The error of a row is the logarithm of the factor by which a rate has to be slowed, so that the
prediction without the row's source is what was measured:

    decode      ln(measured / predicted time per token). With decode steps and prompts slower by
                one factor the time per token is longer by that factor, so it is the error of both.
    prefill     the factor on the time of prompts and on the fixed delay before the first token
                with which the time to first token is met, decode steps being as slow as measured
    throughput  ln(predicted / measured)

Decode and prefill are from the load whose bands apply to a plan: closed loops of vLLM, which is
what a plan starts, with no more users than slots, since beyond them the wait for a slot hides the
rates. Other loads only judge the margins:

    closed loops of TensorRT-LLM   where prompts and answers are equally long, first tokens wait
                                   for each other, up to three times as long: that is no rate
    its open loops                 measured without a server in front: all errors of prefill are
                                   on the safe side, by a factor of two to six
    servers of MLPerf              tuned to a limit on the first token, which they hold back as
                                   long as that allows: a setting, not a rate

All but two rows of vLLM are of one source, on Hopper, which has a row of its own in the table.
The cell of those two, on A100, is all that says how far another architecture may be off, so it
counts as much as one of fifteen rows. docs/accuracy.md shows which share of the rows of each
engine and accelerator is within a plan.

Rows of a cell (a deployment on one cluster) are not independent. With n cells of k rows each, the
mean is that of the means of cells, and the variance of a single row of a new cell is

    variance of the means + variance within cells * (1 - mean of 1 / k)

because the means already contain 1 / k of the variance within. The covariance of decode and
prefill is taken alike. Within a cell a row counts as no faster and no slower than the SETTLED
quantiles of its cell: one point of a load test that took twice as long as its neighbors is a bad
run, and a service outlasts it. Coverage is judged on all rows as they were measured.

`python -m tests.accuracy.margins` rewrites the table for the coefficients as they stand.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from planner.perf.serving import load_shape
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.margin import RateError, RateMargins, rate_margins
from tests.accuracy import apart
from tests.accuracy.bands import (
    AS_OF,
    SOURCE,
    loose,
    of_few_sources,
    of_load,
)
from tests.accuracy.cross import USUAL, WHOLE, Scheme, leave, load, whole
from tests.accuracy.fit import server
from tests.accuracy.least import DATA, Array, current, write
from tests.accuracy.sample import Batch, Sample

TABLE: Final = "margins.csv"
SERVED: Final = "closed vllm"
OFFLINE: Final = "offline"
CLOSED: Final = "closed"
# Logarithms of the factors between which that of prompts is searched.
SLOWEST: Final = 4.0
HALVINGS: Final = 40
# Cells from which an architecture has rows of its own.
FEWEST: Final = 8
ANY: Final = "*"
# Quantiles of a cell within which its rows count.
SETTLED: Final = (0.2, 0.8)
FIGURES: Final = ("mean", "sigma", "correlation")


@dataclass(frozen=True, slots=True)
class Moments:
    """Means, variances and covariance of two errors over single rows of new cells."""

    means: Array
    covariance: Array
    cells: int
    rows: int

    @property
    def sigmas(self) -> Array:
        """Standard deviations of both errors."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> float:
        """Correlation of both errors."""
        return float(self.covariance[0, 1] / np.prod(self.sigmas))


def moments(cells: Sequence[Array]) -> Moments:
    """Return the moments of pairs of errors; a cell has one pair a row."""
    numbers = np.array([len(found) for found in cells])
    means = np.array([found.mean(axis=0) for found in cells])
    deviations = np.concatenate([x - x.mean(axis=0) for x in cells])
    within = deviations.T @ deviations / (numbers.sum() - len(cells))
    between = np.cov(means.T)
    return Moments(
        means=means.mean(axis=0),
        covariance=between + within * (1 - np.mean(1 / numbers)),
        cells=len(cells),
        rows=int(numbers.sum()),
    )


def rate_of(cells: Sequence[Array]) -> RateError:
    """Return the first error of these cells as a plan takes it."""
    found = moments([settled(of_cell) for of_cell in cells])
    return RateError(
        mean=float(found.means[0]),
        sigma=float(found.sigmas[0]),
        cells=found.cells,
    )


def settled(of_cell: Array) -> Array:
    """Return the rows of a cell with the errors of bad runs moved to quantiles of the cell."""
    return np.clip(of_cell, *np.quantile(of_cell, SETTLED, axis=0))


def by_cell(batch: Batch, values: Array, here: Array) -> list[Array]:
    """Return the values of the rows that are `here`, grouped by cell."""
    found = defaultdict(list)
    for place in np.flatnonzero(here):
        found[batch.samples[place].cell].append(values[place])
    return [np.array(of_cell) for of_cell in found.values()]


def slowed(
    batch: Batch, parameters: Array, decode: Array, prefill: Array
) -> Array:
    """Predict time per token and time to first token of closed and open loops.

    Decode steps take `decode` times as long, prompts and the fixed delay `prefill` times. In
    units of `decode` only prompts are slower, and arrivals are more frequent.
    """
    c = batch.coefficients(parameters)
    s = server(batch, c)
    ratio = prefill / decode
    s = replace(
        s,
        coefficients=replace(c, first_token=c.first_token * ratio),
        prompt_busy_s=s.prompt_busy_s * ratio,
        idle_prompt_s=s.idle_prompt_s * ratio,
    )
    loop = load_shape.closed_latency(s, batch.users)
    # Open loops are taken at the measured batch, as the fit takes them.
    flight = batch.rate * batch.answer * batch.tpot
    step = c.server_time * load_shape.tpot_at_batch(s, np.maximum(flight, 1e-3))
    came = load_shape.open_latency(s, batch.rate * decode, step)
    closed = batch.group == "closed"
    return decode * np.array(
        [
            np.where(closed, loop.tpot_s, step),
            np.where(closed, loop.ttft_s, came.ttft_s),
        ]
    )


def latency_errors(batch: Batch, scheme: Scheme) -> Array:
    """Return the errors of decode and prefill of each row; decode is NaN without both."""
    decode = np.where(batch.ttft > 0, -scheme.found.tpot, np.nan)
    low = np.full(len(decode), -SLOWEST)
    high = np.full(len(decode), SLOWEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        _, ttft = _predicted(batch, scheme, np.exp(decode), np.exp(middle))
        low = np.where(ttft < batch.ttft, middle, low)
        high = np.where(ttft < batch.ttft, high, middle)
    return np.stack([decode, low], axis=-1)


def _predicted(
    batch: Batch, scheme: Scheme, decode: Array, prefill: Array
) -> Array:
    return scheme.by_fit(lambda fit: slowed(batch, fit, decode, prefill))


def _sure(batch: Batch) -> Array:
    return (batch.quality == "A") & ~loose(batch)


def _within_slots(batch: Batch, fitted: Array) -> Array:
    """Whether no closed loop has more users than the replica of this fit has slots.

    The fp8 cache of vLLM counts as one of 16 bit, which overflows twice as early: on H100 it did,
    and what then waits for a slot is no rate.
    """
    slots: Array = server(batch, batch.coefficients(fitted)).max_batch
    slots = slots * np.where(batch.of_fp8_cache, 0.5, 1.0)
    return (batch.group != "closed") | (batch.users <= slots)


def rows(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table. The first scheme is that of all data."""
    fitted = schemes[0].fits[WHOLE]
    served = (
        of_load(batch, SERVED) & _sure(batch) & _within_slots(batch, fitted)
    )
    offline = of_load(batch, OFFLINE) & _sure(batch)
    schemes = schemes[: len(USUAL) + 1]
    for scheme in schemes:
        errors = latency_errors(batch, scheme)
        yield from _rows(
            batch, scheme, ("decode", "prefill"), SERVED, errors, served
        )
    yield from _vendor_rows(batch, schemes)
    yield from _apart_rows()
    for scheme in schemes:
        errors = np.stack([scheme.found.throughput] * 2, axis=-1)
        yield from _rows(
            batch, scheme, ("throughput",), OFFLINE, errors, offline
        )


def _vendor_rows(
    batch: Batch, schemes: Sequence[Scheme]
) -> Iterator[dict[str, Any]]:
    """Yield the errors of vendors of which no load has several sources, of any engine."""
    here = (
        of_load(batch, CLOSED)
        & _sure(batch)
        & _within_slots(batch, schemes[0].fits[WHOLE])
        & of_few_sources(batch)
    )
    source = next(x for x in schemes if x.name == "source")
    for scheme, new in ((source, "vendor"), (schemes[0], "vendor fitted")):
        errors = latency_errors(batch, scheme)
        cells = by_cell(batch, errors, here & np.isfinite(errors[:, 0]))
        found = moments([settled(of_cell) for of_cell in cells])
        for index, target in enumerate(("decode", "prefill")):
            yield _table_row((target, CLOSED, ANY, new), index, found)


def _apart_rows() -> Iterator[dict[str, Any]]:
    """Yield the errors of decoding of architectures that are kept apart, of any engine.

    Their prompts and answers are of other runs, so nothing tells how both errors go together.
    """
    batch = apart.load()
    errors = np.stack([apart.errors("tpot")] * 2, axis=-1)
    loops = of_load(batch, CLOSED) & np.isfinite(errors[:, 0])
    kinds = apart.architectures()
    for kind in sorted(set(kinds)):
        cells = by_cell(batch, errors, loops & (kinds == kind))
        if len(cells) < FEWEST:
            continue
        found = moments([settled(of_cell) for of_cell in cells])
        row = _table_row(("decode", CLOSED, kind, "source"), 0, found)
        yield {**row, "correlation": "0.000"}


def _table_row(
    name: tuple[str, str, str, str], index: int, found: Moments
) -> dict[str, Any]:
    target, load, architecture, new = name
    return {
        "target": target,
        "load": load,
        "architecture": architecture,
        "new": new,
        "mean": f"{found.means[index]:z.3f}",
        "sigma": f"{found.sigmas[index]:.3f}",
        "correlation": f"{found.correlation:z.3f}",
        "cells": found.cells,
        "rows": found.rows,
        "source": SOURCE,
        "as_of": AS_OF,
    }


def _rows(
    batch: Batch,
    scheme: Scheme,
    targets: Sequence[str],
    load: str,
    errors: Array,
    here: Array,
) -> Iterator[dict[str, Any]]:
    kinds = np.array(
        [s.setup.node.accelerator.architecture for s in batch.samples]
    )
    chosen = {ANY: here}
    # Only left-out sources are what a user's cluster is.
    if scheme.name == "source":
        chosen |= {
            kind: here & (kinds == kind) for kind in sorted(set(kinds[here]))
        }
    for architecture, places in chosen.items():
        cells = by_cell(batch, errors, places & np.isfinite(errors[:, 0]))
        if len(cells) < FEWEST:
            continue
        found = moments([settled(of_cell) for of_cell in cells])
        for index, target in enumerate(targets):
            new = "none" if scheme.name == WHOLE else scheme.name
            yield _table_row((target, load, architecture, new), index, found)


def difference(batch: Batch, schemes: Sequence[Scheme]) -> float:
    """Return by how much a figure of the stored table differs most; infinity for other rows."""
    stored = csv.DictReader(
        (DATA / TABLE).read_text(encoding="utf-8").splitlines()
    )
    before = {_key(row): row for row in stored}
    after = {_key(row): row for row in rows(batch, schemes)}
    if before.keys() != after.keys():
        return float("inf")
    return max(
        abs(float(row[name]) - float(before[key][name]))
        for key, row in after.items()
        for name in FIGURES
    )


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        str(value)
        for name, value in row.items()
        if name not in (*FIGURES, "source", "as_of")
    )


def met(batch: Batch, scheme: Scheme, level: float, here: Array) -> float:
    """Return the share of rows with both mean times, TPOT and TTFT, within what is planned.

    Each row is predicted without its group, with the margins that a plan takes at `level`.
    """
    here = judged(batch, here)
    return float(np.mean(kept(batch, scheme, level, here)[here]))


def judged(batch: Batch, here: Array) -> Array:
    """Which rows say whether a plan holds: sure ones with both mean times."""
    return here & _sure(batch) & (batch.tpot > 0) & (batch.ttft > 0)


def kept(batch: Batch, scheme: Scheme, level: float, here: Array) -> Array:
    """Return which of the rows that are `here` have both mean times within what is planned."""
    margins = [
        _margins(sample, level) if is_here else RateMargins(1.0, 1.0)
        for sample, is_here in zip(batch.samples, here, strict=True)
    ]
    tpot, ttft = _predicted(
        batch,
        scheme,
        np.array([x.decode for x in margins]),
        np.array([x.prefill for x in margins]),
    )
    within: Array = here & (batch.tpot <= tpot) & (batch.ttft <= ttft)
    return within


def _margins(sample: Sample, level: float) -> RateMargins:
    setup = sample.setup
    prompt, answer = setup.demand.prompt_tokens, setup.demand.answer_tokens
    return rate_margins(
        level,
        setup.llm,
        setup.layout,
        setup.node.accelerator,
        ServingLoad(
            prompt_lengths=LengthDistribution(
                mean_tokens=prompt, p95_tokens=prompt
            ),
            answer_lengths=LengthDistribution(
                mean_tokens=answer, p95_tokens=answer
            ),
        ),
        engine_kind=setup.engine.kind,
        metrics=("tpot", "ttft"),
    )


def loops(batch: Batch, fitted: Array) -> Array:
    """Whether each row is a loop like those of plans: closed within its slots, or open."""
    loop = np.isin(batch.group, ("closed", "open"))
    return loop & _within_slots(batch, fitted)


def save(batch: Batch, schemes: Iterable[Scheme]) -> None:
    """Write the table whole."""
    write(TABLE, list(rows(batch, list(schemes))))


def main() -> None:
    """Rewrite the table for the coefficients as they stand."""
    with np.errstate(all="ignore"):
        batch, _ = load()
        now = current(SERVING)
        left_out = [leave(batch, name) for name in USUAL]
        save(batch, [whole(batch, now), *left_out])


if __name__ == "__main__":
    main()
