"""Where prices of a catalog are from: rows of its sources.csv, by the names that prices give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class CatalogSource(Struct, frozen=True, kw_only=True):
    """One source of prices.

    name   what rows of prices call it
    what   what it is, for people
    as_of  the date of what it says, as text: some have none, or a span
    url    its address; empty where nobody has noted one
    """

    name: str
    what: str
    as_of: str
    url: str


def named_sources(
    text: str, sources: Iterable[CatalogSource]
) -> tuple[CatalogSource, ...]:
    """Return the sources that a price names: the one of that name, or else those among its words.

    A price of one's own names its list price last, `prices.yaml:3: 10 % off karp-az`, and so does
    an old price of spot: `upper end of 0.5 USD an hour by sky9-aws`.
    """
    by_name = {source.name: source for source in sources}
    if text in by_name:
        return (by_name[text],)
    words = text.replace(",", " ").split()
    return tuple(
        by_name[word] for word in dict.fromkeys(words) if word in by_name
    )
