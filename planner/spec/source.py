"""Parse YAML text into a tree of nodes with their line and column.

The reader works on parser events and builds no Python objects from tags, so hostile input is
refused early. Scalars stay text; the field types give them a meaning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import yaml
from msgspec import Struct, field

from planner.errors import Place, Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 2_000
MAX_SCALAR: Final = 4_096
MAX_LINE: Final = 2 * MAX_SCALAR
BRACKET: Final = re.compile(r"[\[\]{}]")
# NUL and the characters that reorder or hide text: they have no business in a spec.
FORBIDDEN_CHARS: Final = re.compile(
    "[\x00\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


class ScalarNode(Struct, frozen=True):
    """A single value as text; `is_plain` is true when it was not quoted."""

    place: Place
    text: str
    is_plain: bool


class SequenceNode(Struct, frozen=True):
    """A list of nodes."""

    place: Place
    nodes: list[Node] = field(default_factory=list)


class MappingNode(Struct, frozen=True):
    """Nodes by key in file order; `key_places` has the position of each key."""

    place: Place
    nodes: dict[str, Node] = field(default_factory=dict)
    key_places: dict[str, Place] = field(default_factory=dict)


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


def parse_yaml(
    file_bytes: bytes, source_path: str, begin: str = "run: tonnage init"
) -> Node:
    """Return the tree of a single YAML document.

    Raises SpecError for more than 256 KiB, text that is not UTF-8, NUL or bidirectional
    control characters, lines over 8,192 characters, aliases, merge keys, tags, several
    documents, a depth over 32, more than 2,000 nodes, duplicate keys, and keys that are not text.
    `begin` says what helps where the file is empty.
    """
    if len(file_bytes) > MAX_BYTES:
        _refuse(
            Place(source_path),
            "too-large",
            f"the file has {len(file_bytes):,} bytes, more than 262,144",
        )
    try:
        # A byte order mark at the start is accepted.
        yaml_text = file_bytes.decode("utf-8-sig")
    except UnicodeDecodeError as decode_error:
        line_number = file_bytes.count(b"\n", 0, decode_error.start) + 1
        _refuse(
            Place(source_path, line_number, 1),
            "encoding",
            "the file is not UTF-8",
        )
    if control_match := FORBIDDEN_CHARS.search(yaml_text):
        line_number = yaml_text.count("\n", 0, control_match.start()) + 1
        column_number = control_match.start() - yaml_text.rfind(
            "\n", 0, control_match.start()
        )
        code_point = f"U+{ord(control_match[0]):04X}"
        _refuse(
            Place(source_path, line_number, column_number),
            "control-character",
            f"{code_point} is not allowed",
        )
    _refuse_brackets(yaml_text, source_path)
    _refuse_long_lines(yaml_text, source_path)
    return _NodeReader(source_path, begin).read(yaml_text)


def _refuse_long_lines(yaml_text: str, source_path: str) -> None:
    """Refuse long lines before the parser runs, which reads them letter by letter."""
    for line_number, line in enumerate(yaml_text.splitlines(), 1):
        if len(line) > MAX_LINE:
            _refuse(
                Place(source_path, line_number, MAX_LINE + 1),
                "too-large",
                f"a line of {len(line):,} characters, more than {MAX_LINE:,}",
            )


def _refuse_brackets(yaml_text: str, source_path: str) -> None:
    """Refuse deep flow nesting before the parser runs.

    The time of the parser grows with the square of the depth.
    """
    bracket_depth = 0
    for bracket_match in BRACKET.finditer(yaml_text):
        bracket_depth += 1 if bracket_match[0] in "[{" else -1
        # Brackets inside text also count, so the limit is doubled.
        if bracket_depth > 2 * MAX_DEPTH:
            line_number = yaml_text.count("\n", 0, bracket_match.start()) + 1
            _refuse(
                Place(source_path, line_number, 1),
                "too-deep",
                f"nested deeper than {MAX_DEPTH} levels",
            )


def _refuse(
    place: Place, code: str, message: str, next_step: str = ""
) -> NoReturn:
    next_step_text = (
        next_step or "write the spec as plain YAML: mappings, lists and values"
    )
    raise SpecError(
        Problem(
            code=code, message=message, place=place, next_step=next_step_text
        )
    )


class _NodeReader:
    """Builds the tree from parser events, and counts its depth and nodes."""

    def __init__(self, source_path: str, begin: str) -> None:
        self.begin = begin
        self.path = source_path
        self.node_count = 0

    def read(self, yaml_text: str) -> Node:
        root_node: Node | None = None
        try:
            yaml_events = yaml.parse(yaml_text, Loader=yaml.SafeLoader)
            for yaml_event in yaml_events:
                if (
                    isinstance(yaml_event, yaml.DocumentStartEvent)
                    and root_node is not None
                ):
                    _refuse(
                        self._place_of(yaml_event),
                        "documents",
                        "the file has more than one document",
                    )
                if isinstance(yaml_event, yaml.NodeEvent):
                    root_node = self._read_node(
                        yaml_event, yaml_events, node_depth=1
                    )
        except yaml.MarkedYAMLError as yaml_error:
            problem_mark = yaml_error.problem_mark or yaml_error.context_mark
            problem_place = (
                Place(self.path, problem_mark.line + 1, problem_mark.column + 1)
                if problem_mark
                else Place(self.path)
            )
            _refuse(
                problem_place,
                "yaml",
                f"not valid YAML: {yaml_error.problem or yaml_error.context}",
            )
        except yaml.YAMLError as yaml_error:
            _refuse(
                Place(self.path),
                "yaml",
                f"not valid YAML: {str(yaml_error).splitlines()[0]}",
            )
        if root_node is None:
            _refuse(
                Place(self.path, 1, 1),
                "empty",
                "the file is empty",
                self.begin,
            )
        return root_node

    def _place_of(self, yaml_event: yaml.Event) -> Place:
        start_mark = yaml_event.start_mark
        if start_mark is None:
            return Place(self.path)
        return Place(self.path, start_mark.line + 1, start_mark.column + 1)

    def _read_node(
        self,
        yaml_event: yaml.NodeEvent,
        yaml_events: Iterator[yaml.Event],
        *,
        node_depth: int,
    ) -> Node:
        node_place = self._place_of(yaml_event)
        self.node_count += 1
        # Nested aliases could expand to an exponential size.
        if isinstance(yaml_event, yaml.AliasEvent) or yaml_event.anchor:
            _refuse(
                node_place,
                "alias",
                "anchors and aliases are not read; write the value out",
            )
        tag = getattr(yaml_event, "tag", None)
        if tag:
            _refuse(node_place, "tag", f"tags such as {tag} are not read")
        if node_depth > MAX_DEPTH:
            _refuse(
                node_place, "too-deep", f"nested deeper than {MAX_DEPTH} levels"
            )
        if self.node_count > MAX_NODES:
            _refuse(node_place, "too-many", f"more than {MAX_NODES:,} values")
        if isinstance(yaml_event, yaml.ScalarEvent):
            if len(yaml_event.value) > MAX_SCALAR:
                _refuse(
                    node_place,
                    "too-long",
                    f"a value of {len(yaml_event.value):,} characters",
                )
            return ScalarNode(
                # Plain scalars have no style in the events.
                node_place,
                yaml_event.value,
                yaml_event.style is None,
            )
        if isinstance(yaml_event, yaml.SequenceStartEvent):
            return self._read_sequence(node_place, yaml_events, node_depth)
        return self._read_mapping(node_place, yaml_events, node_depth)

    def _read_sequence(
        self,
        node_place: Place,
        yaml_events: Iterator[yaml.Event],
        node_depth: int,
    ) -> SequenceNode:
        sequence_node = SequenceNode(node_place)
        for yaml_event in yaml_events:
            if isinstance(yaml_event, yaml.SequenceEndEvent):
                break
            assert isinstance(yaml_event, yaml.NodeEvent)  # noqa: S101 - grammar of events
            sequence_node.nodes.append(
                self._read_node(
                    yaml_event, yaml_events, node_depth=node_depth + 1
                )
            )
        return sequence_node

    def _read_mapping(
        self,
        node_place: Place,
        yaml_events: Iterator[yaml.Event],
        node_depth: int,
    ) -> MappingNode:
        mapping_node = MappingNode(node_place)
        for yaml_event in yaml_events:
            if isinstance(yaml_event, yaml.MappingEndEvent):
                break
            key_node = self._read_key(yaml_event, yaml_events, node_depth)
            # YAML parsers keep the last value in silence; here it is an error.
            if key_node.text in mapping_node.nodes:
                first_place = mapping_node.key_places[key_node.text]
                _refuse(
                    key_node.place,
                    "duplicate-key",
                    f"'{key_node.text}' is given twice, first in line {first_place.line}",
                    "remove one of the two",
                )
            mapping_node.key_places[key_node.text] = key_node.place
            value_event = next(yaml_events)
            assert isinstance(value_event, yaml.NodeEvent)  # noqa: S101 - grammar of events
            mapping_node.nodes[key_node.text] = self._read_node(
                value_event, yaml_events, node_depth=node_depth + 1
            )
        return mapping_node

    def _read_key(
        self,
        yaml_event: yaml.Event,
        yaml_events: Iterator[yaml.Event],
        node_depth: int,
    ) -> ScalarNode:
        assert isinstance(yaml_event, yaml.NodeEvent)  # noqa: S101 - grammar of events
        key_node = self._read_node(
            yaml_event, yaml_events, node_depth=node_depth + 1
        )
        if not isinstance(key_node, ScalarNode):
            _refuse(key_node.place, "key", "a key must be text")
        # A quoted << is an ordinary key.
        if key_node.text == "<<" and key_node.is_plain:
            _refuse(
                key_node.place,
                "merge-key",
                "merge keys (<<) are not read; write the values out",
            )
        return key_node
