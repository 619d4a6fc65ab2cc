"""Plans of many specs in parallel processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.cli.compose import SpecFile, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.cli.compose import PlanningOptions
    from planner.market.offer import Catalog
    from planner.plan.types import Plan

    PlanMaker: TypeAlias = "Callable[[SpecFile], Plan]"

PARALLEL_MIN_SPECS: Final = 8  # specs from which starting workers pays
_worker_makers: list[PlanMaker] = []


def make_plans(
    spec_files: Sequence[SpecFile], catalog: Catalog, options: PlanningOptions
) -> Iterator[Plan]:
    """Yield the plans of the specs in order; raises the error of a spec that fails."""
    plan_maker = partial(make_plan, catalog=catalog, options=options)
    # Starting workers costs more than a few plans save.
    if len(spec_files) < PARALLEL_MIN_SPECS:
        yield from map(plan_maker, spec_files)
        return
    import multiprocessing

    if "fork" not in multiprocessing.get_all_start_methods():
        yield from map(plan_maker, spec_files)
        return
    from concurrent.futures import ProcessPoolExecutor

    # Workers inherit the catalog as it is.
    fork_context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(
        None, fork_context, _set_worker_maker, (plan_maker,)
    ) as worker_pool:
        yield from worker_pool.map(_make_in_worker, spec_files)


def _set_worker_maker(plan_maker: PlanMaker) -> None:
    # Once for each worker: map would send the catalog with every spec.
    _worker_makers[:] = [plan_maker]


def _make_in_worker(spec_file: SpecFile) -> Plan:
    return _worker_makers[0](spec_file)
