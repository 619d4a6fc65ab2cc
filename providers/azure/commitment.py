"""Reservations of prices and savings plans of Azure, and what of them is used.

Both belong to a tenant, and say which subscriptions they pay for.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.market.live import CommitmentFact
from providers.azure.client import open_session, subscription
from providers.azure.market import is_in, purchase_of, retail_rows, row_usd
from providers.live.commitment import term_of
from providers.live.rest import list_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLOUD: Final = "azure"
MANAGEMENT_URL: Final = "https://management.azure.com"
RESERVATIONS_VERSION: Final = "2022-11-01"
SAVINGS_VERSION: Final = "2022-11-01"
MACHINES: Final = "VirtualMachines"
BOUGHT: Final = "Succeeded"
HOURLY: Final = "Hourly"
USD: Final = "USD"
# Whom one pays for: all subscriptions of a bill, or those that it names.
ALL: Final = "Shared"
NAMED: Final = "Single"
PERCENT: Final = 100
# The words of the retail prices for the terms of savings plans.
SAVINGS_TERMS: Final = {
    "reserved_1y": "1 Year",
    "reserved_3y": "3 Years",
}


def commitment_regions(regions: Sequence[str]) -> list[str]:
    """Return the regions that have reservations of machines."""
    listed = _machine_reservations()
    return [
        region
        for region in regions
        if any(is_in(region, found["location"]) for found in listed)
    ]


def commitments(
    region: str, machine_types: Sequence[str]
) -> list[CommitmentFact]:
    """Return the reservations of machine types, and savings plans with what each type takes.

    Azure tells no price of a reservation here. Savings plans pay in the regions of the world, each
    machine type at the rate of its list.
    """
    reserved = [
        CommitmentFact(
            id=found["name"],
            name="reservation",
            unit="machines",
            amount=Decimal(found["properties"]["quantity"]),
            takes={found["sku"]["name"]: Decimal(1)},
            usd_hour=None,
            term=term_of(CLOUD, found["properties"]["term"]),
            ends=_end_text(found["properties"]),
        )
        for found in _reservations(region, machine_types)
    ]
    return [*reserved, *_savings_facts(region, machine_types)]


def commitment_use(
    region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return what is used of each in an hour, as its mean of the longest time that is told."""
    use: dict[str, Decimal] = {}
    for found in _reservations(region, machine_types):
        share = _used_share(found["properties"])
        if share is not None:
            use[found["name"]] = share * found["properties"]["quantity"]
    for found in _savings_plans():
        share = _used_share(found["properties"])
        if share is not None:
            use[found["name"]] = share * _hourly_amount(found)
    return use


def _reservations(
    region: str, machine_types: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the reservations of machine types in a region."""
    return [
        found
        for found in _machine_reservations()
        if found["sku"]["name"] in machine_types
        and is_in(region, found["location"])
    ]


def _machine_reservations() -> list[dict[str, Any]]:
    """Return the reservations of machines that pay for the subscription."""
    return [
        found
        for found in _listed(
            "Microsoft.Capacity/reservations", RESERVATIONS_VERSION
        )
        if found["properties"]["reservedResourceType"] == MACHINES
        and _is_ours(found["properties"])
    ]


def _savings_plans() -> list[dict[str, Any]]:
    """Return the savings plans that pay for the subscription by the hour."""
    return [
        found
        for found in _listed(
            "Microsoft.BillingBenefits/savingsPlans", SAVINGS_VERSION
        )
        if found["properties"]["commitment"]["grain"] == HOURLY
        and _is_ours(found["properties"])
    ]


def _listed(path: str, version: str) -> list[dict[str, Any]]:
    return list_pages(
        open_session(MANAGEMENT_URL),
        f"{MANAGEMENT_URL}/providers/{path}?api-version={version}",
        parse_float=Decimal,
    )


def _is_ours(properties: dict[str, Any]) -> bool:
    """Whether something is paid for now, and pays for the subscription.

    One for a group of resources, or of management, may pay for other machines alone.
    """
    if properties["provisioningState"] != BOUGHT:
        return False
    scope = properties["appliedScopeType"]
    if scope == ALL:
        return True
    return scope == NAMED and _is_of_subscription(properties)


def _is_of_subscription(properties: dict[str, Any]) -> bool:
    own = f"/subscriptions/{subscription()}".lower()
    named = properties.get("appliedScopeProperties") or {}
    scopes = [
        *(properties.get("appliedScopes") or ()),
        *(
            []
            if "resourceGroupId" in named
            else [named.get("subscriptionId") or ""]
        ),
    ]
    return own in {scope.lower() for scope in scopes}


def _used_share(properties: dict[str, Any]) -> Decimal | None:
    """Return the share of the hours that was used; None where nobody says.

    Of several times the longest counts: a week says more than a day.
    """
    aggregates = (properties.get("utilization") or {}).get("aggregates") or ()
    shares = [
        (found["grain"], found["value"])
        for found in aggregates
        if found["valueUnit"] == "percentage" and found["grainUnit"] == "days"
    ]
    if not shares:
        return None
    return Decimal(max(shares)[1]) / PERCENT


def _hourly_amount(found: dict[str, Any]) -> Decimal:
    return Decimal(found["properties"]["commitment"]["amount"])


def _savings_facts(
    region: str, machine_types: Sequence[str]
) -> Iterator[CommitmentFact]:
    """Yield the savings plans with the rate of each machine type."""
    plans = _savings_plans()
    rows = retail_rows(region, machine_types) if plans else []
    for found in plans:
        properties = found["properties"]
        commitment = properties["commitment"]
        term = term_of(CLOUD, properties["term"])
        # Rates are in USD: those of another currency are not known here.
        is_usd = commitment["currencyCode"] == USD
        takes = _rates(rows, term, machine_types) if is_usd else {}
        if takes:
            yield CommitmentFact(
                id=found["name"],
                name="savings plan",
                unit="usd_hour",
                amount=_hourly_amount(found),
                takes=takes,
                usd_hour=_hourly_amount(found),
                term=term,
                ends=_end_text(properties),
            )


def _rates(
    rows: list[dict[str, Any]], term: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return USD an hour of machine types on a savings plan of a term; of two the higher."""
    rates: dict[str, Decimal] = {}
    for row in rows:
        name = str(row.get("armSkuName"))
        if name not in machine_types or purchase_of(row) != "on_demand":
            continue
        for offered in row.get("savingsPlan") or ():
            usd = row_usd(offered)
            if offered.get("term") == SAVINGS_TERMS.get(term) and usd:
                rates[name] = max(usd, rates.get(name, usd))
    return dict(sorted(rates.items()))


def _end_text(properties: dict[str, Any]) -> str:
    """Return when something ends, in UTC."""
    end = str(properties["expiryDateTime"])
    return f"{end[:19]}Z"
