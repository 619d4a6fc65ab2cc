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

    The run ends within `hours` with the wished confidence, and costs `usd` on average.
    """

    offer: Offer
    nodes: int
    layouts: tuple[Laid, ...]
    predicted: dict[str, Predicted]
    hours: float
    usd: Decimal


def exactly(
    need: TrainNeed,
    offer: Offer,
    nodes: int,
    given: Mapping[str, str],
    book: PriceBook,
) -> Trained:
    """Return the job in the fastest layout that has what is given.

    Raises InfeasibleError when no layout has it, or none of those fits.
    """
    wanted = {k: v for k, v in given.items() if k != "precision"}
    precision = given.get("precision")
    need = replace(need, precisions=(precision,)) if precision else need
    kind = offer.instance
    jobs = layouts(need, kind, nodes)
    if not jobs:
        message = (
            f"{kind.accelerator} does not run {', '.join(need.precisions)}"
        )
        raise _impossible(message, "choose another precision")
    if wanted:
        found = [laid for one in jobs for laid in _named(one, wanted)]
    else:
        found = [laid for one in jobs for laid in one.best(SHOWN)]
    if not found:
        message = f"no layout of {need.llm.model} fits in {kind.node.memory_gib:,.1f} GiB each"
        raise _impossible(message, MORE)
    best = sorted(found, key=lambda x: x.rank)[:SHOWN]
    cluster = Cluster(need, offer, nodes, best[0])
    return Trained(
        offer=offer,
        nodes=nodes,
        layouts=tuple(best),
        predicted=predict(cluster),
        hours=cluster.within(need.confidence) / HOUR,
        usd=cluster.bill(book).usd_month,
    )


def _named(layouts: Layouts, wanted: Mapping[str, str]) -> Iterator[Laid]:
    """Every layout that has what is wanted and fits; recomputation as told, or as needed."""
    told = AGAIN.get(wanted.get("recompute", ""))
    every = spreads(layouts.job, layouts.accelerators, layouts.machine)
    rest = {k: v for k, v in wanted.items() if k != "recompute"}
    found = [
        s for s in every if all(_is(getattr(s, k), v) for k, v in rest.items())
    ]
    if not found:
        named = ", ".join(f"{k} {v}" for k, v in rest.items())
        message = (
            f"no layout over {layouts.accelerators} accelerators in batches of "
        )
        message += f"{layouts.job.batch:,.0f} sequences has {named}"
        raise _impossible(message, "leave one of them out")
    for spread in found:
        kept = (
            replace(spread, recompute=told)
            if told
            else layouts.frame.fitted(spread)
        )
        if kept is not None and layouts.frame.peak(kept) <= layouts.frame.room:
            yield _laid(layouts, kept)


def _is(value: float | str, told: str) -> bool:
    return value == told if isinstance(value, str) else value == float(told)


def _laid(layouts: Layouts, spread: Spread) -> Laid:
    job = layouts.job.laid(spread)
    return Laid(
        job, step(work(job), TRAINING.at(keys(job))), layouts.frame.peak(spread)
    )


def _impossible(message: str, step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=step)
    )
