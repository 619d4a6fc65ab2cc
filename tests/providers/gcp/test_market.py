"""What Google Cloud answers about what it sells, at services like its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from planner.market.live import NO_ZONE, ReservationFact
from planner.spec.reservation import reservations_of
from providers.gcp import market
from providers.gcp.sku import Sku, SkuRule, _SkuCategory, sku_rules
from tests.loopback import Answer, Cloud, Request
from tests.providers.shapes import Document, answer_of, call_of
from tests.providers.shapes.service import refuse, said, serve

pytestmark = pytest.mark.enable_socket
LISTED = "gcp/machineTypes.aggregatedList"
CATALOG = "gcp/skus.list"
RESERVED = "gcp/reservations.aggregatedList"
ZONE = "zones/us-central1-a"
MACHINES = [
    machine
    for case in ("ordinary", "other_types")
    for machine in answer_of(LISTED, case)["items"][ZONE]["machineTypes"]
]
SOLD = [
    sku
    for case in ("ordinary", "other_skus")
    for sku in answer_of(CATALOG, case)["skus"]
]
TRAPS = answer_of(CATALOG, "traps")["skus"]
TYPES = [machine["name"] for machine in MACHINES]
REGION = "us-central1"
ON_DEMAND = {
    # 12 x 0.031611 + 85 x 0.004237 + 2.933908
    "a2-highgpu-1g": "3.673385",
    # 12 x 0.031611 + 170 x 0.004237 + 3.9 + 375 x 0.08 / 730
    "a2-ultragpu-1g": "5.040717890",
    # 208 x 0.025 + 1872 x 0.002 + 8 x 9.796550569 + 16 x 375 x 0.08 / 730
    "a3-highgpu-8g": "87.973938799",
    # 208 x 0.026924 + 1872 x 0.002344 + 8 x 10.344275712 + 16 x 375 x 0.08 / 730
    "a3-megagpu-8g": "93.399899943",
    # 4 x 0.025 + 16 x 0.003 + 0.56
    "g2-standard-4": "0.708",
    # one eighth of a card, and four, with all that belongs to them
    "g4-standard-6": "0.64688",
    "g4-standard-24": "2.58752",
    # 48 x 0.04891 + 180 x 0.00587 + 1.09565
    "g4-standard-48": "4.49993",
}
SPOT = {
    # 12 x 0.02 + 85 x 0.002 + 1.7603
    "a2-highgpu-1g": "2.1703",
    # 26 x 0.01 + 234 x 0.001 + 5.57 + 2 x 375 x 0.0428 / 730
    "a3-highgpu-1g": "6.107972603",
    # 208 x 0.01 + 1872 x 0.001 + 8 x 5.57 + 16 x 375 x 0.0428 / 730
    "a3-highgpu-8g": "48.863780822",
    # 224 x 0.01 + 2952 x 0.001 + 8 x 4 + 32 x 375 x 0.0428 / 730
    "a3-ultragpu-8g": "37.895561644",
    # 8 x 4.9542, with all that belongs to them
    "a4-highgpu-8g": "39.6336",
    # 4 x 0.01 + 16 x 0.001 + 0.3192
    "g2-standard-4": "0.3752",
}


@pytest.fixture(autouse=True)
def new_catalog() -> None:
    """A process reads the catalog once; each test has another one."""
    market._read_rates.cache_clear()


def sell(
    cloud: Cloud,
    skus: list[Document],
    machines: list[Document] = MACHINES,
    zone: str = ZONE,
) -> None:
    """Let a cloud have SKUs, and machine types in one zone."""
    listed = answer_of(LISTED, "empty")
    listed["items"][zone] = {"machineTypes": machines}
    serve(cloud, {CATALOG: sold(skus), LISTED: listed})


def sold(skus: list[Document]) -> Document:
    """A page of the catalog."""
    return {**answer_of(CATALOG), "skus": skus}


def numbers(texts: dict[str, str]) -> dict[str, Decimal]:
    return {name: Decimal(text) for name, text in texts.items()}


def sold_as(description: str) -> dict:
    """A copy of the SKU whose description begins so."""
    [sku] = [sku for sku in SOLD if sku["description"].startswith(description)]
    copied: dict = deepcopy(sku)
    return copied


def with_price(sku: dict, units: str, nanos: int) -> dict:
    [rate] = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    rate["unitPrice"] |= {"units": units, "nanos": nanos}
    return sku


def test_a_machine_costs_the_sum_of_its_parts(cloud: Cloud) -> None:
    sell(cloud, SOLD)
    assert market.on_demand_prices(REGION, TYPES) == numbers(ON_DEMAND)
    assert market.spot_prices(REGION, TYPES) == {
        name: {NO_ZONE: price} for name, price in numbers(SPOT).items()
    }
    paths = [urlsplit(request.path) for request in cloud.asked]
    [catalog] = [
        path
        for path in paths
        if path.path == "/billing/v1/services/6F81-5844-456A/skus"
    ]
    assert parse_qs(catalog.query)["currencyCode"] == ["USD"]


def test_a_card_may_have_another_name_in_another_region(cloud: Cloud) -> None:
    """Mega in Tokyo is Plus in America; local SSD on spot is sold as on demand there."""
    sell(cloud, SOLD, zone="zones/asia-northeast1-b")
    # 208 x 0.02 + 1872 x 0.002102 + 8 x 9.27246 + 16 x 375 x 0.05 / 730
    assert market.spot_prices("asia-northeast1", TYPES) == {
        "a3-megagpu-8g": {NO_ZONE: Decimal("82.685582904")}
    }
    assert market.on_demand_prices("asia-northeast1", TYPES) == {}


def test_sums_of_seen_skus_are_the_prices_of_the_catalog(
    cloud: Cloud, catalog
) -> None:
    """Where all SKUs of a machine have prices that somebody has seen."""
    sell(cloud, SOLD)
    live = market.on_demand_prices(REGION, TYPES)
    live["a4-highgpu-8g"] = market.spot_prices(REGION, TYPES)["a4-highgpu-8g"][
        NO_ZONE
    ]
    compared = {
        offer.instance.instance_type: float(offer.usd_hour)
        for offer in catalog.offers
        if offer.instance.instance_type
        in ("a2-highgpu-1g", "g4-standard-48", "a4-highgpu-8g")
        and offer.region == REGION
        and offer.purchase
        == ("spot" if offer.instance.family == "a4-highgpu" else "on_demand")
    }
    assert len(compared) == 3
    for name, usd_hour in compared.items():
        assert float(live[name]) == pytest.approx(usd_hour, abs=1e-5)


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_sold_with_an_agreement_has_no_part_in_it(
    cloud: Cloud, is_first: bool
) -> None:
    """Calendar and flex start, sole tenancy, commitments, reserved, custom: in any order."""
    sell(cloud, [*TRAPS, *SOLD] if is_first else [*SOLD, *TRAPS])
    assert market.on_demand_prices(REGION, TYPES) == numbers(ON_DEMAND)
    assert market.spot_prices(REGION, TYPES).keys() == SPOT.keys()


@pytest.mark.parametrize("rule", sku_rules())
def test_a_text_that_excludes_wins(rule: SkuRule) -> None:
    for start in rule.starts:
        for usage_type in rule.usage_types:
            category = _SkuCategory(usage_type=usage_type)
            assert rule.is_about(Sku(description=start, category=category))
            for text in rule.excludes:
                sku = Sku(description=f"{start} {text}", category=category)
                assert not rule.is_about(sku)


def test_each_part_of_a_machine_has_one_rule(catalog) -> None:
    """And each pattern is about a machine of the embedded catalog, bought in that way."""
    bought = {
        (offer.instance.instance_type, offer.purchase)
        for offer in catalog.offers
        if offer.instance.provider == "gcp"
    }
    used = set()
    for machine_type, purchase in bought:
        rules = [
            rule
            for rule in sku_rules()
            if rule.purchase == purchase and rule.pays_for(machine_type)
        ]
        parts = [rule.part for rule in rules]
        assert len(parts) == len(set(parts)), machine_type
        assert len(rules) == 1 or not any(rule.is_all_in for rule in rules)
        used.update(rules)
    assert used == set(sku_rules())


def test_machines_are_only_where_zones_have_them(cloud: Cloud) -> None:
    """SKUs name us-west1 too."""
    sell(cloud, SOLD)
    assert market.on_demand_prices("us-west1", TYPES) == {}


@pytest.mark.parametrize(
    "part",
    [
        "A3 Instance Core",
        "A3 Instance Ram",
        "Nvidia H100 80GB GPU running",
        "SSD backed Local Storage",
    ],
)
@pytest.mark.parametrize("is_free", [True, False])
def test_a_machine_without_a_price_for_a_part_is_left_out(
    cloud: Cloud, part: str, is_free: bool
) -> None:
    """So is one with a part that costs nothing."""
    skus = [
        sku
        for sku in SOLD
        if not sku["description"].startswith(part)
        or "Spot" in sku["description"]
    ]
    if is_free:
        ordinary = next(
            sku for sku in SOLD if sku["description"].startswith(part)
        )
        skus.append(with_price(deepcopy(ordinary), "0", 0))
    sell(cloud, skus)
    prices = market.on_demand_prices(REGION, TYPES)
    assert "a3-highgpu-8g" not in prices
    assert prices["g2-standard-4"] == Decimal(ON_DEMAND["g2-standard-4"])


@pytest.mark.parametrize(
    "changes",
    [{"bundledLocalSsds": {"partitionCount": 4}}, {"accelerators": []}],
)
def test_a_machine_with_other_parts_than_its_rules_is_left_out(
    cloud: Cloud, changes: dict
) -> None:
    machine = MACHINES[TYPES.index("g2-standard-4")] | changes
    sell(cloud, SOLD, [machine])
    assert market.on_demand_prices(REGION, ["g2-standard-4"]) == {}


@pytest.mark.parametrize("is_same", [True, False])
def test_of_two_prices_nobody_knows_which(cloud: Cloud, is_same: bool) -> None:
    again = sold_as("G2 Instance Core")
    if not is_same:
        again = with_price(again, "0", 26_000_000)
    sell(cloud, [*SOLD, again])
    prices = market.on_demand_prices(REGION, TYPES)
    assert ("g2-standard-4" in prices) is is_same


def test_units_of_the_catalog(cloud: Cloud) -> None:
    """A price of a GB of 10^9 bytes is less than that of a GiB; an unknown unit is no price."""
    ram = sold_as("G2 Instance Ram")
    expression = ram["pricingInfo"][0]["pricingExpression"]
    skus = [sku for sku in SOLD if sku["description"] != ram["description"]]
    sell(cloud, [*skus, ram])
    expression["usageUnit"] = "GBy.h"
    prices = market.on_demand_prices(REGION, ["g2-standard-4"])
    # 4 x 0.025 + 16 x 2^30 / 10^9 x 0.003 + 0.56
    assert prices["g2-standard-4"] == Decimal("0.711539608")
    market._read_rates.cache_clear()
    expression["usageUnit"] = "fortnight"
    assert "g2-standard-4" not in market.on_demand_prices(REGION, TYPES)


def test_the_catalog_is_read_over_pages(cloud: Cloud) -> None:
    """A token that comes again ends it; what tokens are made of is kept."""
    half = len(SOLD) // 2
    sell(cloud, SOLD)
    whole = cloud.answer

    def answer(request: Request) -> Answer:
        if call_of(request) != CATALOG:
            return whole(request)
        token = parse_qs(urlsplit(request.path).query).get("pageToken")
        assert token in (None, ["a+b/c="])
        page = sold(SOLD[:half] if token is None else SOLD[half:])
        return said(CATALOG, {**page, "nextPageToken": "a+b/c="})

    cloud.answer = answer
    assert market.on_demand_prices(REGION, TYPES) == numbers(ON_DEMAND)
    catalog = [r for r in cloud.asked if r.path.startswith("/billing/")]
    assert len(catalog) == 2


FACT = ReservationFact(
    id="projects/proj/reservations/h100-block",
    machine_type="a3-megagpu-8g",
    zone="us-central1-a",
    machines=4,
    free=3,
    ends="2027-01-01T00:00:00Z",
    is_named=True,
)


def reserve(cloud: Cloud, case: str, **changes: Any) -> list[ReservationFact]:
    """Let a project have a reservation, in two regions, and ask about one of them."""
    document = answer_of(RESERVED, case)
    [row] = document["items"][ZONE]["reservations"]
    listed = {"reservations": [row | changes]}
    document["items"] |= {ZONE: listed, "zones/us-central2-a": listed}
    serve(cloud, {RESERVED: document})
    return market.reservations(REGION)


def test_reservations_of_a_region(cloud: Cloud) -> None:
    assert reserve(cloud, "ordinary") == [FACT]
    assert "returnPartialSuccess=false" in cloud.asked[0].path


def test_a_spec_names_a_reservation_by_its_id() -> None:
    name = FACT.id.replace("/proj/", "/project-of-six-letters-or-more/")
    [named] = reservations_of([f"{name}@{FACT.zone}:4x{FACT.machine_type}"])
    assert (named.cloud, named.id) == ("gcp", name)
    assert named.is_in(REGION)


def test_a_reservation_that_anybody_takes_and_that_does_not_end(
    cloud: Cloud,
) -> None:
    """Machines come as a URL, new states and fields are passed over, and zeros are not sent."""
    [fact] = reserve(cloud, "open", status="A_STATE_OF_2028", novelty={"a": 1})
    assert (fact.machine_type, fact.machines, fact.free) == (
        "g2-standard-4",
        2,
        2,
    )
    assert (fact.ends, fact.is_named) == ("", False)


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("ordinary", {"status": "DELETING"}),
        ("ordinary", {"status": "CREATING"}),
        ("tpus", {}),
    ],
)
def test_a_reservation_without_machines_is_left_out(
    cloud: Cloud, case: str, changes: dict
) -> None:
    """One of TPUs has an aggregate in place of machines."""
    assert reserve(cloud, case, **changes) == []


def test_scores_of_spot_are_asked_of_each_type(cloud: Cloud) -> None:
    chances = {"a3-highgpu-8g": 0.4, "g2-standard-4": 0.0, "a2-highgpu-1g": 0.9}
    # Google documents that each shard is in one zone, and names it.
    zones = {
        "a3-highgpu-8g": ["us-central1-a", "us-central1-a"],
        "g2-standard-4": [],
        "a2-highgpu-1g": ["us-central1-a", "zones/us-central1-b"],
    }

    def answer(request: Request) -> Answer:
        asked = request.document()
        assert (asked["size"], request.method) == (16, "POST")
        model = asked["instanceProperties"]["scheduling"]["provisioningModel"]
        assert model == "SPOT"
        [selection] = asked["instanceFlexibilityPolicy"][
            "instanceSelections"
        ].values()
        [name] = selection["machineTypes"]
        call = call_of(request)
        if name not in chances:
            return said(call, "empty")
        document = answer_of(call)
        [option] = document["recommendations"]
        [shard] = option["shards"]
        option["scores"]["obtainability"] = chances[name]
        option["shards"] = [{**shard, "zone": zone} for zone in zones[name]]
        return said(call, document)

    cloud.answer = answer
    types = [*chances, "a4-highgpu-8g"]
    assert market.spot_scores(REGION, types, 16) == {
        "a3-highgpu-8g": {"us-central1-a": 0.4},
        "g2-standard-4": {NO_ZONE: 0.0},
        "a2-highgpu-1g": {NO_ZONE: 0.9},
    }
    assert {request.path for request in cloud.asked} == {
        "/compute/v1/projects/proj/regions/us-central1/advice/capacity"
    }


QUESTIONS: dict[str, Callable[[], object]] = {
    "on_demand_prices": lambda: market.on_demand_prices(REGION, TYPES),
    "spot_prices": lambda: market.spot_prices(REGION, TYPES),
    "reservations": lambda: market.reservations(REGION),
    "spot_scores": lambda: market.spot_scores(REGION, TYPES, 1),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("permission", PermissionError),
        ("unknown", FileNotFoundError),
        ("throttled", OSError),
        ("broken", OSError),
    ],
)
def test_a_refusal_is_never_an_empty_answer(
    cloud: Cloud, question: str, case: str, error: type[Exception]
) -> None:
    refuse(cloud, case)
    with pytest.raises(error) as raised:
        QUESTIONS[question]()
    assert raised.type is error


def test_a_refused_catalog_is_asked_again(cloud: Cloud) -> None:
    sell(cloud, SOLD)
    whole = cloud.answer
    cloud.answer = lambda request: (
        (403, {}) if call_of(request) == CATALOG else whole(request)
    )
    with pytest.raises(PermissionError):
        market.on_demand_prices(REGION, TYPES)
    cloud.answer = whole
    assert market.on_demand_prices(REGION, TYPES) == numbers(ON_DEMAND)


@pytest.mark.parametrize("call", [LISTED, CATALOG])
def test_where_nothing_is_sold_there_are_no_prices(
    cloud: Cloud, call: str
) -> None:
    serve(cloud, {call: "empty"})
    assert market.spot_prices(REGION, TYPES) == {}


def test_an_answer_of_another_form_is_not_understood(cloud: Cloud) -> None:
    with pytest.raises(OSError, match="not understood"):
        reserve(cloud, "ordinary", specificReservation="four")


def test_the_catalog_is_read_once_by_all_who_ask(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices on demand and on spot are asked at the same time."""
    read: list[int] = []
    both = threading.Barrier(2)

    def rates(_: object) -> list[object]:
        read.append(1)
        time.sleep(0.05)
        return []

    monkeypatch.setattr(market, "pages", lambda *_: rates(None))

    def ask() -> None:
        both.wait()
        market._part_rates()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 1
