"""The one YAML reader: text to a tree of nodes that know their line and column.

Works on parser events and never constructs Python objects from tags, so that hostile input is
refused before it costs anything. Scalars stay text; what they mean is decided by the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import yaml

from planner.errors import Place, Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 2_000
MAX_SCALAR: Final = 4_096
BRACKET: Final = re.compile(r"[\[\]{}]")
# NUL and the characters that reorder or hide text: they have no business in a spec.
FORBIDDEN: Final = re.compile("[\x00\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, still text; `plain` tells that it was not quoted."""

    place: Place
    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of nodes."""

    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys to nodes in the order of the file; `keys` says where each key stands."""

    place: Place
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)


Node: TypeAlias = Scalar | Sequence | Mapping


def parse(raw: bytes, path: str) -> Node:
    """Read one YAML document.

    Refuses with SpecError: more than 256 KiB, not UTF-8, NUL or bidirectional control
    characters, aliases, merge keys, tags, several documents, depth over 32, more than 2,000
    nodes, duplicate keys, keys that are not text.
    """
    if len(raw) > MAX_BYTES:
        _refuse(
            Place(path),
            "too-large",
            f"the file has {len(raw):,} bytes, more than 262,144",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        _refuse(Place(path, line, 1), "encoding", "the file is not UTF-8")
    if found := FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        name = f"U+{ord(found[0]):04X}"
        _refuse(
            Place(path, line, column),
            "control-character",
            f"{name} is not allowed",
        )
    _refuse_brackets(text, path)
    return _Reader(path).read(text)


def _refuse_brackets(text: str, path: str) -> None:
    """Refuse absurd nesting before the parser sees it: its time grows with the square of it."""
    depth = 0
    for found in BRACKET.finditer(text):
        depth += 1 if found[0] in "[{" else -1
        if depth > 2 * MAX_DEPTH:
            line = text.count("\n", 0, found.start()) + 1
            _refuse(
                Place(path, line, 1),
                "too-deep",
                f"nested deeper than {MAX_DEPTH} levels",
            )


def _refuse(
    place: Place, code: str, message: str, next_step: str = ""
) -> NoReturn:
    step = (
        next_step or "write the spec as plain YAML: mappings, lists and values"
    )
    raise SpecError(
        Problem(code=code, message=message, place=place, next_step=step)
    )


class _Reader:
    """Builds the tree from events, counting depth and nodes as it goes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nodes = 0

    def read(self, text: str) -> Node:
        root: Node | None = None
        try:
            events = yaml.parse(text, Loader=yaml.SafeLoader)
            for event in events:
                if (
                    isinstance(event, yaml.DocumentStartEvent)
                    and root is not None
                ):
                    _refuse(
                        self._at(event),
                        "documents",
                        "the file has more than one document",
                    )
                if isinstance(event, yaml.NodeEvent):
                    root = self._node(event, events, depth=1)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (
                Place(self.path, mark.line + 1, mark.column + 1)
                if mark
                else Place(self.path)
            )
            _refuse(
                place,
                "yaml",
                f"not valid YAML: {error.problem or error.context}",
            )
        except yaml.YAMLError as error:
            _refuse(
                Place(self.path),
                "yaml",
                f"not valid YAML: {str(error).splitlines()[0]}",
            )
        if root is None:
            _refuse(
                Place(self.path, 1, 1),
                "empty",
                "the file is empty",
                "run: tonnage init",
            )
        return root

    def _at(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        if mark is None:
            return Place(self.path)
        return Place(self.path, mark.line + 1, mark.column + 1)

    def _node(
        self, event: yaml.NodeEvent, events: Iterator[yaml.Event], *, depth: int
    ) -> Node:
        place = self._at(event)
        self.nodes += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            _refuse(
                place,
                "alias",
                "anchors and aliases are not read; write the value out",
            )
        if getattr(event, "tag", None):
            _refuse(place, "tag", f"tags such as {event.tag} are not read")  # type: ignore[attr-defined]
        if depth > MAX_DEPTH:
            _refuse(place, "too-deep", f"nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            _refuse(place, "too-many", f"more than {MAX_NODES:,} values")
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_SCALAR:
                _refuse(
                    place,
                    "too-long",
                    f"a value of {len(event.value):,} characters",
                )
            return Scalar(place, event.value, event.style is None)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(place, events, depth)
        return self._mapping(place, events, depth)

    def _sequence(
        self, place: Place, events: Iterator[yaml.Event], depth: int
    ) -> Sequence:
        result = Sequence(place)
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            assert isinstance(event, yaml.NodeEvent)  # noqa: S101 - grammar of events
            result.items.append(self._node(event, events, depth=depth + 1))
        return result

    def _mapping(
        self, place: Place, events: Iterator[yaml.Event], depth: int
    ) -> Mapping:
        result = Mapping(place)
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, depth)
            if key.text in result.items:
                first = result.keys[key.text]
                _refuse(
                    key.place,
                    "duplicate-key",
                    f"'{key.text}' is given twice, first in line {first.line}",
                    "remove one of the two",
                )
            result.keys[key.text] = key.place
            value = next(events)
            assert isinstance(value, yaml.NodeEvent)  # noqa: S101 - grammar of events
            result.items[key.text] = self._node(value, events, depth=depth + 1)
        return result

    def _key(
        self, event: yaml.Event, events: Iterator[yaml.Event], depth: int
    ) -> Scalar:
        assert isinstance(event, yaml.NodeEvent)  # noqa: S101 - grammar of events
        key = self._node(event, events, depth=depth + 1)
        if not isinstance(key, Scalar):
            _refuse(key.place, "key", "a key must be text")
        if key.text == "<<" and key.plain:
            _refuse(
                key.place,
                "merge-key",
                "merge keys (<<) are not read; write the values out",
            )
        return key
