"""What every part of a document rests on: a strict structure, and the words that parts share."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

# Predicted numbers have six significant digits; whole ones are written without a point.
Number: TypeAlias = int | float
Basis: TypeAlias = Literal["measured", "calibrated", "physics", "spec"]
# Properties of a resource, or of a document of somebody else, under their own names.
Properties: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["serve", "batch", "train", "workspace"]
Period: TypeAlias = Literal["month", "run", "life"]


class DocumentPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a document: it cannot change, and what it does not know it refuses."""
