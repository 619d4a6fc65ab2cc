"""What a table says of speculative decoding, such as 'MTP-3' or 'eagle3-4, acceptance 70 %'."""

from __future__ import annotations

import re
from typing import Final

from planner.estimate.names import RefusedError
from planner.perf.common.constant import constant
from planner.perf.serving.step import NO_DRAFT, Draft, speculate

OFF_WORDS: Final = ("none", "no", "off", "false")
DRAFT_PATTERN: Final = re.compile(
    r"(mtp|eagle3?|medusa|draft|n-?gram)[ -]?(\d{1,2})\b"
)
ACCEPTANCE_PATTERN: Final = re.compile(r"acceptance[ =:]*(\d*\.?\d+) ?(%?)")
PUBLISHED_KIND: Final = (
    "mtp"  # the only kind whose usual acceptance is published
)


def parse_draft(cell_text: str) -> Draft | None:
    """Return the draft of a cell: None without one, NONE when its gain cannot be told.

    Raises RefusedError for an acceptance that is no share.
    """
    normalized = cell_text.strip().lower()
    if not normalized or normalized.startswith(OFF_WORDS):
        return None
    draft_match = DRAFT_PATTERN.match(normalized)
    acceptance_match = ACCEPTANCE_PATTERN.search(normalized)
    if not draft_match or not (
        acceptance_match or draft_match[1] == PUBLISHED_KIND
    ):
        return NO_DRAFT
    acceptance = constant("draft_acceptance", PUBLISHED_KIND)
    if acceptance_match:
        acceptance = float(acceptance_match[1]) / (
            100 if acceptance_match[2] else 1
        )
    if not 0 <= acceptance <= 1:
        raise RefusedError(
            f"an acceptance of {acceptance:g} is not between 0 and 1"
        )
    return speculate(
        int(draft_match[2]),
        acceptance,
        prompt_lookup=draft_match[1].startswith("n"),
    )
