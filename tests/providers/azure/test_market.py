"""What Azure sells and what a subscription has reserved, at a service like Azure's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from planner.facts.cloud import clouds
from planner.market.live import NO_ZONE, ReservationFact
from providers.azure import market
from providers.live.market import MarketModule
from tests.loopback import Answer, Cloud, Request
from tests.providers.shapes import ORDINARY, Document, answer_of, call_of
from tests.providers.shapes.service import refuse, said, serve

pytestmark = pytest.mark.enable_socket

RETAIL = "azure/RetailPrices_List"
GROUPS_CALL = "azure/CapacityReservationGroups_ListBySubscription"
LISTED = "azure/CapacityReservations_ListByCapacityReservationGroup"
RESERVATION = "azure/CapacityReservations_Get"
SCORES = "azure/SpotPlacementScores_Post"
H100 = "Standard_ND96isr_H100_v5"
H200 = "Standard_ND96isr_H200_v5"
T4 = "Standard_NC4as_T4_v3"
GROUPS = (
    "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/research"
    "/providers/Microsoft.Compute/capacityReservationGroups"
)
AZURE: MarketModule = market


def rows_of(case: str) -> list[Document]:
    """The rows of a page of prices."""
    rows: list[Document] = answer_of(RETAIL, case)["Items"]
    return rows


# What is a price of none of the machines that are asked for.
NO_PRICE = (
    "another_currency",
    "another_region",
    "another_unit",
    "cloud_services",
    "dedicated_host",
    "dev_test",
    "future",
    "low_priority",
    "reservation",
    "windows",
    "zero",
)
# The prices of what is sold: of H100 first.
SOLD = rows_of(ORDINARY)


def sell(cloud: Cloud, *cases: str) -> None:
    list_rows(cloud, [row for case in cases for row in rows_of(case)])


def list_rows(cloud: Cloud, rows: list[Document]) -> None:
    serve(cloud, {RETAIL: {**answer_of(RETAIL), "Items": rows}})


def asked_filter(request: Request) -> str:
    [text] = parse_qs(urlsplit(request.path).query)["$filter"]
    return text


@pytest.mark.parametrize("is_reversed", [False, True])
def test_prices_are_those_of_linux_now_without_agreement(
    cloud: Cloud, is_reversed: bool
) -> None:
    """Whatever else is listed, before or after them."""
    cases = sorted((ORDINARY, "old", *NO_PRICE), reverse=is_reversed)
    sell(cloud, *cases)
    types = [H100, H200, T4, "Standard_NC8as_T4_v3"]
    assert AZURE.on_demand_prices("eastus", types) == {
        H100: Decimal("98.32"),
        H200: Decimal("84.8"),
        T4: Decimal("0.526"),
    }
    assert AZURE.spot_prices("eastus", types) == {
        H100: {NO_ZONE: Decimal("19.664")},
        T4: {NO_ZONE: Decimal("0.1052")},
    }


def has_no_price(cloud: Cloud) -> bool:
    """Whether a machine has no price, in either way to buy it."""
    on_demand = AZURE.on_demand_prices("eastus", [H100])
    return not on_demand and not AZURE.spot_prices("eastus", [H100])


@pytest.mark.parametrize("case", [*NO_PRICE, "empty"])
def test_what_is_no_price_leaves_a_type_without_one(
    cloud: Cloud, case: str
) -> None:
    """Each kind of row alone: none of them counts, not even where there is no other."""
    sell(cloud, case)
    assert has_no_price(cloud)


@pytest.mark.parametrize(
    "field",
    [
        "productName",
        "skuName",
        "meterName",
        "type",
        "unitOfMeasure",
        "armRegionName",
        "armSkuName",
        "currencyCode",
        "retailPrice",
    ],
)
def test_a_row_that_does_not_say_what_it_is_has_no_price(
    cloud: Cloud, field: str
) -> None:
    row = dict(SOLD[0])
    del row[field]
    list_rows(cloud, [row])
    assert has_no_price(cloud)


@pytest.mark.parametrize("price", ["98.32 USD", -1.5, None, True])
def test_what_nobody_can_pay_is_no_price(cloud: Cloud, price: object) -> None:
    list_rows(cloud, [{**SOLD[0], "retailPrice": price}])
    assert has_no_price(cloud)


@pytest.mark.parametrize("field", ["skuName", "meterName"])
@pytest.mark.parametrize(
    ("mark", "is_spot"), [("Spot", True), ("Low Priority", False)]
)
def test_one_field_is_enough_to_say_what_is_sold(
    cloud: Cloud, field: str, mark: str, is_spot: bool
) -> None:
    row = SOLD[0]
    list_rows(cloud, [{**row, field: f"{row[field]} {mark}"}])
    assert AZURE.on_demand_prices("eastus", [H100]) == {}
    assert (H100 in AZURE.spot_prices("eastus", [H100])) == is_spot


def test_an_old_price_holds_until_a_newer_one_does(cloud: Cloud) -> None:
    sell(cloud, "old", "future")
    assert AZURE.on_demand_prices("eastus", [H100]) == {H100: Decimal("110.1")}
    sell(cloud, "old", "future", ORDINARY)
    assert AZURE.on_demand_prices("eastus", [H100]) == {H100: Decimal("98.32")}


def test_of_two_prices_of_one_day_the_higher_counts(cloud: Cloud) -> None:
    row = SOLD[0]
    for prices in ((1.5, 2.5), (2.5, 1.5)):
        list_rows(cloud, [{**row, "retailPrice": price} for price in prices])
        assert AZURE.on_demand_prices("eastus", [H100]) == {
            H100: Decimal("2.5")
        }


def test_a_price_without_a_date_yields_to_one_with_a_date(cloud: Cloud) -> None:
    row = {**SOLD[0], "retailPrice": 200.5}
    del row["effectiveStartDate"]
    list_rows(cloud, [row])
    assert AZURE.on_demand_prices("eastus", [H100]) == {H100: Decimal("200.5")}
    list_rows(cloud, [row, *SOLD])
    assert AZURE.on_demand_prices("eastus", [H100]) == {H100: Decimal("98.32")}


@pytest.mark.parametrize("printed", ["0.10", "3.12345678901234567890", "7"])
def test_a_price_is_the_number_that_is_printed(
    cloud: Cloud, printed: str
) -> None:
    page = json.dumps({"Items": [{**SOLD[0], "retailPrice": "PRICE"}]})
    text = page.replace('"PRICE"', printed)
    cloud.answer = lambda _: (200, text)
    price = AZURE.on_demand_prices("eastus", [H100])[H100]
    assert str(price) == printed


@pytest.mark.parametrize(
    ("region", "price"), [("eastus", "98.32"), ("westeurope", "120.0")]
)
def test_each_region_has_its_prices(
    cloud: Cloud, region: str, price: str
) -> None:
    sell(cloud, ORDINARY, "another_region")
    assert AZURE.on_demand_prices(region, [H100]) == {H100: Decimal(price)}
    assert f"armRegionName eq '{region}'" in asked_filter(cloud.asked[0])


@pytest.mark.parametrize(
    ("types", "start"),
    [
        ([H100], H100),
        ([H100, H200], "Standard_ND96isr_H"),
        ([T4, H100], "Standard_N"),
    ],
)
def test_a_question_has_what_names_begin_with(
    cloud: Cloud, types: list[str], start: str
) -> None:
    """One question for all types; nobody signs in for it."""
    sell(cloud, ORDINARY)
    AZURE.on_demand_prices("eastus", types)
    [request] = cloud.asked
    assert asked_filter(request) == (
        "serviceName eq 'Virtual Machines' and armRegionName eq 'eastus' "
        f"and priceType eq 'Consumption' and contains(armSkuName, '{start}')"
    )
    query = parse_qs(urlsplit(request.path).query)
    assert query["currencyCode"] == ["'USD'"]


def test_who_asks_for_no_type_asks_nothing(cloud: Cloud) -> None:
    assert AZURE.on_demand_prices("eastus", []) == {}
    assert AZURE.spot_scores("eastus", [], 1) == {}
    assert cloud.asked == []


def test_prices_go_over_pages_until_a_link_comes_again(cloud: Cloud) -> None:
    """The last page leads to the second one: it is read, and no page twice."""
    pages = {"0": (SOLD[:1], 1), "1": (SOLD[1:3], 2), "2": (SOLD[3:], 1)}

    def answer(request: Request) -> Answer:
        [page] = parse_qs(urlsplit(request.path).query).get("$skip", ["0"])
        rows, following = pages[page]
        link = f"{market.RETAIL_URL}?$skip={following}"
        return said(RETAIL, {"Items": rows, "NextPageLink": link})

    cloud.answer = answer
    prices = AZURE.on_demand_prices("eastus", [H100, H200])
    assert prices.keys() == {H100, H200}
    assert len(cloud.asked) == 3


@pytest.mark.parametrize("page", [{"Items": None}, {"Items": [{}]}])
def test_an_empty_list_has_no_price(cloud: Cloud, page: dict[str, Any]) -> None:
    serve(cloud, {RETAIL: page})
    assert AZURE.spot_prices("eastus", [H100]) == {}


# The reservations of each group, as cases of a file.
IN_GROUP = {
    "zonal": (ORDINARY, "over_used", "of_two_zones"),
    "regional": ("regional",),
    "block": ("block",),
    "odd": ("none", "nameless", "unused", "empty"),
    "far": ("elsewhere",),
}


def reservation(case: str) -> Document:
    """A reservation; one is of no machine type, which no service documents."""
    if case != "nameless":
        return answer_of(RESERVATION, case)
    document = answer_of(RESERVATION)
    del document["sku"]["name"]
    return {**document, "name": case}


def serve_reservations(cloud: Cloud) -> None:
    """Answer as the service does: the use of a reservation only where it alone is asked for."""
    groups = answer_of(GROUPS_CALL)
    groups["value"] += answer_of(GROUPS_CALL, "others")["value"]

    def answer(request: Request) -> Answer:
        call, url = call_of(request), urlsplit(request.path)
        assert parse_qs(url.query)["api-version"] == ["2025-04-01"]
        if call == GROUPS_CALL:
            return said(call, groups)
        found = re.fullmatch(
            rf"{GROUPS}/(\w+)/capacityReservations(?:/(\w+))?", url.path
        )
        assert found is not None, url.path
        by_name = {
            document["name"]: document
            for document in map(reservation, IN_GROUP[found[1]])
        }
        if call == RESERVATION:
            assert parse_qs(url.query)["$expand"] == ["instanceView"]
            return said(call, by_name[found[2]])
        [row] = answer_of(LISTED)["value"]
        return said(
            call, {"value": [{**row, "name": name} for name in by_name]}
        )

    cloud.answer = answer


def reserved(
    group: str,
    machine_type: str,
    zone: str,
    machines: int,
    free: int,
    ends: str = "",
) -> ReservationFact:
    return ReservationFact(
        id=f"{GROUPS}/{group}",
        machine_type=machine_type,
        zone=zone,
        machines=machines,
        free=free,
        ends=ends,
        is_named=True,
    )


def test_reservations_of_a_region_with_what_is_free(cloud: Cloud) -> None:
    """What was asked for and is not there does not count; more may run than is reserved.

    A reservation whose use the service does not say is left out, and one of no machine.
    """
    serve_reservations(cloud)
    assert AZURE.reservations("eastus") == [
        reserved("zonal", H100, "1", machines=4, free=3),
        reserved("zonal", H100, "2", machines=2, free=0),
        reserved("zonal", T4, "1", machines=1, free=1),
        reserved("zonal", T4, "2", machines=1, free=1),
        reserved("regional", T4, NO_ZONE, machines=3, free=2),
        reserved(
            "block", H100, "1", machines=1, free=1, ends="2026-12-02T00:00:00Z"
        ),
        reserved("odd", T4, "1", machines=3, free=3),
    ]


def test_a_reservation_is_named_as_a_spec_names_it(cloud: Cloud) -> None:
    serve_reservations(cloud)
    form = clouds()["azure"].reservation_form
    for fact in AZURE.reservations("eastus"):
        assert re.fullmatch(form, fact.id)


def test_groups_of_other_regions_are_not_read(cloud: Cloud) -> None:
    serve_reservations(cloud)
    assert AZURE.reservations("westeurope") == [
        reserved("far", H100, "1", machines=4, free=4)
    ]
    assert len(cloud.asked) == 3
    assert AZURE.reservations("northeurope") == []


def test_scores_are_shares_and_unknown_words_are_left_out(cloud: Cloud) -> None:
    """Five types in one question: the sixth has one of its own."""
    serve(cloud)
    types = [size["sku"] for size in answer_of(SCORES)["desiredSizes"]]
    scores = AZURE.spot_scores("eastus", types, 4)
    assert list(scores) == types[:4]
    high, medium, low, restricted = (
        by_zone[NO_ZONE] for by_zone in scores.values()
    )
    assert 1 > high > medium > low > restricted == 0
    # What has no score in a zone is asked for the region.
    assert [request.document() for request in cloud.asked] == [
        {
            "desiredLocations": ["eastus"],
            "desiredSizes": [{"sku": name} for name in asked],
            "desiredCount": 4,
            "availabilityZones": in_zones,
        }
        for asked, in_zones in (
            (types[:5], True),
            (types[5:], True),
            (types[4:], False),
        )
    ]
    assert {urlsplit(request.path).path for request in cloud.asked} == {
        "/subscriptions/sub/providers/Microsoft.Compute/locations/eastus"
        "/placementScores/spot/generate"
    }


def test_scores_of_zones_are_told_apart(cloud: Cloud) -> None:
    """And a word that nobody knows is no score."""
    serve(cloud, {SCORES: "zones"})
    by_zone = AZURE.spot_scores("eastus", [H100], 1)[H100]
    assert list(by_zone) == ["1", "2"]
    assert by_zone["1"] < by_zone["2"]
    assert len(cloud.asked) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda: AZURE.on_demand_prices("eastus", [H100]),
        lambda: AZURE.spot_prices("eastus", [H100]),
        lambda: AZURE.reservations("eastus"),
        lambda: AZURE.spot_scores("eastus", [H100], 1),
    ],
    ids=["on_demand", "spot", "reservations", "scores"],
)
@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("expired", PermissionError),
        ("permission", PermissionError),
        ("unknown", FileNotFoundError),
        ("throttled", OSError),
        ("broken", OSError),
    ],
)
def test_refusals_are_errors_of_the_room(
    cloud: Cloud, ask: Callable[[], object], case: str, error: type[Exception]
) -> None:
    refuse(cloud, case)
    with pytest.raises(error) as raised:
        ask()
    assert type(raised.value) is error


def test_an_answer_that_is_no_json_is_an_error(cloud: Cloud) -> None:
    cloud.answer = lambda _: (200, "<html>busy</html>")
    with pytest.raises(OSError, match="Expecting value"):
        AZURE.on_demand_prices("eastus", [H100])
