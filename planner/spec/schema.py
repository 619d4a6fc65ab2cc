"""The JSON Schema of a spec, made from the same tables that read it."""

from __future__ import annotations

from typing import Any

from planner.spec.shape import KINDS


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of all kinds of specs."""
    kinds = {}
    for name, block in KINDS.items():
        kinds[name] = block.schema()
        kinds[name]["properties"]["kind"] = {"const": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tonnage:schema:spec:v1",
        "title": "tonnage spec",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": kinds,
    }
