"""Which --set brings a problem that only shows when the spec is planned."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from planner.errors import MissingError, SpecError, TonnageError
from planner.market.owned_check import check_owned
from planner.market.region import check_regions
from planner.spec.override import blamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.cli.compose import SpecFile
    from planner.errors import Problem
    from planner.market.offer import Catalog
    from planner.spec.override import KeyOverride


@contextmanager
def at_overrides(spec_file: SpecFile, catalog: Catalog) -> Iterator[None]:
    """Raise what planning a spec refuses at the override that brings it, where one does."""
    try:
        yield
    except (SpecError, MissingError) as refusal:
        problems = blamed(
            refusal.problems,
            spec_file.path,
            spec_file.overrides,
            lambda said: _problems(spec_file, catalog, said),
        )
        raise type(refusal)(*problems) from None


def _problems(
    spec_file: SpecFile, catalog: Catalog, overrides: Sequence[KeyOverride]
) -> tuple[Problem, ...]:
    """Return what a plan would refuse of the file, with some of its keys said elsewhere."""
    from planner.spec.load import load_spec
    from planner.workload.solver import check

    try:
        spec = load_spec(spec_file.file_bytes, spec_file.path, overrides)
        check(spec, spec_file.folder_reader())
        check_regions(spec.where, catalog)
        check_owned(spec, catalog, spec_file.folder_reader())
    except TonnageError as refusal:
        return refusal.problems
    return ()
