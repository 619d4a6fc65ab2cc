"""What Azure sells, what a subscription has reserved, and how likely Spot machines are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct
from requests import Session

from planner.facts import table
from planner.market.live import NO_ZONE, ReservationFact
from providers.azure.client import open_session, subscription_url
from providers.live.rest import list_pages, send, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.market.live import BlockFact, ReclaimFact

PUBLIC_QUESTIONS: Final[tuple[str, ...]] = ("on_demand_usd", "spot_usd")
RETAIL_URL: Final = "https://prices.azure.com/api/retail/prices"
MANAGEMENT_URL: Final = "https://management.azure.com"
# Compares the texts of a filter with their case.
RETAIL_VERSION: Final = "2023-01-01-preview"
# The first version that says when a block of capacity ends.
RESERVATIONS_VERSION: Final = "2025-04-01"
SCORES_VERSION: Final = "2025-06-05"
# So many machine types the service of scores takes in one question, as az-scout found.
SCORES_AT_ONCE: Final = 5


class PriceRule(Struct, frozen=True, kw_only=True):
    """A text in a field of a retail price that says what is sold.

    purchase  spot; or none, for what is no machine with Linux that this program asks for
    """

    field: str
    text: str
    purchase: str


def on_demand_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return USD an hour of machine types on demand, Linux, without any agreement."""
    return _prices(region, machine_types, "on_demand")


def spot_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, dict[str, Decimal]]:
    """Return USD an hour of machine types on Spot: one price for all zones of the region."""
    return {
        name: {NO_ZONE: price}
        for name, price in _prices(region, machine_types, "spot").items()
    }


def _prices(
    region: str, machine_types: Sequence[str], purchase: str
) -> dict[str, Decimal]:
    """Return USD an hour of machine types: of each the price that took effect last.

    Where two took effect together it is the higher, so that no bill is a surprise.
    """
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    newest: dict[str, tuple[str, Decimal]] = {}
    for row in retail_rows(region, machine_types):
        name, price = str(row.get("armSkuName")), row_usd(row)
        # Texts such as 2026-11-27T06:00:00Z are in the order of time.
        start = row.get("effectiveStartDate") or ""
        if (
            name in machine_types
            and price is not None
            and start <= now
            and purchase_of(row) == purchase
        ):
            newest[name] = max((start, price), newest.get(name, ("", price)))
    return {name: price for name, (_, price) in newest.items()}


def retail_rows(
    region: str, machine_types: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the prices of a region that are of an hour, in USD, and ask for no agreement.

    A filter knows no `or`, so it has what the names of the machine types begin with.
    """
    if not machine_types:
        return []
    condition = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' "
        "and priceType eq 'Consumption' "
        f"and contains(armSkuName, '{_shared_start(machine_types)}')"
    )
    session = Session()
    with_retries(session)
    listed = list_pages(
        session,
        f"{RETAIL_URL}?api-version={RETAIL_VERSION}&currencyCode='USD'"
        f"&meterRegion='primary'&$filter={quote(condition)}",
        rows="Items",
        link="NextPageLink",
        parse_float=Decimal,
    )
    hourly = {
        "type": "Consumption",
        "armRegionName": region,
        "unitOfMeasure": "1 Hour",
        "currencyCode": "USD",
    }
    return [row for row in listed if hourly.items() <= row.items()]


def _shared_start(names: Sequence[str]) -> str:
    """Return the letters with which all names begin."""
    columns = takewhile(
        lambda letters: len(set(letters)) == 1, zip(*names, strict=False)
    )
    return "".join(letters[0] for letters in columns)


def row_usd(row: dict[str, Any]) -> Decimal | None:
    """Return the price of a row in USD. Some rows have a zero for what is not sold."""
    try:
        return table.usd_price(str(row.get("retailPrice")))
    except (ValueError, InvalidOperation):
        return None


def purchase_of(row: dict[str, Any]) -> str:
    """Return how what a row prices is bought: the first rule that fits decides.

    A row that lacks a field of the rules does not say, and is bought in no way.
    """
    for rule in price_rules():
        text = row.get(rule.field)
        if not text:
            return "none"
        if rule.text.lower() in text.lower():
            return rule.purchase
    return "on_demand"


def reservations(region: str) -> list[ReservationFact]:
    """Return the capacity reservations of the subscription, each under the id of its group.

    Machines name a group, and get what is reserved in it for their type and zone.
    """
    session = open_session(MANAGEMENT_URL)
    groups = list_pages(
        session,
        subscription_url(
            MANAGEMENT_URL,
            "/providers/Microsoft.Compute/capacityReservationGroups",
            RESERVATIONS_VERSION,
        ),
    )
    return [
        fact
        for group in groups
        if is_in(region, group.get("location"))
        for reserved in _reserved(session, group["id"])
        for fact in _reservation_facts(group["id"], reserved)
    ]


def _reserved(session: Session, group: str) -> Iterator[dict[str, Any]]:
    """Yield the reservations of a group with the machines in them, which no list has."""
    url = f"{MANAGEMENT_URL}{group}/capacityReservations"
    version = f"api-version={RESERVATIONS_VERSION}"
    for listed in list_pages(session, f"{url}?{version}"):
        yield send(
            session,
            "GET",
            f"{url}/{listed['name']}?$expand=instanceView&{version}",
        )


def _reservation_facts(
    group: str, reserved: dict[str, Any]
) -> list[ReservationFact]:
    """Return a reservation in each of its zones; nothing where its use is not known."""
    sku = reserved.get("sku") or {}
    properties = reserved.get("properties") or {}
    usage = (properties.get("instanceView") or {}).get("utilizationInfo")
    if usage is None or "name" not in sku:
        return []
    # What is there and billed may be less than what was asked for.
    machines = usage.get("currentCapacity", sku.get("capacity", 0))
    if machines <= 0:
        return []
    # More machines than are reserved may name a group.
    allocated = len(usage.get("virtualMachinesAllocated") or ())
    end = (properties.get("scheduleProfile") or {}).get("end")
    return [
        ReservationFact(
            id=group,
            machine_type=sku["name"],
            zone=zone,
            machines=machines,
            free=max(0, machines - allocated),
            ends=f"{end}T00:00:00Z" if end else "",
            is_named=True,
        )
        for zone in reserved.get("zones") or (NO_ZONE,)
    ]


def spot_scores(
    region: str, machine_types: Sequence[str], machines: int
) -> dict[str, dict[str, float]]:
    """Return how likely so many machines on Spot are to be had, from 0 to 1, by type and zone.

    What has no score in any zone is asked for the whole region. Asks for the role Compute
    Recommendations Role; raises PermissionError without it.
    """
    scores = _scores(region, machine_types, machines, in_zones=True)
    others = [name for name in machine_types if name not in scores]
    return {**scores, **_scores(region, others, machines, in_zones=False)}


def _scores(
    region: str, machine_types: Sequence[str], machines: int, *, in_zones: bool
) -> dict[str, dict[str, float]]:
    """Ask for scores in zones, or for those of a region."""
    session = open_session(MANAGEMENT_URL)
    url = subscription_url(
        MANAGEMENT_URL,
        f"/providers/Microsoft.Compute/locations/{region}/placementScores/spot/generate",
        SCORES_VERSION,
    )
    scores: dict[str, dict[str, float]] = {}
    for first in range(0, len(machine_types), SCORES_AT_ONCE):
        names = machine_types[first : first + SCORES_AT_ONCE]
        answer = send(
            session,
            "POST",
            url,
            {
                "desiredLocations": [region],
                "desiredSizes": [{"sku": name} for name in names],
                "desiredCount": machines,
                "availabilityZones": in_zones,
            },
        )
        for placed in answer.get("placementScores") or ():
            name, score = placed.get("sku"), placed.get("score")
            if (
                name in names
                and score in spot_shares()
                and is_in(region, placed.get("region"))
            ):
                zone = placed.get("availabilityZone") or NO_ZONE
                scores.setdefault(name, {})[zone] = spot_shares()[score]
    return scores


def block_offers(
    _region: str, _machine_type: str, _machines: int, _hours: int
) -> list[BlockFact]:
    """Return nothing: Azure sells none."""
    return []


def own_reclaims(
    _region: str, _machine_types: Sequence[str]
) -> dict[str, ReclaimFact]:
    """Return nothing: Azure counts for nobody how many of its machines it takes back."""
    return {}


def is_in(region: str, location: str | None) -> bool:
    """Whether a location is a region: services write it as westus, and as West US."""
    return (location or "").replace(" ", "").lower() == region


@cache
def price_rules() -> tuple[PriceRule, ...]:
    """Return what the texts of retail prices say, in their order."""
    columns: table.Columns = {
        "field": table.nonempty_text,
        "text": table.nonempty_text,
        "purchase": table.one_of("spot", "none"),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        PriceRule(
            field=row["field"], text=row["text"], purchase=row["purchase"]
        )
        for row in table.load_rows(
            "providers.azure", "price_rules.csv", columns
        )
    )


@cache
def spot_shares() -> dict[str, float]:
    """Return the chance, from 0 to 1, that the service means with each of its words."""
    columns: table.Columns = {
        "score": table.nonempty_text,
        "share": table.real_between(0, 1),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["score"]: row["share"]
        for row in table.load_rows(
            "providers.azure", "spot_scores.csv", columns
        )
    }
