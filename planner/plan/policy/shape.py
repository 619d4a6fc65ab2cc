"""What keys a document can have at all, read off its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.spec.field import JsonSchema

REFERENCE: Final = "#/$defs/"


class Shape(Struct, frozen=True):
    """The form of a value. An open one, such as labels have, may hold any key."""

    schema: JsonSchema = field(default_factory=dict)
    definitions: JsonSchema = field(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, JsonSchema] | None:
        """The keys that it may have; None where it is open."""
        return self._resolved().get("properties")

    def member(self, key: str) -> Shape:
        """Return the form of what stands under a key; open where nothing is known of it."""
        resolved = self._resolved()
        return self._of(
            resolved.get("properties", {}).get(key)
            or resolved.get("additionalProperties")
        )

    def element(self) -> Shape:
        """Return the form of the elements of a list; open for anything else."""
        return self._of(self._resolved().get("items"))

    def entry(self) -> Shape:
        """Return the form of what brackets lead to: an element, or a value of a free mapping."""
        resolved = self._resolved()
        return self._of(
            resolved.get("items") or resolved.get("additionalProperties")
        )

    def _of(self, schema: object) -> Shape:
        if not isinstance(schema, dict):
            return OPEN
        return Shape(schema, self.definitions)

    def _resolved(self) -> JsonSchema:
        """Return the schema itself: what it refers to, or what it is where it is not null."""
        schema = self.schema
        while True:
            if "$ref" in schema:
                name = schema["$ref"].removeprefix(REFERENCE)
                schema = self.definitions[name]
                continue
            present = [
                choice
                for choice in schema.get("anyOf", ())
                if choice != {"type": "null"}
            ]
            if len(present) != 1:
                return schema
            schema = present[0]


OPEN: Final = Shape()
