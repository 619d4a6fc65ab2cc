"""Where a key stands in the file of a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Place, SpecError
from planner.spec.source import MappingNode, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence


def place_of_spec_key(
    spec_bytes: bytes | None, path: str, keys: Sequence[str]
) -> Place:
    """Return where a key stands, or the nearest block around it that the file has.

    Without the file, or without keys, the place is the whole file.
    """
    if spec_bytes is None or not keys:
        return Place(path)
    try:
        node = parse_yaml(spec_bytes, path)
    except SpecError:
        # The file is another one by now.
        return Place(path)
    place = node.place
    for key in keys:
        if not isinstance(node, MappingNode) or key not in node.nodes:
            break
        place = node.key_places[key]
        node = node.nodes[key]
    return place
