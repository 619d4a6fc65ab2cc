"""What a table says of speculative decoding: its kind, its tokens and the share it accepts."""

from __future__ import annotations

from typing import Final

from planner.estimate.cell import Row, read_choice, read_count, read_share
from planner.perf.common.constant import constant
from planner.perf.serving.step import NO_DRAFT, Draft, speculate

DRAFT_KINDS: Final = (
    "none",
    "mtp",
    "eagle",
    "eagle3",
    "medusa",
    "model",
    "ngram",
    "unknown",
)
# The only kind whose usual acceptance is published.
PUBLISHED_KIND: Final = "mtp"


def read_draft(table_row: Row) -> Draft | None:
    """Return the draft of a row: None without one, NO_DRAFT when its gain cannot be told.

    Raises RefusedError for an unknown kind, or an acceptance that is no share.
    """
    draft_kind = read_choice(table_row, "draft", DRAFT_KINDS) or "none"
    draft_tokens = read_count(table_row, "draft_tokens", 0)
    acceptance = read_share(table_row, "draft_acceptance")
    if draft_kind == "none":
        return None
    if acceptance is None and draft_kind == PUBLISHED_KIND:
        acceptance = constant("draft_acceptance", PUBLISHED_KIND)
    if draft_kind == "unknown" or not draft_tokens or acceptance is None:
        return NO_DRAFT
    return speculate(
        draft_tokens, acceptance, prompt_lookup=draft_kind == "ngram"
    )
