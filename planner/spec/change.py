"""What two versions of a spec say differently, key by key, with the lines that say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from planner.spec.source import (
    MappingNode,
    ScalarNode,
    SequenceNode,
    parse_yaml,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.spec.source import Node


class KeyChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key that two versions of a spec say differently, as each of them writes it."""

    key: Annotated[
        str, Meta(description="path of the key, such as traffic.peak_rps")
    ]
    before: Annotated[
        str | None, Meta(description="none: the key was not there")
    ]
    after: Annotated[
        str | None, Meta(description="none: the key is not there any more")
    ]
    line_before: Annotated[
        int | None, Meta(description="its line in the old file, from 1")
    ]
    line: Annotated[
        int | None, Meta(description="its line in the new file, from 1")
    ]


class _Leaf(Struct, frozen=True):
    """What a key says, and in which line."""

    text: str
    line: int


def key_changes(
    before: bytes, after: bytes, path: str = "spec.yaml"
) -> tuple[KeyChange, ...]:
    """Return the keys that differ, in the order of the new file, then those that are gone.

    Order, comments and quotes of the files make no difference. A list of values is one key, a list
    of blocks has its position in the key: pools[0].nodes. Raises SpecError for what is no YAML.
    """
    old_leaves = dict(_leaves(parse_yaml(before, path), "", 1))
    new_leaves = dict(_leaves(parse_yaml(after, path), "", 1))
    changes = []
    for key in dict.fromkeys([*new_leaves, *old_leaves]):
        old, new = old_leaves.get(key), new_leaves.get(key)
        if old is not None and new is not None and old.text == new.text:
            continue
        changes.append(
            KeyChange(
                key=key,
                before=old.text if old is not None else None,
                after=new.text if new is not None else None,
                line_before=old.line if old is not None else None,
                line=new.line if new is not None else None,
            )
        )
    return tuple(changes)


def _leaves(node: Node, key: str, line: int) -> Iterator[tuple[str, _Leaf]]:
    """Yield the keys below a node; `line` is where the key of the node stands."""
    if isinstance(node, MappingNode) and node.nodes:
        prefix = f"{key}." if key else ""
        for name, inner in node.nodes.items():
            inner_line = node.key_places[name].line
            yield from _leaves(inner, f"{prefix}{name}", inner_line)
    elif isinstance(node, SequenceNode) and not _is_flat(node):
        for position, inner in enumerate(node.nodes):
            yield from _leaves(inner, f"{key}[{position}]", inner.place.line)
    else:
        yield key, _Leaf(_text(node), line)


def _is_flat(node: SequenceNode) -> bool:
    return all(isinstance(inner, ScalarNode) for inner in node.nodes)


def _text(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return node.text
    if isinstance(node, SequenceNode):
        return f"[{', '.join(map(_text, node.nodes))}]"
    return "{}"
