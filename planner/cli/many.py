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
    sources: Sequence[Source], catalog: Catalog, options: Options
) -> Iterator[dict[str, Any]]:
    """Make the plans of some specs in their order; raises what making one of them raises."""
    make = partial(make_plan, catalog=catalog, options=options)
    if (
        len(sources) < MANY
        or "fork" not in multiprocessing.get_all_start_methods()
    ):
        yield from map(make, sources)
        return
    from concurrent.futures import ProcessPoolExecutor

    forked = multiprocessing.get_context(
        "fork"
    )  # workers inherit the catalog as it is
    with ProcessPoolExecutor(None, forked, _inherit, (make,)) as pool:
        yield from pool.map(_make, sources)


def _inherit(make: Maker) -> None:
    _inherited[:] = [make]


def _make(source: Source) -> dict[str, Any]:
    return _inherited[0](source)
