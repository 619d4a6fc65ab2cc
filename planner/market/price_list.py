"""Reads the price list of a small cloud: what a machine costs there an hour.

A list of another shape, unit or currency is refused as a whole: it is no answer.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner.facts.price_endpoint import (
        FieldText,
        ListedMachine,
        PathStep,
        PriceEndpoint,
    )


def page_entries(
    endpoint: PriceEndpoint, page: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the entries of a page. Raises ValueError for one without a list of them."""
    match _values_at(page, endpoint.entries):
        case [[*entries]] if all(isinstance(entry, dict) for entry in entries):
            return entries
        case _:
            raise ValueError(f"no list of {endpoint.entries[-1].field}")


def next_page(endpoint: PriceEndpoint, page: Mapping[str, Any]) -> str:
    """Return what names the next page; nothing on the last one."""
    named = _values_at(page, endpoint.next_page)
    return str(named[0] or "") if named else ""


def listed_prices(
    endpoint: PriceEndpoint,
    machines: Iterable[ListedMachine],
    entries: Sequence[Mapping[str, Any]],
) -> dict[str, Decimal]:
    """Return USD an hour by machine, of those that are in the list and sold on demand.

    price of a machine = price of its entry * hours of the entry in one of the machine

    What is no number a review refuses. Raises ValueError for an entry in another unit, without a
    price in the currency that was asked for, with several, or with others in another entry.
    """
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_name.setdefault(str(entry.get(endpoint.name)), []).append(entry)
    prices = {}
    for machine in machines:
        listed = {
            _entry_price(endpoint, machine, entry)
            for entry in by_name.get(machine.listed_as, ())
            if not _has(entry, endpoint.unsold)
        }
        if len(listed) > 1:
            raise ValueError(f"{machine.listed_as} has several prices")
        for price in listed:
            prices[machine.machine] = price
    return prices


def _entry_price(
    endpoint: PriceEndpoint, machine: ListedMachine, entry: Mapping[str, Any]
) -> Decimal:
    """Return USD an hour of a machine by its entry. Raises ValueError for another entry."""
    name, expected = machine.listed_as, endpoint.expected
    if expected is not None and not _has(entry, expected):
        raise ValueError(
            f"{name} has {expected.field} {entry.get(expected.field)!r}, "
            f"not {expected.text!r}"
        )
    found = _values_at(entry, endpoint.price)
    if len(found) != 1:
        raise ValueError(f"{name} has {len(found)} prices where one should be")
    try:
        return Decimal(_text(found[0])) * machine.hours
    except ArithmeticError as error:
        raise ValueError(
            f"{name} has the price {found[0]!r}, no number"
        ) from error


def _has(entry: Mapping[str, Any], wanted: FieldText | None) -> bool:
    return wanted is not None and _text(entry.get(wanted.field)) == wanted.text


def _text(value: Any) -> str:
    """Return a value as JSON writes it, as far as a table can name it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values_at(document: Any, path: Sequence[PathStep]) -> list[Any]:
    """Return what stands where a path leads; nothing where a step leads nowhere."""
    values = [document]
    for step in path:
        values = [
            chosen
            for value in values
            if isinstance(value, dict) and step.field in value
            for chosen in _chosen(value[step.field], step)
        ]
    return values


def _chosen(value: Any, step: PathStep) -> list[Any]:
    if not step.key:
        return [value]
    return [
        entry
        for entry in (value if isinstance(value, list) else ())
        if isinstance(entry, dict) and _text(entry.get(step.key)) == step.text
    ]
