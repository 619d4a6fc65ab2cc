"""Digits that make a name the only one in the world.

Buckets have their names in common with all accounts of their cloud. A name that follows from the
stack alone would be taken by the first account with a stack of this name. The account is known
when a plan is applied, and on a machine; a plan holds a place for the digits.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UNIQUE_DIGITS = 8
PLACE = re.compile(r"\$\{unique\.([0-9a-f]+)\}")


def unique_place(seed: str) -> str:
    """Return the place, in a text, of the digits that follow from a seed and from the account."""
    return f"${{unique.{seed}}}"


def unique_digits(seed: str, account: str) -> str:
    """Return the hexadecimal digits of a seed in an account."""
    return hashlib.sha256(f"{seed}/{account}".encode()).hexdigest()[
        :UNIQUE_DIGITS
    ]


def fill_unique(text: str, account: Callable[[], str]) -> str:
    """Return a text with its digits; the account is asked for where there are any."""
    return PLACE.sub(lambda place: unique_digits(place[1], account()), text)
