"""Did you mean: the known word that is closest to an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Share of letters in common from which one name is taken for another with a slip.
SLIP_RATIO: Final = 0.9


def closest(word: str, known_words: Iterable[str]) -> str | None:
    """Return the known word that is closest, or nothing when none is close.

    Of words that are close, one with the same letters comes first: letters that changed places
    are the likeliest error.

    >>> closest("us-esat-1", ["us-west-1", "us-east-1"])
    'us-east-1'
    """
    matches = difflib.get_close_matches(word, list(known_words), cutoff=0.6)
    same_letters = [match for match in matches if sorted(match) == sorted(word)]
    return next(iter(same_letters or matches), None)


def is_slip(word: str, known_words: Iterable[str]) -> bool:
    """Return whether a word is a known one but for a letter or two, and not another name.

    >>> is_slip("torchtitna", ["torchtitan"]), is_slip("megatron-core", ["megatron-lm"])
    (True, False)
    """
    return bool(
        difflib.get_close_matches(word, list(known_words), cutoff=SLIP_RATIO)
    )


def prefix_pattern(word: str) -> str:
    """Return the glob of a word: one without wildcards finds all names that begin with it.

    >>> prefix_pattern("h100"), prefix_pattern("*-sxm")
    ('h100*', '*-sxm')
    """
    return word if any(wildcard in word for wildcard in "*?[") else f"{word}*"


def did_you_mean(
    word: str, known_words: Iterable[str], *, otherwise: str
) -> str:
    """Return the next step of whoever named what there is not: what is close, or another one.

    >>> did_you_mean("chta", ["chat"], otherwise="see all: tonnage list")
    "did you mean 'chat'?"
    """
    similar = closest(word, known_words)
    return f"did you mean '{similar}'?" if similar else otherwise
