"""What a project of Google Cloud allows: who is signed in, services, quotas, zones, rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from providers.gcp.client import open_account
from providers.live.question import QuotaRoom, rules_for
from providers.live.rest import send

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from providers.live.question import MachineAsk, QuotaRule

COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
QUOTA_URL: Final = "https://cloudquotas.googleapis.com/v1"
SERVICE_URL: Final = "https://serviceusage.googleapis.com/v1"
PROJECT_URL: Final = "https://cloudresourcemanager.googleapis.com/v1"
# Calls take at most so many names.
SERVICES_AT_ONCE: Final = 20
RIGHTS_AT_ONCE: Final = 100
# A quota without a limit is minus one.
NO_LIMIT: Final = -1
# Of spot machines; all others count those on demand.
SPOT_PREFIX: Final = "PREEMPTIBLE"


def signed_in(region: str) -> str:
    """Return the project, as far as who is signed in may see it."""
    account = open_account()
    send(
        account.session,
        "GET",
        f"{COMPUTE_URL}/projects/{account.project}/regions/{region}",
    )
    return account.project


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
        for found in answer.get("services", ()):
            if found["state"] != "ENABLED":
                name = found["name"].rpartition("/")[2]
                closed[name] = (
                    f"gcloud services enable {name} --project {account.project}"
                )
    return closed


def quota_rooms(ask: MachineAsk) -> list[QuotaRoom]:
    """Return the quota of the accelerators in the region."""
    [rule] = rules_for("gcp", ask)
    if rule.kind == "metric":
        return [_metric_room(ask, rule)]
    return [_family_room(ask, rule)]


def _metric_room(ask: MachineAsk, rule: QuotaRule) -> QuotaRoom:
    """Return a quota that Compute Engine itself counts."""
    account = open_account()
    answer = send(
        account.session,
        "GET",
        f"{COMPUTE_URL}/projects/{account.project}/regions/{ask.region}",
    )
    for found in answer.get("quotas", ()):
        if found["metric"] == rule.quota:
            return _room(
                ask, rule, account.project, found["limit"], found["usage"]
            )
    raise LookupError(f"{ask.region} has no quota {rule.quota}")


def _family_room(ask: MachineAsk, rule: QuotaRule) -> QuotaRoom:
    """Return a quota of a family of accelerators, whose use the service does not tell."""
    account = open_account()
    for info in _quota_infos(account.session, account.project):
        if info["quotaId"].startswith(SPOT_PREFIX):
            continue
        for found in info.get("dimensionsInfos", ()):
            dimensions = found.get("dimensions", {})
            if dimensions.get("gpu_family") == rule.quota and (
                dimensions.get("region", ask.region) == ask.region
                and ask.region in found.get("applicableLocations", [ask.region])
            ):
                limit = float(found["details"]["value"])
                return _room(ask, rule, account.project, limit, None)
    raise LookupError(f"{ask.region} has no quota of {rule.quota}")


def _quota_infos(session: Any, project: str) -> Iterator[dict[str, Any]]:
    """Yield the quotas of Compute Engine, page by page; a token that comes again ends them."""
    url = (
        f"{QUOTA_URL}/projects/{project}/locations/global/services/"
        "compute.googleapis.com/quotaInfos?pageSize=500"
    )
    token, seen = "", set()
    while token not in seen:
        seen.add(token)
        page = send(
            session, "GET", f"{url}&pageToken={token}" if token else url
        )
        yield from page.get("quotaInfos", ())
        token = page.get("nextPageToken", "")


def _room(
    ask: MachineAsk,
    rule: QuotaRule,
    project: str,
    limit: float,
    used: float | None,
) -> QuotaRoom:
    return QuotaRoom(
        name=f"{rule.quota} in {ask.region}",
        unit="accelerators",
        limit=float("inf") if limit == NO_LIMIT else float(limit),
        used=None if used is None else float(used),
        asked=ask.amount(rule.unit),
        remedy="https://console.cloud.google.com/iam-admin/quotas"
        f"?project={project}",
    )


def offered_zones(region: str, instance_type: str) -> set[str]:
    """Return the zones that have a machine type."""
    account = open_account()
    query = urlencode(
        {
            "filter": f"name={instance_type}",
            "returnPartialSuccess": "false",
        }
    )
    answer = send(
        account.session,
        "GET",
        f"{COMPUTE_URL}/projects/{account.project}/aggregated/machineTypes?{query}",
    )
    zones = {
        place.removeprefix("zones/")
        for place, found in answer.get("items", {}).items()
        if found.get("machineTypes")
    }
    return {zone for zone in zones if zone.rpartition("-")[0] == region}


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
