"""What a field of a spec accepts: one definition that reads, explains and makes the JSON Schema.

A Kind turns a node into a value and reports every problem instead of stopping at the first.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from planner.errors import Place, Problem
from planner.spec.source import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable


class _Missing:
    """Marks a value that could not be read; the problem is already reported."""


MISSING: Final = _Missing()
NULLS: Final = ("", "~", "null", "Null", "NULL")


class Report:
    """Collects the problems of one file."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(
        self, place: Place, code: str, message: str, next_step: str
    ) -> _Missing:
        """Record a problem; the value it concerns is then MISSING."""
        self.problems.append(
            Problem(
                code=code, message=message, place=place, next_step=next_step
            )
        )
        return MISSING


class Kind(Protocol):
    """How one sort of value is read and described."""

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Return the value, or MISSING after reporting why not."""

    def schema(self) -> dict[str, Any]:
        """Describe the accepted values as JSON Schema, draft 2020-12."""


def scalar(node: Node, name: str, report: Report) -> Scalar | None:
    """Return the node when it is a single, non-empty value; otherwise report it."""
    if not isinstance(node, Scalar):
        report.add(
            node.place,
            "type",
            f"{name} takes a single value",
            "write one value",
        )
        return None
    if node.plain and node.text in NULLS:
        report.add(
            node.place,
            "empty",
            f"{name} has no value",
            "give a value or remove the key",
        )
        return None
    return node


def near(word: str, known: list[str]) -> str:
    """Return ' (did you mean x?)' when a known word is close, else nothing."""
    found = difflib.get_close_matches(word, known, 1, cutoff=0.6)
    return f"did you mean '{found[0]}'?" if found else ""


@dataclass(frozen=True, slots=True)
class Text:
    """Text that matches a pattern."""

    pattern: str = r".+"
    hint: str = "text"
    maximum: int = 200

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read text as it stands."""
        found = scalar(node, name, report)
        if found is None:
            return MISSING
        if len(found.text) > self.maximum or not re.fullmatch(
            self.pattern, found.text
        ):
            return report.add(
                found.place,
                "value",
                f"{name}: '{found.text[:60]}' is not {self.hint}",
                f"write {self.hint}",
            )
        return found.text

    def schema(self) -> dict[str, Any]:
        """Describe as a string with a pattern."""
        return {
            "type": "string",
            "pattern": f"^(?:{self.pattern})$",
            "maxLength": self.maximum,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a closed set of words."""

    words: tuple[str, ...]

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read a word, with a did-you-mean for others."""
        found = scalar(node, name, report)
        if found is None:
            return MISSING
        if found.text not in self.words:
            step = near(
                found.text, list(self.words)
            ) or "use one of: " + ", ".join(self.words)
            message = f"{name}: '{found.text[:60]}' is not known"
            return report.add(found.place, "choice", message, step)
        return found.text

    def schema(self) -> dict[str, Any]:
        """Describe as an enumeration."""
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with or without a unit, within bounds."""

    convert: Callable[[str], Any]
    example: str
    minimum: Any = None
    maximum: Any = None

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read and convert to the base unit."""
        found = scalar(node, name, report)
        if found is None:
            return MISSING
        try:
            value = self.convert(found.text.replace("_", ""))
        except ValueError as error:
            message = f"{name}: '{found.text[:60]}' cannot be read"
            return report.add(found.place, "quantity", message, str(error))
        if self.minimum is not None and value < self.minimum:
            message = f"{name}: {found.text} is too small"
            return report.add(
                found.place, "range", message, f"write at least {self.minimum}"
            )
        if self.maximum is not None and value > self.maximum:
            message = f"{name}: {found.text} is too large"
            return report.add(
                found.place, "range", message, f"write at most {self.maximum}"
            )
        return value

    def schema(self) -> dict[str, Any]:
        """Describe as a number or a string with a unit."""
        return {"type": ["number", "string"], "examples": [self.example]}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `single` also accepts one value without brackets."""

    kind: Kind
    single: bool = False

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read every item; one bad item makes the list MISSING."""
        if self.single and isinstance(node, Scalar):
            value = self.kind.read(node, name, report)
            return MISSING if value is MISSING else (value,)
        if not isinstance(node, Sequence):
            return report.add(
                node.place, "type", f"{name} takes a list", "write [a, b]"
            )
        values = [
            self.kind.read(item, f"{name}[{index}]", report)
            for index, item in enumerate(node.items)
        ]
        return MISSING if any(v is MISSING for v in values) else tuple(values)

    def schema(self) -> dict[str, Any]:
        """Describe as an array, or one item where that is accepted."""
        array = {"type": "array", "items": self.kind.schema()}
        return {"anyOf": [self.kind.schema(), array]} if self.single else array


@dataclass(frozen=True, slots=True)
class Table:
    """Free keys to text values, for labels."""

    key: Text
    value: Text

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read all pairs."""
        if not isinstance(node, Mapping):
            message = f"{name} takes keys and values"
            return report.add(node.place, "type", message, "write {key: value}")
        pairs: dict[str, str] = {}
        for key, item in node.items.items():
            self.key.read(
                Scalar(node.keys[key], key, plain=False), f"{name} key", report
            )
            value = self.value.read(item, f"{name}.{key}", report)
            if value is not MISSING:
                pairs[key] = value
        return pairs

    def schema(self) -> dict[str, Any]:
        """Describe as an object with free keys."""
        return {"type": "object", "additionalProperties": self.value.schema()}


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a block: what it takes, its default and one sentence for people."""

    name: str
    kind: Kind
    doc: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping with known keys that becomes one object.

    `choose` names groups of keys of which exactly one must be present.
    """

    name: str
    build: Callable[..., Any]
    fields: tuple[Field, ...]
    doc: str = ""
    choose: tuple[tuple[str, ...], ...] = ()

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Read all fields; report unknown, missing and contradictory keys together."""
        if not isinstance(node, Mapping):
            message = f"{name} takes keys and values"
            known = ", ".join(f.name for f in self.fields)
            return report.add(
                node.place, "type", message, f"its keys are: {known}"
            )
        before = len(report.problems)
        values = self._values(node, name, report)
        self._check_groups(node, name, report)
        if len(report.problems) > before:
            return MISSING
        return self.build(place=node.place, **values)

    def _values(
        self, node: Mapping, name: str, report: Report
    ) -> dict[str, Any]:
        known = {f.name: f for f in self.fields}
        for key, place in node.keys.items():
            if key not in known:
                label = f"{name}.{key}" if name else key
                step = near(key, list(known)) or "its keys are: " + ", ".join(
                    known
                )
                report.add(place, "unknown-key", f"unknown key '{label}'", step)
        values: dict[str, Any] = {}
        for item in self.fields:
            label = f"{name}.{item.name}" if name else item.name
            if item.name in node.items:
                values[item.name] = item.kind.read(
                    node.items[item.name], label, report
                )
            elif item.required:
                report.add(
                    node.place, "missing-key", f"{label} is missing", item.doc
                )
            else:
                values[item.name] = item.default
        return values

    def _check_groups(self, node: Mapping, name: str, report: Report) -> None:
        for group in self.choose:
            present = [key for key in group if key in node.items]
            if len(present) == 1:
                continue
            words = ", ".join(group)
            if present:
                message = f"{name}: {' and '.join(present)} exclude each other"
                place = node.keys[present[-1]]
            else:
                message, place = f"{name} needs one of: {words}", node.place
            report.add(
                place, "one-of", message, f"give exactly one of: {words}"
            )

    def schema(self) -> dict[str, Any]:
        """Describe as a closed object with descriptions and defaults."""
        properties = {
            f.name: {"description": f.doc, **f.kind.schema()}
            for f in self.fields
        }
        result: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
        if self.doc:
            result["description"] = self.doc
        if required := [f.name for f in self.fields if f.required]:
            result["required"] = required
        groups = [
            {"oneOf": [{"required": [key]} for key in group]}
            for group in self.choose
        ]
        if groups:
            result["allOf"] = groups
        return result
