"""What a subscription of Azure allows: who is signed in, providers, quotas, zones, rights."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from planner.market.live import NO_ZONE, QuotaFact
from providers.azure.client import (
    open_session,
    subscription_url,
)
from providers.live.question import rules_by_quota
from providers.live.rest import list_pages, send

if TYPE_CHECKING:
    from collections.abc import Iterable

    from providers.live.question import QuotaRule

MANAGEMENT_URL: Final = "https://management.azure.com"
SUBSCRIPTION_VERSION: Final = "2022-12-01"
PROVIDERS_VERSION: Final = "2021-04-01"
USAGE_VERSION: Final = "2024-07-01"
# The only version that lists machine types with their restrictions.
SKUS_VERSION: Final = "2021-07-01"
QUOTA_VERSION: Final = "2023-02-01"
RIGHTS_VERSION: Final = "2022-04-01"


def signed_in(_region: str) -> str:
    """Return the subscription. Raises PermissionError when it is not active."""
    found = send(
        open_session(MANAGEMENT_URL),
        "GET",
        subscription_url(MANAGEMENT_URL, "", SUBSCRIPTION_VERSION),
    )
    if found["state"] != "Enabled":
        raise PermissionError(
            f"the subscription {found['displayName']} is {found['state']}"
        )
    return str(found["displayName"])


def closed_services(_region: str, services: Iterable[str]) -> dict[str, str]:
    """Return the resource providers that are not registered in the subscription."""
    states = {
        found["namespace"].lower(): found["registrationState"]
        for found in _pages("/providers", PROVIDERS_VERSION)
    }
    return {
        name: f"az provider register --namespace {name} --wait"
        for name in services
        if states.get(name.lower()) not in ("Registered", "Registering")
    }


def quotas(
    region: str, machine_types: Iterable[str], purchase: str
) -> list[QuotaFact]:
    """Return the quotas of families, of all cores of the region, and of Spot."""
    usages = {
        _folded(found["name"]["value"]): found
        for found in _pages(
            f"/providers/Microsoft.Compute/locations/{region}/usages",
            USAGE_VERSION,
        )
    }
    facts = []
    for rule, types in rules_by_quota("azure", machine_types, purchase).items():
        for name, counted in _quota_names(region, rule, types).items():
            found = usages.get(_folded(name))
            if found is None:
                continue
            facts.append(
                QuotaFact(
                    machine_types=counted,
                    purchase=rule.purchase,
                    unit=rule.unit,
                    id=found["name"]["value"],
                    name=f"{found['name']['localizedValue']} in {region}",
                    limit=float(found["limit"]),
                    used=float(found["currentValue"]),
                )
            )
    return facts


def request_quota(region: str, quota_id: str, wanted: float) -> str:
    """Ask for a higher limit of a quota, and return what has become of it so far."""
    answer = send(
        open_session(MANAGEMENT_URL),
        "PUT",
        subscription_url(
            MANAGEMENT_URL,
            f"/providers/Microsoft.Compute/locations/{region}/providers/Microsoft.Quota"
            f"/quotas/{quote(quota_id)}",
            QUOTA_VERSION,
        ),
        {
            "properties": {
                "limit": {
                    "limitObjectType": "LimitValue",
                    "value": int(wanted),
                },
                "name": {"value": quota_id},
            }
        },
    )
    properties = answer.get("properties", {})
    return str(properties.get("provisioningState", "it is being looked at"))


def _quota_names(
    region: str, rule: QuotaRule, machine_types: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return the quotas of a rule, each with the machine types that it counts.

    A type that the region does not list is in no family, and has no zone either.
    """
    if rule.kind != "family":
        return {rule.quota: machine_types}
    listed = _listed_types(region)
    families: dict[str, tuple[str, ...]] = {}
    for name in machine_types:
        if name in listed:
            family = listed[name]["family"]
            families[family] = (*families.get(family, ()), name)
    return families


def offered_zones(
    region: str, machine_types: Iterable[str]
) -> dict[str, set[str]]:
    """Return the zones in which the subscription may have machine types, and the whole region.

    A type that it may not have in the whole region has none.
    """
    listed = _listed_types(region)
    return {
        name: _zones_of(listed[name]) if name in listed else set()
        for name in machine_types
    }


def _zones_of(found: dict[str, Any]) -> set[str]:
    zones = {
        zone
        for location in found["locationInfo"]
        for zone in (NO_ZONE, *location.get("zones", ()))
    }
    for restriction in found["restrictions"]:
        if restriction["type"] == "Location":
            return set()
        if restriction["type"] == "Zone":
            zones -= set(restriction["restrictionInfo"]["zones"])
    return zones


def named_endpoints(_region: str, _network: str) -> dict[str, dict[str, str]]:
    """Return nothing: machines reach services here without endpoints that have their names."""
    return {}


def missing_rights(_region: str, rights: list[str]) -> dict[str, bool]:
    """Return the operations that no role has on the subscription: groups are made in it."""
    roles = _pages(
        "/providers/Microsoft.Authorization/permissions", RIGHTS_VERSION
    )
    return {
        right: True
        for right in rights
        if not any(
            _covers(role["actions"], right)
            and not _covers(role.get("notActions", ()), right)
            for role in roles
        )
    }


def _covers(patterns: Iterable[str], right: str) -> bool:
    return any(
        fnmatchcase(right.lower(), pattern.lower()) for pattern in patterns
    )


def _listed_types(region: str) -> dict[str, dict[str, Any]]:
    """Return the machine types of a region as the subscription sees them, by name."""
    condition = quote(f"location eq '{region}'")
    return {
        found["name"]: found
        for found in _pages(
            f"/providers/Microsoft.Compute/skus?$filter={condition}",
            SKUS_VERSION,
        )
        if found["resourceType"] == "virtualMachines"
    }


def _folded(name: str) -> str:
    """Return the name of a quota as the services compare it: they differ in case and blanks."""
    return name.replace(" ", "").lower()


def _pages(path: str, version: str) -> list[dict[str, Any]]:
    return list_pages(
        open_session(MANAGEMENT_URL),
        subscription_url(MANAGEMENT_URL, path, version),
    )
