"""Asks small clouds for the price lists that they tell everybody; nobody signs in."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from requests import Session

from planner.facts.price_endpoint import listed_machines, price_endpoints
from planner.market.price_list import listed_prices, next_page, page_entries
from providers.live.rest import send, with_retries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from planner.facts.price_endpoint import PriceEndpoint

# A list of some hundred entries has a few pages; one that never ends is cut off.
MOST_PAGES: Final = 50


def public_prices(
    cloud: str, machine_types: Collection[str]
) -> dict[str, Decimal]:
    """Return USD an hour on demand by machine type, of those that a small cloud lists.

    Raises OSError where it does not answer, and ValueError for a list of another shape.
    """
    endpoint = price_endpoints()[cloud]
    machines = [
        machine
        for machine in listed_machines()[cloud]
        if machine.machine in machine_types
    ]
    session = Session()
    with_retries(session)
    entries = [
        entry
        for page in _pages(session, endpoint)
        for entry in page_entries(endpoint, page)
    ]
    return listed_prices(endpoint, machines, entries)


def _pages(
    session: Session, endpoint: PriceEndpoint
) -> Iterator[Mapping[str, Any]]:
    """Yield the pages of a list. Raises ValueError for one that goes on elsewhere, or for ever."""
    url = endpoint.url
    for _ in range(MOST_PAGES):
        page = send(session, "GET", url, parse_float=Decimal)
        yield page
        named = next_page(endpoint, page)
        if not named:
            return
        following = (
            f"{endpoint.url}&{endpoint.cursor}={quote(named, safe='')}"
            if endpoint.cursor
            else named
        )
        if following == url:
            return
        if urlsplit(following)[:2] != urlsplit(endpoint.url)[:2]:
            raise ValueError(f"the list goes on at {following}")
        url = following
    raise ValueError(f"the list has more than {MOST_PAGES} pages")
