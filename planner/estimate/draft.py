"""What a table says of speculative decoding, such as 'MTP-3' or 'eagle3-4, acceptance 70 %'."""

from __future__ import annotations

import re
from typing import Final

from planner.estimate.names import RefusedError
from planner.perf.constant import constant
from planner.perf.physics import NONE, Draft, draft

OFF: Final = ("none", "no", "off", "false")
GUESSED: Final = re.compile(
    r"(mtp|eagle3?|medusa|draft|n-?gram)[ -]?(\d{1,2})\b"
)
ACCEPTED: Final = re.compile(r"acceptance[ =:]*(\d*\.?\d+) ?(%?)")
KNOWN: Final = "mtp"  # the only kind whose usual acceptance is published


def drafted(told: str) -> Draft | None:
    """Return the draft of a cell: None without one, NONE when its gain cannot be told.

    Raises RefusedError for an acceptance that is no share.
    """
    said = told.strip().lower()
    if not said or said.startswith(OFF):
        return None
    found, stated = GUESSED.match(said), ACCEPTED.search(said)
    if not found or not (stated or found[1] == KNOWN):
        return NONE
    share = constant("draft_acceptance", KNOWN)
    if stated:
        share = float(stated[1]) / (100 if stated[2] else 1)
    if not 0 <= share <= 1:
        raise RefusedError(f"an acceptance of {share:g} is not between 0 and 1")
    return draft(int(found[2]), share, free=found[1].startswith("n"))
