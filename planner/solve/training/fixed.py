"""Estimate a training job on a given cluster, in its fastest or a given layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import InfeasibleError, Problem
from planner.figures import duration
from planner.solve.training.cluster import LONGEST_RUN_S, Cluster
from planner.solve.training.machine_layouts import (
    SHOWN_LAYOUTS,
    layout_searches,
    possible_layouts,
    timed_layouts,
)
from planner.solve.training.predict import predict_run
from planner.solve.training.requirement import YEAR_S
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from decimal import Decimal

    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.training.job import ParallelLayout, Recompute
    from planner.perf.training.layout_search import LayoutSearch, TimedLayout
    from planner.solve.solution import BandedPrediction
    from planner.solve.training.requirement import TrainingRequirement

RECOMPUTE_MODES: Final[dict[str, Recompute]] = {
    "none": "none",
    "layer": "layer",
    "full": "full",
}
STOPS_ADVICE: Final = (
    "use fewer machines, ones with a faster network, or fewer tokens"
)
MEMORY_ADVICE: Final = (
    "use more machines, more tp or pp, or a smaller precision"
)


class TrainingEstimate(Struct, frozen=True, kw_only=True):
    """A training job on a given cluster, with predictions for its fastest layout.

    offer         machine type, region, purchase option and price
    nodes         machines that train
    layouts       fastest layouts, in the order of their step time
    predicted     predictions for the first layout, by metric name
    hours         duration that holds with the required confidence, hours
    expected_usd  cost of the mean run, USD
    """

    offer: Offer
    nodes: int
    layouts: tuple[TimedLayout, ...]
    predicted: dict[str, BandedPrediction]
    hours: float
    expected_usd: Decimal


def estimate_training(
    requirement: TrainingRequirement,
    offer: Offer,
    nodes: int,
    fixed_options: Mapping[str, str],
    price_book: PriceBook,
) -> TrainingEstimate:
    """Return the estimate in the fastest layout that matches `fixed_options`.

    Raises InfeasibleError when no precision is supported, no layout matches, none of those fits
    in memory, or the run takes longer than `LONGEST_RUN_S`.
    """
    layout_options = {
        option: setting
        for option, setting in fixed_options.items()
        # Precision selects a search; the other options select layouts in it.
        if option != "precision"
    }
    precision = fixed_options.get("precision")
    requirement = (
        replace(requirement, precisions=(precision,))
        if precision
        else requirement
    )
    instance = offer.instance
    search_spaces = layout_searches(requirement, instance, nodes)
    if not search_spaces:
        names = [*requirement.precisions, requirement.expert_precision]
        message = f"{instance.accelerator} does not run {', '.join(filter(None, names))}"
        raise _infeasible(message, "choose another precision")
    # Options need every layout; without them the search has bounds.
    if layout_options:
        fitting_layouts = [
            timed_layout
            for search_space in search_spaces
            for timed_layout in _matching_layouts(search_space, layout_options)
        ]
    else:
        fitting_layouts = [
            timed_layout
            for search_space in search_spaces
            for timed_layout in search_space.fastest(SHOWN_LAYOUTS)
        ]
    if not fitting_layouts:
        message = (
            f"no layout of {requirement.llm.model} fits in "
            f"{instance.node.memory_gib:,.1f} GiB each"
        )
        raise _infeasible(message, MEMORY_ADVICE)
    best_layouts = sorted(
        fitting_layouts, key=lambda candidate: candidate.sort_key
    )[:SHOWN_LAYOUTS]
    cluster = Cluster(requirement, offer, nodes, best_layouts[0])
    _check_ends(cluster)
    return TrainingEstimate(
        offer=offer,
        nodes=nodes,
        layouts=tuple(best_layouts),
        predicted=predict_run(cluster),
        # Quantile of the simulated runs, as in the final check of a plan.
        hours=cluster.end_quantile_s(requirement.confidence) / SECONDS_PER_HOUR,
        expected_usd=cluster.expected_bill(price_book).total,
    )


def _check_ends(cluster: Cluster) -> None:
    """Raise InfeasibleError when a run practically never ends, and say what keeps it."""
    if cluster.ends:
        return
    years = LONGEST_RUN_S / YEAR_S
    message = f"the mean run takes more than {years:,.0f} years"
    if cluster.progress_s > LONGEST_RUN_S:
        work_years = cluster.progress_s / YEAR_S
        message += f": its steps alone take {work_years:,.0f}"
        raise _infeasible(message, "use more machines, or fewer tokens")
    stop = duration(cluster.hazard.mtbf_s)
    pause = duration(cluster.checkpoint_load_s)
    message += (
        f": one of {cluster.nodes:,} machines stops every {stop}, "
        f"and a checkpoint is loaded in {pause}"
    )
    raise _infeasible(message, STOPS_ADVICE)


def _matching_layouts(
    search_space: LayoutSearch, layout_options: Mapping[str, str]
) -> Iterator[TimedLayout]:
    """Return the layouts that match `layout_options` and fit in memory.

    Without the option `recompute` each layout gets the least recomputation with which it fits.
    """
    exact_options = {
        option: setting
        for option, setting in layout_options.items()
        # Recomputation is chosen by memory after the parallel sizes are fixed.
        if option != "recompute"
    }

    def is_asked_for(candidate: ParallelLayout) -> bool:
        return all(
            _matches(getattr(candidate, option), setting)
            for option, setting in exact_options.items()
        )

    layouts = possible_layouts(
        search_space, shards_pipelines="sharding" in exact_options
    )
    asked_layouts = [*filter(is_asked_for, layouts)]
    # The options contradict the rules of layouts, whatever the memory.
    if not asked_layouts:
        option_text = ", ".join(
            f"{option} {setting}" for option, setting in exact_options.items()
        )
        message = f"no layout over {search_space.accelerators} accelerators in batches of "
        message += (
            f"{search_space.job.global_batch:,.0f} sequences has {option_text}"
        )
        raise _infeasible(message, "leave one of them out")
    return timed_layouts(
        search_space,
        asked_layouts,
        RECOMPUTE_MODES.get(layout_options.get("recompute", "")),
    )


def _matches(attribute: float | str, setting: str) -> bool:
    return (
        attribute == setting
        if isinstance(attribute, str)
        # Options arrive as text; parallel sizes are numbers.
        else attribute == float(setting)
    )


def _infeasible(message: str, next_step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=next_step)
    )
