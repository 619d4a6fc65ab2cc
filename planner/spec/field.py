"""Field types of a spec: each reads a node and describes itself as JSON Schema.

A field type reports every problem of a node instead of stopping at the first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from planner.errors import Place, Problem, SpecError
from planner.spec.source import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    parse_yaml,
)
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Callable


JsonSchema: TypeAlias = dict[str, Any]


class _Missing:
    """Marks a value that could not be read and whose problem is reported."""


MISSING: Final = _Missing()
NULL_WORDS: Final = ("", "~", "null", "Null", "NULL")


class ProblemReport:
    """The problems of one file, in the order in which they are found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(
        self, place: Place, code: str, message: str, next_step: str
    ) -> _Missing:
        """Record a problem and return `MISSING` as the value of the field."""
        self.problems.append(
            Problem(
                code=code, message=message, place=place, next_step=next_step
            )
        )
        return MISSING


class FieldType(Protocol):
    """How one type of value is read and described."""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the value, or `MISSING` after a problem is reported."""

    def schema(self) -> JsonSchema:
        """Describe the accepted values as JSON Schema, draft 2020-12."""


def require_scalar(
    node: Node, field_path: str, report: ProblemReport
) -> ScalarNode | None:
    """Return a node with a single value; report a problem for any other node."""
    if not isinstance(node, ScalarNode):
        report.add(
            node.place,
            "type",
            f"{field_path} takes a single value",
            "write one value",
        )
        return None
    # Quoted, the same words are text.
    if node.is_plain and node.text in NULL_WORDS:
        report.add(
            node.place,
            "empty",
            f"{field_path} has no value",
            "give a value or remove the key",
        )
        return None
    return node


def suggest_word(word: str, known_words: list[str]) -> str:
    """Return a question with the closest known word, or an empty text."""
    known_word = closest(word, known_words)
    return f"did you mean '{known_word}'?" if known_word else ""


class TextPattern(Struct, frozen=True):
    """Text that matches a regular expression.

    hint        what the text must be, for messages
    max_length  largest number of characters
    """

    pattern: str = r".+"
    hint: str = "text"
    max_length: int = 200

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the text unchanged when it matches."""
        scalar_node = require_scalar(node, field_path, report)
        if scalar_node is None:
            return MISSING
        if len(scalar_node.text) > self.max_length or not re.fullmatch(
            self.pattern, scalar_node.text
        ):
            return report.add(
                scalar_node.place,
                "value",
                f"{field_path} cannot be '{scalar_node.text[:60]}'",
                f"write {self.hint}",
            )
        return scalar_node.text

    def schema(self) -> JsonSchema:
        """Describe as a string with a pattern."""
        return {
            "type": "string",
            "pattern": f"^(?:{self.pattern})$",
            "maxLength": self.max_length,
        }


class Choice(Struct, frozen=True):
    """One word of a closed set."""

    choices: tuple[str, ...]

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the word; the problem of an unknown word suggests the closest one."""
        scalar_node = require_scalar(node, field_path, report)
        if scalar_node is None:
            return MISSING
        if scalar_node.text not in self.choices:
            next_step = suggest_word(
                scalar_node.text, list(self.choices)
            ) or "use one of: " + ", ".join(self.choices)
            message = f"{field_path}: '{scalar_node.text[:60]}' is not known"
            return report.add(scalar_node.place, "choice", message, next_step)
        return scalar_node.text

    def schema(self) -> JsonSchema:
        """Describe as an enumeration."""
        return {"enum": list(self.choices)}


class Quantity(Struct, frozen=True):
    """A number with or without a unit, within bounds.

    convert  turns text into the base unit, or raises ValueError with a hint
    example  value for the JSON Schema
    minimum  lowest value as a spec writes it, and `maximum` the highest; empty for none
    """

    convert: Callable[[str], Any]
    example: str
    minimum: str = ""
    maximum: str = ""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the number in the base unit."""
        scalar_node = require_scalar(node, field_path, report)
        if scalar_node is None:
            return MISSING
        try:
            # Underscores group digits, as in 1_000_000.
            converted = self.convert(scalar_node.text.replace("_", ""))
        except ValueError as convert_error:
            message = f"{field_path}: '{scalar_node.text[:60]}' cannot be read"
            return report.add(
                scalar_node.place, "quantity", message, str(convert_error)
            )
        if self.minimum and converted < self.convert(self.minimum):
            message = f"{field_path}: {scalar_node.text} is too small"
            return report.add(
                scalar_node.place,
                "range",
                message,
                f"write at least {self.minimum}",
            )
        if self.maximum and converted > self.convert(self.maximum):
            message = f"{field_path}: {scalar_node.text} is too large"
            return report.add(
                scalar_node.place,
                "range",
                message,
                f"write at most {self.maximum}",
            )
        return converted

    def schema(self) -> JsonSchema:
        """Describe as a number or a string with a unit."""
        return {"type": ["number", "string"], "examples": [self.example]}


class ListOf(Struct, frozen=True):
    """A list of one type; `allows_single` also accepts one value without brackets."""

    element_type: FieldType
    allows_single: bool = False

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return a tuple of all elements, or `MISSING` when one of them is invalid."""
        if self.allows_single and isinstance(node, ScalarNode):
            single_value = self.element_type.read(node, field_path, report)
            return MISSING if single_value is MISSING else (single_value,)
        if not isinstance(node, SequenceNode):
            return report.add(
                node.place, "type", f"{field_path} takes a list", "write [a, b]"
            )
        element_values = [
            self.element_type.read(
                element_node, f"{field_path}[{element_index}]", report
            )
            for element_index, element_node in enumerate(node.nodes)
        ]
        return (
            MISSING
            if any(element_value is MISSING for element_value in element_values)
            else tuple(element_values)
        )

    def schema(self) -> JsonSchema:
        """Describe as an array, or one item where that is accepted."""
        array_schema = {"type": "array", "items": self.element_type.schema()}
        return (
            {"anyOf": [self.element_type.schema(), array_schema]}
            if self.allows_single
            else array_schema
        )


class LabelTable(Struct, frozen=True):
    """A mapping of free keys to text values, for labels."""

    key: TextPattern
    value: TextPattern

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the valid pairs; report the others."""
        if not isinstance(node, MappingNode):
            message = f"{field_path} takes keys and values"
            return report.add(node.place, "type", message, "write {key: value}")
        label_texts: dict[str, str] = {}
        for label_key, label_node in node.nodes.items():
            self.key.read(
                # Keys are checked like values, at their own position.
                ScalarNode(
                    node.key_places[label_key], label_key, is_plain=False
                ),
                f"{field_path} key",
                report,
            )
            label_text = self.value.read(
                label_node, f"{field_path}.{label_key}", report
            )
            if label_text is not MISSING:
                label_texts[label_key] = label_text
        return label_texts

    def schema(self) -> JsonSchema:
        """Describe as an object with free keys."""
        return {"type": "object", "additionalProperties": self.value.schema()}


class Field(Struct, frozen=True):
    """A key of a block.

    field_type  type of its value
    doc         one sentence for the reference page and for messages
    required    whether the key must be present
    default     value of an absent key, or a function that returns it
    default_text  that value as a spec writes it
    unit        what the number counts, or the unit of what it is converted to
    status      used, or partly: not all that it accepts is built
    """

    name: str
    field_type: FieldType
    doc: str
    required: bool = False
    default: Any = None
    default_text: str = ""
    unit: str = ""
    status: Literal["used", "partly"] = "used"

    def default_value(self) -> Any:
        """Return the value of an absent key."""
        return self.default() if callable(self.default) else self.default


class Block(Struct, frozen=True):
    """A mapping with known keys that becomes one object.

    build_object      builds it from `place` and the values by key
    exclusive_groups  groups of keys, of each of which exactly one must be present
    """

    name: str
    build_object: Callable[..., Any]
    fields: tuple[Field, ...]
    doc: str = ""
    exclusive_groups: tuple[tuple[str, ...], ...] = ()

    def read(self, node: Node, block_path: str, report: ProblemReport) -> Any:
        """Return the object; report unknown, missing and conflicting keys together."""
        if not isinstance(node, MappingNode):
            message = f"{block_path or self.name} takes keys and values"
            known_keys = ", ".join(
                block_field.name for block_field in self.fields
            )
            return report.add(
                node.place, "type", message, f"its keys are: {known_keys}"
            )
        problem_count = len(report.problems)
        field_values = self._read_values(node, block_path, report)
        self._check_groups(node, block_path, report)
        # An object is built only from a block without problems.
        if len(report.problems) > problem_count:
            return MISSING
        return self.build_object(place=node.place, **field_values)

    def default_object(self) -> Any:
        """Return the object of a block without keys. All of its fields have defaults."""
        return self.build_object(
            **{field.name: field.default_value() for field in self.fields}
        )

    def _read_values(
        self, node: MappingNode, block_path: str, report: ProblemReport
    ) -> JsonSchema:
        field_by_name = {
            block_field.name: block_field for block_field in self.fields
        }
        for key, key_place in node.key_places.items():
            if key not in field_by_name:
                field_path = f"{block_path}.{key}" if block_path else key
                next_step = suggest_word(
                    key, list(field_by_name)
                ) or "its keys are: " + ", ".join(field_by_name)
                report.add(
                    key_place,
                    "unknown-key",
                    f"unknown key '{field_path}'",
                    next_step,
                )
        field_values: JsonSchema = {}
        for field in self.fields:
            field_path = (
                f"{block_path}.{field.name}" if block_path else field.name
            )
            if field.name in node.nodes:
                field_values[field.name] = field.field_type.read(
                    node.nodes[field.name], field_path, report
                )
            # The documentation of the key tells the user what to write.
            elif field.required:
                report.add(
                    node.place,
                    "missing-key",
                    f"{field_path} is missing",
                    field.doc,
                )
            else:
                field_values[field.name] = field.default_value()
        return field_values

    def _check_groups(
        self, node: MappingNode, block_path: str, report: ProblemReport
    ) -> None:
        for key_group in self.exclusive_groups:
            present_keys = [
                group_key for group_key in key_group if group_key in node.nodes
            ]
            if len(present_keys) == 1:
                continue
            group_keys = ", ".join(key_group)
            if present_keys:
                message = f"{' and '.join(present_keys)} exclude each other"
                if block_path:
                    message = f"{block_path}: {message}"
                problem_place = node.key_places[present_keys[-1]]
            else:
                message = (
                    f"{block_path or self.name} needs one of: {group_keys}"
                )
                problem_place = node.place
            report.add(
                problem_place,
                "one-of",
                message,
                f"give exactly one of: {group_keys}",
            )

    def schema(self) -> JsonSchema:
        """Describe as a closed object with descriptions and defaults."""
        properties = {
            block_field.name: {
                **block_field.field_type.schema(),
                "description": block_field.doc,
            }
            for block_field in self.fields
        }
        block_schema: JsonSchema = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
        if self.doc:
            block_schema["description"] = self.doc
        if required_keys := [
            block_field.name
            for block_field in self.fields
            if block_field.required
        ]:
            block_schema["required"] = required_keys
        group_schemas = [
            # Exactly one key of each group must be present.
            {"oneOf": [{"required": [group_key]} for group_key in key_group]}
            for key_group in self.exclusive_groups
        ]
        if group_schemas:
            block_schema["allOf"] = group_schemas
        return block_schema


def read_document(block: Block, file_bytes: bytes, path: str) -> Any:
    """Return the object of a file that is one block. Raises SpecError with all of its problems."""
    report = ProblemReport()
    root_node = parse_yaml(
        file_bytes, path, begin=f"see its keys: tonnage schema {block.name}"
    )
    found = block.read(root_node, "", report)
    if report.problems:
        raise SpecError(*report.problems)
    return found
