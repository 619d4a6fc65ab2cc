"""What a project of Google Cloud allows: who is signed in, services, quotas, zones, rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from planner.market.live import QuotaFact
from providers.gcp.client import open_account, pages, zonal_things
from providers.live.question import rules_by_quota
from providers.live.rest import send

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from requests import Session

    from providers.gcp.client import Account

COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
QUOTA_URL: Final = "https://cloudquotas.googleapis.com/v1"
SERVICE_URL: Final = "https://serviceusage.googleapis.com/v1"
PROJECT_URL: Final = "https://cloudresourcemanager.googleapis.com/v1"
# Calls take at most so many names.
SERVICES_AT_ONCE: Final = 20
RIGHTS_AT_ONCE: Final = 100
COMPUTE_SERVICE: Final = "compute.googleapis.com"
# A quota without a limit is minus one.
NO_LIMIT: Final = -1
# Of spot machines; all others count those on demand.
SPOT_PREFIX: Final = "PREEMPTIBLE"


def signed_in(region: str) -> str:
    """Return the project, as far as who is signed in may see it."""
    account = open_account()
    if _found_region(account, region)["name"] != region:
        raise OSError(f"the answer is not about {region}")
    return account.project


def _found_region(account: Account, region: str) -> dict[str, Any]:
    return send(
        account.session,
        "GET",
        f"{COMPUTE_URL}/projects/{account.project}/regions/{region}",
    )


def closed_services(_region: str, services: Iterable[str]) -> dict[str, str]:
    """Return the services that are not enabled in the project."""
    account = open_account()
    names = sorted(services)
    closed = {}
    for start in range(0, len(names), SERVICES_AT_ONCE):
        query = urlencode(
            [
                ("names", f"projects/{account.project}/services/{name}")
                for name in names[start : start + SERVICES_AT_ONCE]
            ]
        )
        answer = send(
            account.session,
            "GET",
            f"{SERVICE_URL}/projects/{account.project}/services:batchGet?{query}",
        )
        for found in answer["services"]:
            if found["state"] != "ENABLED":
                name = found["name"].rpartition("/")[2]
                closed[name] = (
                    f"gcloud services enable {name} --project {account.project}"
                )
    return closed


def quotas(
    region: str, machine_types: Iterable[str], purchase: str
) -> list[QuotaFact]:
    """Return the quotas of accelerators in a region: those of Compute Engine, and of families."""
    account = open_account()
    counted = rules_by_quota("gcp", machine_types, purchase)
    kinds = {rule.kind for rule in counted}
    metrics = _metrics(account, region) if "metric" in kinds else {}
    families = _families(account, region) if "family" in kinds else {}
    facts = []
    for rule, types in counted.items():
        found = (metrics if rule.kind == "metric" else families).get(rule.quota)
        if found is None:
            continue
        limit, used = found
        facts.append(
            QuotaFact(
                machine_types=types,
                purchase=rule.purchase,
                unit=rule.unit,
                id=rule.quota,
                name=f"{rule.quota} in {region}",
                limit=None if limit == NO_LIMIT else limit,
                used=used,
            )
        )
    return facts


def request_quota(region: str, quota_id: str, wanted: float) -> str:
    """Ask for a higher limit of a quota, and return what is preferred now.

    A preference has the name of its quota and region, so one that is asked for again is the same.
    """
    account = open_account()
    info, dimensions = _asked_info(account, region, quota_id)
    name = f"tonnage-{quota_id}-{region}".lower().replace("_", "-")
    url = (
        f"{QUOTA_URL}/projects/{account.project}/locations/global/quotaPreferences/"
        f"{name}?allowMissing=true"
    )
    answer = send(
        account.session,
        "PATCH",
        url,
        {
            "service": COMPUTE_SERVICE,
            "quotaId": info["quotaId"],
            "dimensions": dimensions,
            "quotaConfig": {"preferredValue": f"{wanted:.0f}"},
        },
    )
    is_pending = answer.get("reconciling", False)
    return "it is being looked at" if is_pending else "it is decided"


def _asked_info(
    account: Account, region: str, quota_id: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a quota as the service of quotas has it, and what narrows it down to a region."""
    for info in _quota_infos(account.session, account.project):
        if info.get("metric") == f"{COMPUTE_SERVICE}/{quota_id.lower()}":
            return info, {"region": region}
        if info["quotaId"].startswith(SPOT_PREFIX):
            continue
        for found in info.get("dimensionsInfos", ()):
            if found.get("dimensions", {}).get("gpu_family") == quota_id:
                return info, {"region": region, "gpu_family": quota_id}
    raise LookupError(f"{region} has no quota {quota_id}")


def _metrics(
    account: Account, region: str
) -> dict[str, tuple[float, float | None]]:
    """Return limit and use of the quotas that Compute Engine itself counts."""
    return {
        found["metric"]: (float(found["limit"]), float(found["usage"]))
        for found in _found_region(account, region)["quotas"]
    }


def _families(
    account: Account, region: str
) -> dict[str, tuple[float, float | None]]:
    """Return the limits of families of accelerators, whose use the service does not tell."""
    families: dict[str, tuple[float, float | None]] = {}
    for info in _quota_infos(account.session, account.project):
        if info["quotaId"].startswith(SPOT_PREFIX):
            continue
        for found in info.get("dimensionsInfos", ()):
            dimensions = found.get("dimensions", {})
            if (
                "gpu_family" in dimensions
                and dimensions.get("region", region) == region
                and region in found.get("applicableLocations", [region])
            ):
                limit = float(found["details"]["value"])
                families.setdefault(dimensions["gpu_family"], (limit, None))
    return families


def _quota_infos(session: Session, project: str) -> Iterator[dict[str, Any]]:
    """Yield the quotas of Compute Engine. Raises OSError for a list that has none."""
    url = (
        f"{QUOTA_URL}/projects/{project}/locations/global/services/"
        "compute.googleapis.com/quotaInfos?pageSize=500"
    )
    listed = [
        info
        for page in pages(session, url)
        for info in page.get("quotaInfos", ())
    ]
    if not listed:
        raise OSError("the list has no quotas")
    yield from listed


def offered_zones(
    region: str, machine_types: Iterable[str]
) -> dict[str, set[str]]:
    """Return the zones that have machine types."""
    zones: dict[str, set[str]] = {name: set() for name in machine_types}
    for zone, machine in zonal_types(region, zones):
        zones[machine["name"]].add(zone)
    return zones


def zonal_types(
    region: str, machine_types: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the zones of a region have of machine types, each with its zone."""
    account = open_account()
    condition = " OR ".join(
        f'(name = "{name}")' for name in sorted(set(machine_types))
    )
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/aggregated/machineTypes?"
        + urlencode({"filter": condition, "returnPartialSuccess": "false"})
    )
    return zonal_things(account.session, url, "machineTypes", region)


def named_endpoints(_region: str, _network: str) -> dict[str, dict[str, str]]:
    """Return nothing: machines reach services here without endpoints that have their names."""
    return {}


def missing_rights(_region: str, rights: list[str]) -> dict[str, bool]:
    """Return the permissions that nothing grants on the project: what is to be made is in it."""
    account = open_account()
    granted: set[str] = set()
    for start in range(0, len(rights), RIGHTS_AT_ONCE):
        answer = send(
            account.session,
            "POST",
            f"{PROJECT_URL}/projects/{account.project}:testIamPermissions",
            {"permissions": rights[start : start + RIGHTS_AT_ONCE]},
        )
        granted.update(answer.get("permissions", ()))
    return {right: True for right in rights if right not in granted}
