"""Price lists that small clouds tell everybody: rows of data/price_endpoints.csv.

Which entry of a list is of which machine says data/price_listings.csv.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from msgspec import Struct

from planner.facts import table
from planner.facts.small_cloud import small_cloud_machines

# A field of an answer, or the entries of a list in whose field stands a text.
STEP: Final = re.compile(r"(?P<field>\w+)(\[(?P<key>\w+)=(?P<text>\w+)\])?")


class PathStep(Struct, frozen=True):
    """A step into an answer: a field, and of a list in it the entries with a text in a field.

    Without `key` a list is not chosen from.
    """

    field: str
    key: str = ""
    text: str = ""


class FieldText(Struct, frozen=True):
    """A field of an entry with a text in it."""

    field: str
    text: str


class PriceEndpoint(Struct, frozen=True, kw_only=True):
    """A list of prices in USD an hour on demand, and where in its answer each thing stands.

    cloud      how people write its name
    entries    where the list is
    next_page  where the next page is named; a page without it is the last one
    cursor     parameter that the name of a next page is sent in; empty where it is a URL
    name       field with the name of an entry
    expected   what every entry that is read has: its unit; none where all have the same
    unsold     what an entry has that is not sold on demand; none where all are
    price      where the price of an entry is
    per        accelerator or machine: whose hour it is of
    """

    cloud: str
    url: str
    entries: tuple[PathStep, ...]
    next_page: tuple[PathStep, ...]
    cursor: str
    name: str
    expected: FieldText | None
    unsold: FieldText | None
    price: tuple[PathStep, ...]
    per: str
    source: str
    as_of: str


class ListedMachine(Struct, frozen=True, kw_only=True):
    """A machine of a small cloud in the price list of its cloud.

    hours  how often the price of the list is in an hour of the machine
    """

    cloud_name: str
    machine: str
    listed_as: str
    hours: int


@cache
def price_endpoints() -> dict[str, PriceEndpoint]:
    """Return the price lists by the name of their cloud in specs.

    Raises CatalogError for an invalid row.
    """
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "url": table.nonempty_text,
        "entries": _path,
        "next_page": _path,
        "cursor": table.any_text,
        "name": table.nonempty_text,
        "expected": table.optional(_field_text),
        "unsold": table.optional(_field_text),
        "price": _path,
        "per": table.one_of("accelerator", "machine"),
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "price_endpoints.csv", columns)
    return {row["cloud"].lower(): PriceEndpoint(**row.cells) for row in rows}


@cache
def listed_machines() -> dict[str, tuple[ListedMachine, ...]]:
    """Return the machines in price lists, by the name of their cloud in specs.

    Raises CatalogError for an invalid row, and for a machine that no small cloud has.
    """
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "machine": table.nonempty_text,
        "listed_as": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    accelerators = {
        (machine.cloud, machine.machine): machine.accelerators
        for machine in small_cloud_machines()
    }
    listed: dict[str, tuple[ListedMachine, ...]] = dict.fromkeys(
        price_endpoints(), ()
    )
    for row in table.load_rows("planner.facts", "price_listings.csv", columns):
        cloud_name = row["cloud"].lower()
        machine_key = (row["cloud"], row["machine"])
        if cloud_name not in listed or machine_key not in accelerators:
            table.refuse_row(row.place, "no price list, or no such machine")
        is_each = price_endpoints()[cloud_name].per == "accelerator"
        listed[cloud_name] += (
            ListedMachine(
                cloud_name=cloud_name,
                machine=row["machine"],
                listed_as=row["listed_as"],
                hours=accelerators[machine_key] if is_each else 1,
            ),
        )
    return listed


def _path(cell: str) -> tuple[PathStep, ...]:
    """Return the steps of a path such as prices[model=PAYG].value. Raises ValueError."""
    steps = []
    for text in cell.split("."):
        match = STEP.fullmatch(text)
        if match is None:
            raise ValueError("is not a path such as prices[model=PAYG].value")
        steps.append(
            PathStep(
                match["field"],
                match["key"] or "",
                match["text"] or "",
            )
        )
    return tuple(steps)


def _field_text(cell: str) -> FieldText:
    """Return a field and its text, of field=text. Raises ValueError."""
    field, sign, text = cell.partition("=")
    if not (field and sign and text):
        raise ValueError("is not a field and its text, such as unit=hour")
    return FieldText(field, text)
