"""What a subscription of Azure allows: who is signed in, providers, quotas, zones, rights."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.azure.client import open_session, subscription
from providers.live.question import NO_ZONE, QuotaRoom, rules_for
from providers.live.rest import send

if TYPE_CHECKING:
    from collections.abc import Iterable

    from providers.live.question import MachineAsk

MANAGEMENT_URL: Final = "https://management.azure.com"
SUBSCRIPTION_VERSION: Final = "2022-12-01"
PROVIDERS_VERSION: Final = "2021-04-01"
USAGE_VERSION: Final = "2024-07-01"
# The only version that lists machine types with their restrictions.
SKUS_VERSION: Final = "2021-07-01"
RIGHTS_VERSION: Final = "2022-04-01"


def signed_in(_region: str) -> str:
    """Return the subscription. Raises PermissionError when it is not active."""
    found = _get("", SUBSCRIPTION_VERSION)
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


def quota_rooms(ask: MachineAsk) -> list[QuotaRoom]:
    """Return the quotas of the family, of all cores of the region, and of Spot."""
    usages = {
        _folded(found["name"]["value"]): found
        for found in _pages(
            f"/providers/Microsoft.Compute/locations/{ask.region}/usages",
            USAGE_VERSION,
        )
    }
    family = _machine_type(ask.region, ask.instance_type)["family"]
    rooms = []
    for rule in rules_for("azure", ask):
        name = family if rule.kind == "family" else rule.quota
        found = usages.get(_folded(name))
        if found is None:
            raise LookupError(f"{ask.region} has no quota {name}")
        rooms.append(
            QuotaRoom(
                name=f"{found['name']['localizedValue']} in {ask.region}",
                unit="vCPUs",
                limit=float(found["limit"]),
                used=float(found["currentValue"]),
                asked=ask.amount(rule.unit),
                remedy="az quota update --resource-name "
                f"'{found['name']['value']}' --scope /subscriptions/{subscription()}"
                f"/providers/Microsoft.Compute/locations/{ask.region} --limit-object "
                f"value={found['currentValue'] + ask.amount(rule.unit)} "
                "--resource-type dedicated",
            )
        )
    return rooms


def offered_zones(region: str, instance_type: str) -> set[str]:
    """Return the zones in which the subscription may have a machine type, and the whole region.

    Where it may not have it in the whole region, there are none.
    """
    found = _machine_type(region, instance_type)
    zones = {
        zone
        for location in found.get("locationInfo", ())
        for zone in (NO_ZONE, *location.get("zones", ()))
    }
    for restriction in found.get("restrictions", ()):
        if restriction["type"] == "Location":
            return set()
        info = restriction.get("restrictionInfo", {})
        zones -= set(info.get("zones", ()))
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
            _covers(role.get("actions", ()), right)
            and not _covers(role.get("notActions", ()), right)
            for role in roles
        )
    }


def _covers(patterns: Iterable[str], right: str) -> bool:
    return any(
        fnmatchcase(right.lower(), pattern.lower()) for pattern in patterns
    )


def _machine_type(region: str, instance_type: str) -> dict[str, Any]:
    """Return a machine type as the subscription sees it. Raises LookupError for an unknown one."""
    condition = quote(f"location eq '{region}'")
    for found in _pages(
        f"/providers/Microsoft.Compute/skus?$filter={condition}", SKUS_VERSION
    ):
        if (found["resourceType"], found["name"]) == (
            "virtualMachines",
            instance_type,
        ):
            return found
    raise LookupError(f"{region} does not list {instance_type}")


def _folded(name: str) -> str:
    """Return the name of a quota as the services compare it: they differ in case and blanks."""
    return name.replace(" ", "").lower()


def _get(path: str, version: str) -> dict[str, Any]:
    mark = "&" if "?" in path else "?"
    return send(
        open_session(MANAGEMENT_URL),
        "GET",
        f"{MANAGEMENT_URL}/subscriptions/{subscription()}{path}"
        f"{mark}api-version={version}",
    )


def _pages(path: str, version: str) -> list[dict[str, Any]]:
    """Return a list, page by page; a link that comes again ends it."""
    page = _get(path, version)
    found = list(page.get("value", ()))
    session, seen = open_session(MANAGEMENT_URL), set()
    while (link := page.get("nextLink", "")) and link not in seen:
        seen.add(link)
        page = send(session, "GET", link)
        found += page.get("value", ())
    return found
