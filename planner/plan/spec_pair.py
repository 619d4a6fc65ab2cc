"""Which spec of one side is which spec of the other: by path, by content, or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class SpecIdentity(Struct, frozen=True, kw_only=True):
    """By what a spec is found again under another path.

    content  digest of its file
    kind     and `name` in the spec; None for one that is invalid
    """

    content: str
    kind: str | None = None
    name: str | None = None


class SpecPair(Struct, frozen=True):
    """The paths of a spec on both sides; None: it is not there."""

    before: str | None
    after: str | None

    @property
    def path(self) -> str:
        """Where it is, or was."""
        return self.after or self.before or ""


def pair_specs(
    before: Mapping[str, SpecIdentity], after: Mapping[str, SpecIdentity]
) -> list[SpecPair]:
    """Return the specs of both sides in pairs, by path.

    A spec keeps its path. Of the others, first those with the same content are the same one, then
    those with the same kind and name. What several specs have in common pairs none of them.
    """
    pairs = [SpecPair(path, path) for path in before if path in after]
    old = {path: before[path] for path in before if path not in after}
    new = {path: after[path] for path in after if path not in before}
    for key in (_content, _kind_and_name):
        for old_path, new_path in list(_matches(old, new, key)):
            pairs.append(SpecPair(old_path, new_path))
            del old[old_path], new[new_path]
    pairs += [SpecPair(path, None) for path in old]
    pairs += [SpecPair(None, path) for path in new]
    return sorted(pairs, key=lambda pair: (pair.path, pair.before or ""))


def _content(identity: SpecIdentity) -> str:
    return identity.content


def _kind_and_name(identity: SpecIdentity) -> str | None:
    if identity.kind is None or identity.name is None:
        return None
    return f"{identity.kind} {identity.name}"


def _matches(
    old: Mapping[str, SpecIdentity],
    new: Mapping[str, SpecIdentity],
    key: Callable[[SpecIdentity], str | None],
) -> Iterator[tuple[str, str]]:
    """Yield the paths that a key pairs: it must be that of one spec alone on each side."""
    old_paths = _by_key(old, key)
    new_paths = _by_key(new, key)
    for value, paths in old_paths.items():
        others = new_paths.get(value, [])
        if len(paths) == len(others) == 1:
            yield paths[0], others[0]


def _by_key(
    specs: Mapping[str, SpecIdentity],
    key: Callable[[SpecIdentity], str | None],
) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for path, identity in sorted(specs.items()):
        value = key(identity)
        if value is not None:
            groups.setdefault(value, []).append(path)
    return groups
