"""Did you mean: the known word that is closest to an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def closest(word: str, known_words: Iterable[str]) -> str | None:
    """Return the known word that is closest, or nothing when none is close."""
    matches = difflib.get_close_matches(word, list(known_words), 1, cutoff=0.6)
    return matches[0] if matches else None
