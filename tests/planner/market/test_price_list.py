"""A price list is read in its unit and currency, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.facts.price_endpoint import listed_machines, price_endpoints
from planner.facts.small_cloud import small_cloud_machines
from planner.market.price_list import listed_prices, next_page, page_entries
from planner.market.price_update import is_usable
from tests.providers.live.price_lists import price_list

CLOUDS = tuple(price_endpoints())
OCI, VULTR = (price_list(cloud) for cloud in ("oci", "vultr"))
H100, A100 = "B98415", "vcg-a100-96c-960g-640vram"
Entry = dict[str, Any]


def prices_of(cloud: str, document: Any) -> dict[str, Decimal]:
    endpoint = price_endpoints()[cloud]
    entries = page_entries(endpoint, document)
    return listed_prices(endpoint, listed_machines()[cloud], entries)


def changed(cloud: str, name: str, change: Callable[[Entry], Any]) -> Any:
    """A price list in which one entry is changed."""
    document = deepcopy(OCI if cloud == "oci" else VULTR)
    endpoint = price_endpoints()[cloud]
    [field] = endpoint.entries
    [entry] = [
        entry for entry in document[field.field] if entry[endpoint.name] == name
    ]
    change(entry)
    return document


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_list_at_the_prices_of_the_program_says_these(cloud: str) -> None:
    """Prices of accelerators times their number are those of the table, as it has them."""
    known = {
        machine.machine: machine.usd_hour
        for machine in small_cloud_machines()
        if machine.cloud_name == cloud
    }
    assert prices_of(cloud, price_list(cloud)) == known


@settings(max_examples=20)
@given(st.permutations(OCI["items"]))
def test_the_order_of_a_list_says_nothing(items: list[Entry]) -> None:
    assert prices_of("oci", {"items": items}) == prices_of("oci", OCI)


def test_what_is_not_listed_or_not_sold_on_demand_has_no_price() -> None:
    few = {"items": [e for e in OCI["items"] if e["partNumber"] != H100]}
    assert prices_of("oci", OCI).keys() - prices_of("oci", few).keys() == {
        "BM.GPU.H100.8"
    }
    unsold = changed("vultr", A100, lambda e: e.update(deploy_ondemand=False))
    assert A100 not in prices_of("vultr", unsold)
    silent = changed("vultr", A100, lambda e: e.pop("deploy_ondemand"))
    assert prices_of("vultr", silent) == prices_of("vultr", VULTR)


def in_currency(code: str) -> Callable[[Entry], None]:
    return lambda e: e["currencyCodeLocalizations"][0].update(currencyCode=code)


def priced(value: Any) -> Callable[[Entry], None]:
    return lambda e: e["currencyCodeLocalizations"][0]["prices"][0].update(
        value=value
    )


def tiered(entry: Entry) -> None:
    prices = entry["currencyCodeLocalizations"][0]["prices"]
    prices.append({**prices[0], "rangeMin": 100, "value": 8})


@pytest.mark.parametrize(
    "change",
    [
        in_currency("EUR"),
        tiered,
        lambda e: e.pop("currencyCodeLocalizations"),
        lambda e: e["currencyCodeLocalizations"][0].pop("prices"),
        lambda e: e.update(currencyCodeLocalizations="USD"),
        lambda e: e.update(metricName="OCPU Per Hour"),
        lambda e: e.pop("metricName"),
        priced(None),
        priced("ten"),
        priced("sNaN"),
        priced(True),
        priced([10]),
    ],
)
def test_another_unit_currency_or_shape_is_no_answer(
    change: Callable[[Entry], Any],
) -> None:
    document = changed("oci", H100, change)
    with pytest.raises(ValueError, match=H100):
        prices_of("oci", document)


def test_two_prices_of_one_name_are_no_answer() -> None:
    twice = {"plans": [*VULTR["plans"], *VULTR["plans"]]}
    assert prices_of("vultr", twice) == prices_of("vultr", VULTR)
    dearer = changed("vultr", A100, lambda e: e.update(hourly_cost=20))
    both = {"plans": [*VULTR["plans"], *dearer["plans"]]}
    with pytest.raises(ValueError, match="several prices"):
        prices_of("vultr", both)


@pytest.mark.parametrize("value", ["NaN", "Infinity", 0, -1])
def test_what_no_machine_costs_is_left_to_the_review(value: Any) -> None:
    found = prices_of("oci", changed("oci", H100, priced(value)))
    assert not is_usable(found["BM.GPU.H100.8"])


@pytest.mark.parametrize(
    "page", [{}, {"items": None}, {"items": {}}, {"items": ["B98415"]}]
)
def test_a_page_without_a_list_is_no_answer(page: Any) -> None:
    with pytest.raises(ValueError, match="no list of items"):
        page_entries(price_endpoints()["oci"], page)


def test_the_next_page_is_named_in_the_words_of_each_cloud() -> None:
    endpoints = price_endpoints()
    link = {
        "links": [{"rel": "self", "href": "a"}, {"rel": "next", "href": "b"}]
    }
    assert next_page(endpoints["oci"], link) == "b"
    assert next_page(endpoints["oci"], OCI) == ""
    cursor = {"meta": {"links": {"next": "bmV4dA==", "prev": ""}}}
    assert next_page(endpoints["vultr"], cursor) == "bmV4dA=="
    assert next_page(endpoints["vultr"], VULTR) == ""


def test_every_listed_machine_is_one_of_the_table_once() -> None:
    listed = [
        (machine.cloud_name, machine.machine)
        for machines in listed_machines().values()
        for machine in machines
    ]
    assert len(listed) == len(set(listed))
    # Whole clouds are told, so that no plan compares prices of two ages of one.
    assert set(listed) == {
        (machine.cloud_name, machine.machine)
        for machine in small_cloud_machines()
        if machine.cloud_name in CLOUDS
    }
