"""What a cloud calls its commitments, and the command that shows what is sold."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds


class CommitmentFacts(Struct, frozen=True, kw_only=True):
    """The commitments of a cloud.

    name     what they are called
    command  shows or buys them; words in braces are filled in: region, machine, stack, months and
             seconds; words in capitals are for whoever types it
    """

    cloud: str
    name: str
    command: str
    source: str
    as_of: str


@cache
def commitments() -> dict[str, CommitmentFacts]:
    """Return the commitments by cloud. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "name": table.nonempty_text,
        "command": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "commitments.csv", columns)
    return {
        name: CommitmentFacts(**row.cells)
        for (name,), row in table.rows_by_key(rows, "cloud").items()
    }
