"""Plans of many specs at once, on all cores."""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from planner.cli.compose import Source, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.cli.compose import Options
    from planner.solve.offer import Catalog

    Maker: TypeAlias = "Callable[[Source], dict[str, Any]]"

MANY: Final = 8  # specs from which starting workers pays
_inherited: list[Maker] = []


def make_plans(
    spec_files: Sequence[Source], catalog: Catalog, options: Options
) -> Iterator[dict[str, Any]]:
    """Make the plans of some specs in their order; raises what making one of them raises."""
    plan_maker = partial(make_plan, catalog=catalog, options=options)
    if (
        len(spec_files) < MANY
        or "fork" not in multiprocessing.get_all_start_methods()
    ):
        yield from map(plan_maker, spec_files)
        return
    from concurrent.futures import ProcessPoolExecutor

    fork_context = multiprocessing.get_context(
        "fork"
    )  # workers inherit the catalog as it is
    with ProcessPoolExecutor(
        None, fork_context, _inherit, (plan_maker,)
    ) as worker_pool:
        yield from worker_pool.map(_make, spec_files)


def _inherit(plan_maker: Maker) -> None:
    _inherited[:] = [plan_maker]


def _make(spec_file: Source) -> dict[str, Any]:
    return _inherited[0](spec_file)
