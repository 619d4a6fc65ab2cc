"""How much slower than predicted a replica is planned, so that its limits hold with confidence.

An error is ln(measured / predicted) of a rate: the logarithm of the factor by which decode steps
or prompts have to be slowed until the prediction is what was measured. A plan is one row of a
cell (a deployment on one cluster) that nobody has measured, hence with the mean m and the
standard deviation s of rows of n cells

    factor = max(1, exp(m + t(p, n - 1) * s * sqrt(1 + 1 / n)))

where t is the quantile of Student's distribution: the factor covers the error with chance p.
Nobody plans with a chance below one half. To ask for one is to ask what would do if the machines
turned out to be that fast, so such a factor may be below 1.
Sources of the measurements were left out of the fit that predicted them (tests/accuracy).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.numeric import (
    EVEN_ODDS,
    Z_OF_90_PERCENT_BAND,
    bisect_up,
    both_below,
    normal_quantile,
    student_quantile,
)
from planner.perf.common.constant import constant
from planner.perf.serving.error_band import (
    APART,
    FEW_KINDS,
    LEFT_OUT_KINDS,
    NEW_APART,
    NOVELTY_KINDS,
    Basis,
    assess_novelty,
    error_band,
    extrapolation,
    load_of_engine,
    novelty_excess,
    unseen_factor,
    unstated_excess,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.error_band import Band
    from planner.perf.serving.load import ServingLoad

LimitedMetric: TypeAlias = Literal["ttft", "tpot", "e2e", "throughput"]
RateTarget: TypeAlias = Literal["decode", "prefill", "throughput"]

LEVELS: Final = (
    0.01,
    0.99,
)  # the chances that tables of errors of so few cells answer for
ANY_ARCHITECTURE: Final = "*"
OFFLINE_LOAD: Final = "offline"
CLOSED_LOAD: Final = "closed"  # of all engines
# The metric whose growth beyond the measured ranges is that of a rate.
GROWTH_METRICS: Final[dict[RateTarget, str]] = {
    "decode": "tpot",
    "prefill": "ttft",
    "throughput": "throughput",
}
JOINT_STEPS: Final = 40  # halvings of the bracket of a joint quantile


class RateError(Struct, frozen=True, kw_only=True):
    """The distribution of an error over rows of cells that nobody has measured.

    mean         of the means of cells, ln
    sigma        standard deviation of a single row of a new cell, ln
    cells        number of cells behind both
    correlation  of the errors of decoding and of prompts; 1 where they share one error
    """

    mean: float
    sigma: float
    cells: int
    correlation: float = 1.0

    def slowdown(self, probability: float) -> float:
        """Return the factor that covers the error with `probability`: `at_least_predicted`."""
        # The mean of n cells is itself uncertain by sigma / sqrt(n).
        spread = self.sigma * math.sqrt(1 + 1 / self.cells)
        quantile = student_quantile(probability, self.cells - 1)
        return at_least_predicted(
            math.exp(self.mean + quantile * spread), probability
        )


class RateMargins(Struct, frozen=True):
    """Factors on the times of a replica before it is simulated, at least 1 from even odds on.

    decode   on the time of decode steps
    prefill  on the time that a prompt occupies the replica, on that of a prompt on an idle
             replica, and on the fixed delay before the first token
    """

    decode: float
    prefill: float


NO_MARGINS: Final = RateMargins(1.0, 1.0)


def at_least_predicted(factor: float, probability: float) -> float:
    """Return a factor on a time, at least 1 where it holds as often as not.

    A replica is never planned faster than predicted.
    """
    return max(1.0, factor) if probability >= EVEN_ODDS else factor


def rate_margins(
    level: float,
    llm: Llm,
    layout: ReplicaLayout,
    accelerator: Accelerator,
    load: ServingLoad,
    *,
    engine_kind: str,
    metrics: Collection[LimitedMetric],
    is_borrowed: bool = False,
) -> RateMargins:
    """Return how much slower a replica is planned, so that `metrics` keep their limits.

    All of them hold together with chance `level`, within `LEVELS`. The factors grow with it,
    and at 0.5 they may be above 1: two limits hold together less often than each of them.
    `is_borrowed` is that of `rate_error`. Raises ValueError outside of that range.
    """
    if not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(f"confidence {level} is not within {LEVELS}")
    error_of = rate_errors(
        llm,
        layout,
        accelerator,
        load,
        engine_kind=engine_kind,
        is_borrowed=is_borrowed,
    )
    if set(metrics) <= {"throughput"}:
        slowdown = error_of("throughput").slowdown(level)
        return RateMargins(slowdown, slowdown)
    return latency_margins(
        level, error_of("decode"), error_of("prefill"), metrics
    )


def rate_errors(
    llm: Llm,
    layout: ReplicaLayout,
    accelerator: Accelerator,
    load: ServingLoad,
    *,
    engine_kind: str,
    is_borrowed: bool = False,
) -> Callable[[RateTarget], RateError]:
    """Return the error of each rate of a replica that nobody has measured."""
    novelties, basis = assess_novelty(
        llm,
        layout,
        accelerator,
        engine_kind,
        # How often guesses are right is assumed.
        unstated_settings=load.drafting is not None,
    )
    doublings, _ = extrapolation(
        prompt=load.prompt_lengths.mean_tokens,
        answer=load.answer_lengths.mean_tokens,
        active=llm.active_params,
        accelerators=layout.accelerators,
    )

    def error_of(target: RateTarget) -> RateError:
        return rate_error(
            target,
            accelerator.architecture,
            novelties,
            basis,
            doublings,
            engine_kind=engine_kind,
            is_borrowed=is_borrowed,
        )

    return error_of


def latency_margins(
    level: float,
    decode_error: RateError,
    prefill_error: RateError,
    metrics: Collection[LimitedMetric],
) -> RateMargins:
    """Return the factors with which limits on latency hold with chance `level`.

    tpot alone     both rates slowed by the error of decoding, which is that of the whole time
                   per token, with the prompts that interrupt it
    one other      each rate slowed at `level`: the time is a sum of parts of both, so that
                   both errors have to be bad at once
    several        each rate slowed at the level q at which P(both errors covered) = level

    Prompts are never slowed less than decoding, so that the time per token grows by at least
    the factor of decoding.
    """
    if set(metrics) == {"tpot"}:
        slowdown = decode_error.slowdown(level)
        return RateMargins(slowdown, slowdown)
    probability = (
        joint_probability(level, decode_error.correlation)
        if len(set(metrics)) > 1
        else level
    )
    decode_slowdown = decode_error.slowdown(probability)
    return RateMargins(
        decode_slowdown,
        max(decode_slowdown, prefill_error.slowdown(probability)),
    )


def benchmark_margins(
    level: float,
    decode_band: Band,
    prefill_band: Band,
    metrics: Collection[LimitedMetric],
    error_of: Callable[[RateTarget], RateError] | None,
) -> RateMargins:
    """Return the margins of a deployment with a benchmark, by its two bands.

    Nothing is known of how the errors that are left go together: they count as independent.

    `error_of` gives the error of the deployment had nobody measured it. A measured layout is never
    less sure: the spread of that error, around what the benchmark found, bounds both factors. None
    where another layout was measured, to which a bias may not carry over.
    """
    several_limits = len(set(metrics)) > 1
    probability = joint_probability(level, 0.0) if several_limits else level

    def slowdown(band: Band, target: RateTarget) -> float:
        measured = at_least_predicted(band.quantile(probability), probability)
        if error_of is None:
            return measured
        unmeasured = replace(error_of(target), mean=0.0)
        bound = unmeasured.slowdown(probability)
        # What is less sure lies further from 1, on either side of it.
        nearer = min if probability >= EVEN_ODDS else max
        return nearer(measured, bound)

    decode_slowdown = slowdown(decode_band, "decode")
    return RateMargins(
        decode_slowdown,
        max(decode_slowdown, slowdown(prefill_band, "prefill")),
    )


@cache
def joint_probability(level: float, correlation: float) -> float:
    """Return the chance that each of two errors needs, so that both are covered at `level`.

    The errors are joined as normal numbers with that correlation. The chance is `level` at
    correlation 1, its square root at 0, and never above (1 + level) / 2 (Bonferroni).
    """
    low, high = level, (1 + level) / 2
    return bisect_up(
        lambda chance: (
            both_below(normal_quantile(chance), correlation) >= level
        ),
        low,
        high,
        JOINT_STEPS,
    )


@cache
def rate_error(
    target: RateTarget,
    architecture: str,
    novelties: frozenset[str],
    basis: Basis,
    doublings: int = 0,
    *,
    engine_kind: str = DEFAULT_ENGINE,
    is_borrowed: bool = False,
) -> RateError:
    """Return the error of a rate, widened by what is new about a configuration.

        sigma^2 = source^2
                  + sum over new (family, GPU) of (left out^2 - fitted^2)
                  + number of new (pipeline, precision) * the larger of these two
                  + (doublings * error of one doubling)^2
                  + (a new vendor) mean square of left-out vendors - that in the fit
                  + (unstated settings) their error^2 - source^2, of the time per token

    An architecture without enough cells of its own counts as a new GPU. One that nobody
    measured at all has `unseen` times the sigma, what a new vendor adds excepted. So has one whose
    rows are kept apart, but for rates of which it has errors of its own, of any engine. An engine
    without rows of its own has those of the engine that is taken by itself; a plan that borrows
    them so adds `engine_variance`.
    """
    load_kind = OFFLINE_LOAD
    if target != "throughput":
        load_kind = load_of_engine(
            CLOSED_LOAD,
            engine_kind if has_own_errors(engine_kind) else DEFAULT_ENGINE,
        )
    error_rows = _error_rows()[load_kind]
    own = _error_rows()[CLOSED_LOAD].get((target, architecture, "source"))
    if own is not None and APART in novelties:
        novelties -= NEW_APART
    base = own or error_rows.get((target, architecture, "source"))
    if base is None:
        base = error_rows[target, ANY_ARCHITECTURE, "source"]
        novelties |= {"GPU"}
    fitted = error_rows[target, ANY_ARCHITECTURE, "none"]
    # Independent errors add in quadrature: the excess over the full fit.
    variance = base.sigma**2 + novelty_excess(
        novelties,
        {
            kind: error_rows[target, ANY_ARCHITECTURE, kind].sigma ** 2
            - fitted.sigma**2
            for kind in LEFT_OUT_KINDS
        },
    )
    # The constant is half the width of a 90 % band.
    growth = constant("beyond", GROWTH_METRICS[target]) / Z_OF_90_PERCENT_BAND
    variance += (doublings * growth) ** 2
    if is_borrowed and target != "throughput":
        variance += engine_variance()
    variance *= unseen_factor(novelties, basis) ** 2
    # A vendor is left out with its architectures: nothing of them is unseen beyond that.
    if "vendor" in novelties:
        variance += vendor_variance(target)
    if "loose" in novelties:
        variance += unstated_variance()
    return replace(base, sigma=math.sqrt(variance))


@cache
def vendor_variance(target: RateTarget) -> float:
    """Return what the variance of a rate grows by on accelerators of a new vendor, ln^2.

        mean^2 + sigma^2 of errors of vendors with one source, left out - the same in the fit

    The errors are of closed loops of any engine. They lie on one side, as those of one vendor do:
    of the next one only their size is known. Throughput is taken to err as decode steps do.
    """
    step_target = "decode" if target == "throughput" else target
    left_out, fitted = (
        _error_rows()[CLOSED_LOAD][step_target, ANY_ARCHITECTURE, kind]
        for kind in ("vendor", FEW_KINDS["vendor"])
    )
    return max(
        0.0,
        left_out.mean**2 + left_out.sigma**2 - fitted.mean**2 - fitted.sigma**2,
    )


def unstated_variance() -> float:
    """Return what the variance of a rate grows by with unstated settings, such as drafts, ln^2.

    First tokens of loops say nothing of a rate (`engine_variance`), so prompts and throughput are
    taken to be as much less certain as decoding. That such loops were faster than predicted on
    average is no reason to plan a replica faster: the mean stays.
    """
    return unstated_excess() / Z_OF_90_PERCENT_BAND**2


def has_own_errors(engine_kind: str) -> bool:
    """Return whether the rates of a service by an engine have errors of their own."""
    return load_of_engine(CLOSED_LOAD, engine_kind) in _error_rows()


@cache
def engine_variance() -> float:
    """Return what the variance of a rate grows by for an engine without errors of its own, ln^2.

        variance of the time per token in closed loops of all engines
        - that in those of the engine whose errors are taken

    by their bands, with sources left out. First tokens of other engines say nothing of a rate:
    their servers still compiled, or let prompts wait for each other (docs/accuracy.md). So prompts
    are taken to be as much less certain as decoding.
    """
    all_engines, default_engine = (
        math.log(band.high / band.low) / 2 / Z_OF_90_PERCENT_BAND
        for band in (
            error_band("tpot", load_kind, frozenset(), "calibrated")
            for load_kind in (
                CLOSED_LOAD,
                load_of_engine(CLOSED_LOAD, DEFAULT_ENGINE),
            )
        )
    )
    return max(0.0, all_engines**2 - default_engine**2)


@cache
def _error_rows() -> dict[str, dict[tuple[str, str, str], RateError]]:
    """Return the errors by kind of load, and by target, architecture and what is new."""
    columns: table.Columns = {
        "target": table.one_of(*GROWTH_METRICS),
        "load": table.nonempty_text,
        "architecture": table.nonempty_text,
        "new": table.one_of(*NOVELTY_KINDS),
        "mean": table.real_between(-2, 2),
        "sigma": table.real_between(0.001, 2),
        "correlation": table.real_between(-0.99, 1),
        "cells": table.integer_between(2, 10_000),
        "rows": table.integer_between(2, 100_000),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.load_rows("planner.perf", "margins.csv", columns)
    errors: dict[str, dict[tuple[str, str, str], RateError]] = {}
    for csv_row in csv_rows:
        error_key = csv_row["target"], csv_row["architecture"], csv_row["new"]
        errors.setdefault(csv_row["load"], {})[error_key] = RateError(
            mean=csv_row["mean"],
            sigma=csv_row["sigma"],
            cells=csv_row["cells"],
            correlation=csv_row["correlation"],
        )
    return errors
