"""Prices of small clouds in an update: rows like those of other clouds, in one place each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.facts.price_endpoint import listed_machines
from planner.facts.small_cloud import (
    SMALL_CLOUD_FILE,
    read_small_clouds,
    small_cloud_machines,
    small_clouds,
)
from planner.market.price_row import PriceRow, read_price_rows
from planner.market.price_update import price_questions
from planner.market.small_cloud import ANY_REGION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.facts.small_cloud import SmallCloudMachine
    from planner.market.price_update import AskedScope, PriceQuestion

PURCHASE: Final = "on_demand"


def catalog_price_rows(file_texts: Mapping[str, str]) -> list[PriceRow]:
    """Return all prices of a catalog's files; those of small clouds come last."""
    return [
        *read_price_rows(file_texts["prices.csv"]),
        *small_price_rows(table_machines(file_texts)),
    ]


def table_machines(
    file_texts: Mapping[str, str],
) -> tuple[SmallCloudMachine, ...]:
    """Return the machines of small clouds of a catalog's files, or those of the program."""
    text = file_texts.get(SMALL_CLOUD_FILE)
    return small_cloud_machines() if text is None else read_small_clouds(text)


def small_price_rows(machines: Iterable[SmallCloudMachine]) -> list[PriceRow]:
    """Return machines of small clouds as rows of prices."""
    return [
        PriceRow(
            provider=machine.cloud_name,
            instance_type=machine.machine,
            region=ANY_REGION,
            purchase=PURCHASE,
            scope="machine",
            usd_hour=f"{machine.usd_hour:f}",
            basis="observed",
            usd_min="",
            usd_max="",
            as_of=machine.as_of,
            source=machine.source,
            confidence="medium",
        )
        for machine in machines
    ]


def is_small(row: PriceRow) -> bool:
    """Return whether a price is of a small cloud."""
    return row.provider in small_clouds()


def small_questions(scope: AskedScope) -> list[PriceQuestion]:
    """Return what to ask of small clouds that tell everybody prices: all that they list.

    So a machine that had vanished is asked for again.
    """
    listed = {
        (machine.cloud_name, machine.machine)
        for machines in listed_machines().values()
        for machine in machines
    }
    rows = small_price_rows(
        machine
        for machine in small_cloud_machines()
        if (machine.cloud_name, machine.machine) in listed
    )
    return [
        question
        for question in price_questions(rows, scope)
        # They are asked for one way of buying alone.
        if question.purchase == PURCHASE
    ]


def updated_machines(
    machines: Iterable[SmallCloudMachine], rows: Iterable[PriceRow]
) -> tuple[SmallCloudMachine, ...]:
    """Return the machines of rows of prices, at their price, source and date.

    What they are is that of `machines`, or of the program where these had lost it.
    """
    by_name = {
        (machine.cloud_name, machine.machine): machine
        for machine in (*small_cloud_machines(), *machines)
    }
    return tuple(
        replace(
            by_name[row.provider, row.instance_type],
            usd_hour=row.usd,
            source=row.source,
            as_of=row.as_of,
        )
        for row in rows
        if is_small(row)
    )
