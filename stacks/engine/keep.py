"""Objects that hold data: which they are, and what must stay with them when they are kept."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import PolicyError, Problem
from planner.facts import table
from planner.plan.graph import referenced_names
from stacks.engine.state import resource_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from planner.plan.types import Properties
    from stacks.engine.protocol import ResourceStep
    from stacks.engine.state import ResourceRecord


# What stands for all that an object was made after.
WAITED_FOR: Final = "depends_on"
# Option of a record: names of what it cannot exist without.
LIVES_IN: Final = "lives_in"


class DataType(Struct, frozen=True, kw_only=True):
    """A type of resource that holds data, or that protects them.

    holds     what people call it; empty for settings of one that holds data
    size      property with how much it holds; empty where it grows
    size_gib   GiB of one of it
    lives_in  properties that refer to what it cannot exist without; depends_on is all that it
              was made after
    """

    holds: str
    size: str
    size_gib: int
    lives_in: tuple[str, ...]


@cache
def data_types() -> dict[str, DataType]:
    """Return the types that hold or protect data."""
    columns = {
        "type": table.nonempty_text,
        "holds": table.any_text,
        "size": table.any_text,
        "size_gib": lambda cell: int(cell or 0),
        "lives_in": lambda cell: tuple(cell.split("|")) if cell else (),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["type"]: DataType(
            holds=row["holds"],
            size=row["size"],
            size_gib=row["size_gib"],
            lives_in=row["lives_in"],
        )
        for row in table.load_rows("stacks", "data_types.csv", columns)
    }


def held_data(resource_type: str) -> str:
    """Say what a type of resource holds, such as bucket or disk; empty when it holds no data."""
    data_type = data_types().get(resource_type)
    return data_type.holds if data_type else ""


def held_gib(resource_type: str, inputs: Properties) -> int:
    """Return how much a disk or a file system holds at most, GiB; 0 for what grows."""
    data_type = data_types().get(resource_type)
    if data_type is None or not data_type.size:
        return 0
    return int(inputs.get(data_type.size) or 0) * data_type.size_gib


def kept_keys(
    records: Mapping[str, ResourceRecord],
    deleted_keys: Iterable[str],
    left: Collection[tuple[str, ResourceRecord]] = (),
) -> set[str]:
    """Return which of the records that would be deleted stay, because of the data.

    These are the objects that hold data, all that they cannot exist without, and the settings of
    what stays. Settings of what is not deleted may go. `left` are objects that earlier runs have
    left for their data, with the names of their resources: what they live in stays too.
    """
    candidate_keys = set(deleted_keys)
    kept = _with_needed(
        records,
        candidate_keys,
        {key for key in candidate_keys if held_data(records[key].type)}
        | _needed_by_left(records, candidate_keys, left),
    )
    settings = {
        key
        for key in candidate_keys
        if records[key].type in data_types()
        and not held_data(records[key].type)
        and _needed_keys(records, kept, records[key])
    }
    return _with_needed(records, candidate_keys, kept | settings)


def _needed_by_left(
    records: Mapping[str, ResourceRecord],
    candidate_keys: set[str],
    left: Collection[tuple[str, ResourceRecord]],
) -> set[str]:
    """Return the candidates that something lives in which was left.

    What was left together with it, such as another network, is what it lives in.
    """
    left_too = {(name, record.place) for name, record in left}
    return {
        key
        for _, record in left
        for key in _needed_keys(records, candidate_keys, record)
        if (resource_name(key), record.place) not in left_too
    }


def _with_needed(
    records: Mapping[str, ResourceRecord],
    candidate_keys: set[str],
    first_keys: set[str],
) -> set[str]:
    """Return keys with those of all that they cannot exist without."""
    kept: set[str] = set()
    pending_keys = sorted(first_keys)
    while pending_keys:
        key = pending_keys.pop()
        if key not in kept:
            kept.add(key)
            pending_keys += _needed_keys(records, candidate_keys, records[key])
    return kept


def _needed_keys(
    records: Mapping[str, ResourceRecord],
    candidate_keys: set[str],
    record: ResourceRecord,
) -> list[str]:
    """Return the candidates that a record cannot exist without."""
    data_type = data_types().get(record.type)
    needed_names = (
        record.needs
        if data_type is None
        # Inputs of another engine name ids, so it says beside them what they refer to.
        else record.options.get(LIVES_IN) or _home_names(data_type, record)
    )
    # Under the same name there may be a thing of another cloud, and one that was replaced.
    return [
        needed_key
        for needed_key in candidate_keys
        if resource_name(needed_key) in needed_names
        and records[needed_key].place == record.place
    ]


def _home_names(data_type: DataType, record: ResourceRecord) -> list[str]:
    """Return the names of what an object that holds data cannot exist without."""
    if WAITED_FOR in data_type.lives_in:
        return list(record.needs)
    return [
        name
        for property_name in data_type.lives_in
        for name in referenced_names(record.inputs.get(property_name))
    ]


def refuse_replaced_data(steps: Iterable[ResourceStep]) -> None:
    """Raise PolicyError when something that holds data must go before its replacement comes."""
    problems = [
        Problem(
            code="delete-data",
            message=f"{step.name} ({held_data(step.type)}) would be deleted with its data",
            cause=f"{', '.join(step.reasons)} cannot be changed, and both would have one name",
            next_step="copy the data, then apply with --allow delete-data",
        )
        for step in steps
        if step.action == "replace"
        and step.deletes_first
        and held_data(step.type)
    ]
    if problems:
        raise PolicyError(*problems)
