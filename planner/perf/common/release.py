"""The order of releases of engines and frameworks."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

# The sortable numbers of a release: its numbers, then pairs of rank and number of its suffixes.
ReleaseKey: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
# PEP 440: development before alpha, beta and candidates, these before the release itself.
SUFFIX_RANKS: Final = {
    "dev": -4,
    "a": -3,
    "b": -2,
    "pre": -1,
    "rc": -1,
    "post": 1,
}
RELEASE_ITSELF: Final = (0, 0)
SUFFIX_PATTERN: Final = re.compile(r"(rc|pre|post|dev|a|b)(\d*)")


def release_key(version: str) -> ReleaseKey:
    """Return what puts releases in the order of PEP 440.

    Numbers are compared without the zeros at their end: 1.1 is 1.1.0. A post-release comes after
    the release, a candidate before it.
    """
    number_text = re.split(r"[.-]?[a-z]", version, maxsplit=1)[0]
    numbers = [int(number) for number in number_text.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    suffixes = [
        (SUFFIX_RANKS[name], int(number or 0))
        for name, number in SUFFIX_PATTERN.findall(version)
    ]
    return tuple(numbers), (*suffixes, RELEASE_ITSELF)
