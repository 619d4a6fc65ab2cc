"""Finds objects of Azure: nothing has to be asked, for every id follows from names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.plan.types import Properties


def object_ids(_lookup: str, _inputs: Properties, _region: str) -> list[str]:
    """Return nothing: no type of Azure has a lookup in stacks/data/import_ids.csv."""
    return []
