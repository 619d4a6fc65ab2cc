"""The structure of a document: its paths, and of which types of JSON what stands there is.

No value is in a structure, so it may be shown to anybody. Names of users are none of it either:
below the objects that `maps` names every member is a star.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from tests.providers.shapes import Document

# The types of what stands at a path: value[].name has one for each row.
Structure: TypeAlias = Mapping[str, frozenset[str]]
# What becomes of the fields of an object at a path.
Change: TypeAlias = Callable[[str, Document], Document]
# The first that fits; a boolean is a number in Python.
JSON_TYPES = (
    (type(None), "null"),
    (bool, "boolean"),
    (int | float | Decimal, "number"),
    (str, "string"),
    # Clients of AWS read times.
    (datetime, "time"),
    (list, "array"),
    (dict, "object"),
)


def json_type(value: Any) -> str:
    """Return the type of a value of a document."""
    return next(name for kind, name in JSON_TYPES if isinstance(value, kind))


def structure_of(document: Any, maps: Collection[str] = ()) -> Structure:
    """Return the types of all that a document has."""
    types: dict[str, set[str]] = defaultdict(set)

    def walk(value: Any, path: str) -> None:
        types[path].add(json_type(value))
        for inner_path, inner in _inner(value, path, maps):
            walk(inner, inner_path)

    walk(document, "")
    return {path: frozenset(names) for path, names in types.items()}


def _inner(
    value: Any, path: str, maps: Collection[str]
) -> Iterable[tuple[str, Any]]:
    """Return what stands in a value, each with its path."""
    if isinstance(value, list):
        return [(f"{path}[]", row) for row in value]
    if isinstance(value, dict):
        if path in maps:
            return [(f"{path}.*", member) for member in value.values()]
        return [(joined(path, name), value[name]) for name in value]
    return ()


def joined(path: str, name: str) -> str:
    """Return the path of a field of what stands at a path."""
    return f"{path}.{name}" if path else name


def parent_of(path: str) -> str:
    """Return the path of that in which something stands; of the document it is empty."""
    if path.endswith("[]"):
        return path.removesuffix("[]")
    return path.rpartition(".")[0]


def field_paths(document: Any, maps: Collection[str] = ()) -> list[str]:
    """Return the paths of all fields: what has a name that its cloud has given."""
    return sorted(
        path
        for path in structure_of(document, maps)
        if path and not path.endswith(("[]", ".*"))
    )


def united(structures: Iterable[Structure]) -> Structure:
    """Return all that some documents have together."""
    types: dict[str, frozenset[str]] = {}
    for structure in structures:
        for path, names in structure.items():
            types[path] = types.get(path, frozenset()) | names
    return types


class Differences(NamedTuple):
    """How an answer differs from what is expected of it, as paths.

    missing  what is read, and in no row of the answer although there are rows
    changed  what is read and has another type: the path, and the types that it had and has
    new      what nobody expects; what stands in it is left out
    unseen   what is read, and stands in what the answer has nothing of
    """

    missing: tuple[str, ...]
    changed: tuple[str, ...]
    new: tuple[str, ...]
    unseen: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps a function from reading the answer."""
        return (
            *(f"missing: {path}" for path in self.missing),
            *(f"another type: {text}" for text in self.changed),
        )


def differences(
    expected: Structure,
    actual: Structure,
    reads: Collection[str],
    may_lack: Collection[str] = (),
) -> Differences:
    """Hold an answer against what is expected of it.

    A function reads some paths, and others that an answer may lack, or have as a null.
    """
    absent = [path for path in reads if path not in actual]
    # Where a whole object is missing, its fields say nothing more.
    missing = [path for path in absent if parent_of(path) in actual]
    allowed = {path: expected[path] for path in reads} | {
        path: expected[path] | {"null"} for path in may_lack
    }
    wrong = [
        path
        for path in sorted(allowed.keys() & actual.keys())
        if not actual[path] <= allowed[path]
    ]
    return Differences(
        missing=tuple(sorted(missing)),
        changed=tuple(
            f"{path}: {_words(expected[path])}, now {_words(actual[path])}"
            for path in wrong
        ),
        new=tuple(
            sorted(
                path
                for path in actual
                if path not in expected and parent_of(path) in expected
            )
        ),
        unseen=tuple(sorted(set(absent) - set(missing))),
    )


def _words(types: Collection[str]) -> str:
    return " or ".join(sorted(types))


def changed(
    document: Any, change: Change, maps: Collection[str] = (), path: str = ""
) -> Any:
    """Return a document in which a change was made to all objects, the inner ones first."""
    if isinstance(document, list):
        return [changed(row, change, maps, f"{path}[]") for row in document]
    if not isinstance(document, dict):
        return document
    if path in maps:
        return {
            name: changed(member, change, maps, f"{path}.*")
            for name, member in document.items()
        }
    inner = {
        name: changed(member, change, maps, joined(path, name))
        for name, member in document.items()
    }
    return change(path, inner)


def without(
    document: Document, path: str, maps: Collection[str] = ()
) -> Document:
    """Return a document without a field, in all rows."""
    home, field = parent_of(path), path.rpartition(".")[2]
    lacking: Document = changed(
        document,
        lambda at, fields: {
            name: member
            for name, member in fields.items()
            if (at, name) != (home, field)
        },
        maps,
    )
    return lacking


def merged(document: Any, more: Any) -> Any:
    """Return a document with more: lists go on, members are added, and others are replaced."""
    if isinstance(document, dict) and isinstance(more, dict):
        return document | {
            name: merged(document[name], value) if name in document else value
            for name, value in more.items()
        }
    if isinstance(document, list) and isinstance(more, list):
        return document + more
    return more


def emptied(document: Document) -> Document:
    """Return a page without its part of the list."""
    return {
        name: type(value)()
        if isinstance(value, list) or name == "items"
        else emptied(value)
        if isinstance(value, dict)
        else value
        for name, value in document.items()
    }
