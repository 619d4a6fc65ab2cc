"""One exactly given cluster for a training job: its best layout, or the best of those named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from planner.errors import InfeasibleError, Problem
from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.cut import spreads
from planner.perf.train.search import Laid
from planner.perf.train.step import step
from planner.perf.train.work import work
from planner.solve.train.cluster import HOUR, Cluster
from planner.solve.train.machine import SHOWN, layouts
from planner.solve.train.predict import predict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from decimal import Decimal

    from planner.cost.price import PriceBook
    from planner.perf.train.job import Recompute, Spread
    from planner.perf.train.search import Layouts
    from planner.solve.offer import Offer
    from planner.solve.solution import Predicted
    from planner.solve.train.need import TrainNeed

AGAIN: Final[dict[str, Recompute]] = {
    "none": "none",
    "layer": "layer",
    "full": "full",
}
MORE: Final = "use more machines, more tp or pp, or a smaller precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A job on `nodes` machines: its best layouts, and what it would do in the first of them.

    The run ends within `hours` with the wished confidence, and costs `expected_usd` on average.
    """

    offer: Offer
    nodes: int
    layouts: tuple[Laid, ...]
    predicted: dict[str, Predicted]
    hours: float
    expected_usd: Decimal


def exactly(
    requirement: TrainNeed,
    offer: Offer,
    nodes: int,
    fixed_options: Mapping[str, str],
    price_book: PriceBook,
) -> Trained:
    """Return the job in the fastest layout that has what is given.

    Raises InfeasibleError when no layout has it, or none of those fits.
    """
    layout_options = {
        option: setting
        for option, setting in fixed_options.items()
        if option != "precision"
    }
    precision = fixed_options.get("precision")
    requirement = (
        replace(requirement, precisions=(precision,))
        if precision
        else requirement
    )
    instance = offer.instance
    search_spaces = layouts(requirement, instance, nodes)
    if not search_spaces:
        message = f"{instance.accelerator} does not run {', '.join(requirement.precisions)}"
        raise _impossible(message, "choose another precision")
    if layout_options:
        timed_layouts = [
            timed_layout
            for search_space in search_spaces
            for timed_layout in _named(search_space, layout_options)
        ]
    else:
        timed_layouts = [
            timed_layout
            for search_space in search_spaces
            for timed_layout in search_space.fastest(SHOWN)
        ]
    if not timed_layouts:
        message = f"no layout of {requirement.llm.model} fits in {instance.node.memory_gib:,.1f} GiB each"
        raise _impossible(message, MORE)
    best_layouts = sorted(timed_layouts, key=lambda candidate: candidate.sort_key)[
        :SHOWN
    ]
    cluster = Cluster(requirement, offer, nodes, best_layouts[0])
    return Trained(
        offer=offer,
        nodes=nodes,
        layouts=tuple(best_layouts),
        predicted=predict(cluster),
        hours=cluster.end_quantile_s(requirement.confidence) / HOUR,
        expected_usd=cluster.expected_bill(price_book).usd_month,
    )


def _named(
    search_space: Layouts, layout_options: Mapping[str, str]
) -> Iterator[Laid]:
    """Every layout that has what is wanted and fits; recomputation as told, or as needed."""
    recompute_mode = AGAIN.get(layout_options.get("recompute", ""))
    parallel_layouts = spreads(
        search_space.job, search_space.accelerators, search_space.node_accelerators
    )
    exact_options = {
        option: setting
        for option, setting in layout_options.items()
        if option != "recompute"
    }
    matching_layouts = [
        candidate
        for candidate in parallel_layouts
        if all(
            _is(getattr(candidate, option), setting)
            for option, setting in exact_options.items()
        )
    ]
    if not matching_layouts:
        option_text = ", ".join(
            f"{option} {setting}" for option, setting in exact_options.items()
        )
        message = f"no layout over {search_space.accelerators} accelerators in batches of "
        message += f"{search_space.job.global_batch:,.0f} sequences has {option_text}"
        raise _impossible(message, "leave one of them out")
    for parallel_layout in matching_layouts:
        fitted_layout = (
            replace(parallel_layout, recompute=recompute_mode)
            if recompute_mode
            else search_space.candidates.fit_memory(parallel_layout)
        )
        if (
            fitted_layout is not None
            and search_space.candidates.layout_peak_gib(fitted_layout)
            <= search_space.candidates.memory_room_gib
        ):
            yield _laid(search_space, fitted_layout)


def _is(attribute: float | str, setting: str) -> bool:
    return (
        attribute == setting
        if isinstance(attribute, str)
        else attribute == float(setting)
    )


def _laid(search_space: Layouts, parallel_layout: Spread) -> Laid:
    training_job = search_space.job.with_layout(parallel_layout)
    return Laid(
        training_job,
        step(work(training_job), TRAINING.select(keys(training_job))),
        search_space.candidates.layout_peak_gib(parallel_layout),
    )


def _impossible(message: str, next_step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=next_step)
    )
