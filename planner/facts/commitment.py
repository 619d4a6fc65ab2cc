"""The forms in which clouds sell commitments: what each serves, how it ends and is paid."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds


class CommitmentForm(Struct, frozen=True, kw_only=True):
    """One form of commitment of a cloud, such as its savings plans.

    form     its id, as prices and plans name it
    name     what it is called
    serves   what its hours may be used for
    ends     what becomes of it when nobody needs it any more
    part_at_start  share of the term that is paid at the start where a part is; None where no
             part may be
    is_asked  whether an update of a catalog asks the cloud for its prices
    monthly, at_once, in_part  what the cloud calls these payments; empty where it has no word
    command  shows or buys it; words in braces are filled in: region, machine, stack, months,
             seconds and payment; words in capitals are for whoever types it
    """

    cloud: str
    form: str
    name: str
    serves: str
    ends: str
    part_at_start: Decimal | None
    monthly: str
    at_once: str
    in_part: str
    is_asked: bool
    command: str
    source: str
    as_of: str

    def word_of(self, payment: str) -> str:
        """Return what the cloud calls a payment: monthly, at_once or in_part."""
        words = {
            "monthly": self.monthly,
            "at_once": self.at_once,
            "in_part": self.in_part,
        }
        return words[payment]

    @property
    def sentence(self) -> str:
        """What may be done with it, for people."""
        return f"{self.name} of {self.cloud}: serves {self.serves}; {self.ends}"


@cache
def commitment_forms() -> dict[tuple[str, str], CommitmentForm]:
    """Return the forms by cloud and id. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "form": table.nonempty_text,
        "name": table.nonempty_text,
        "serves": table.nonempty_text,
        "ends": table.nonempty_text,
        "part_at_start": table.optional(table.finite_decimal),
        "monthly": table.any_text,
        "at_once": table.any_text,
        "in_part": table.any_text,
        "is_asked": table.yes_or_no,
        "command": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "commitments.csv", columns)
    return {
        (cloud, form): CommitmentForm(**row.cells)
        for (cloud, form), row in table.rows_by_key(
            rows, "cloud", "form"
        ).items()
    }


@cache
def forms_of_sources() -> dict[str, str]:
    """Return of which form the commitments are that a source of prices has.

    Raises CatalogError for an invalid row.
    """
    columns: table.Columns = {
        "prices": table.nonempty_text,
        "form": table.one_of(*{form for _, form in commitment_forms()}),
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "commitment_sources.csv", columns)
    return {
        prices: row["form"]
        for (prices,), row in table.rows_by_key(rows, "prices").items()
    }
