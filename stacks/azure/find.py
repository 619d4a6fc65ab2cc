"""Finds objects of Azure: ids follow from names, so only those of lost stacks are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from providers.azure.client import open_session, subscription
from providers.live.rest import send
from stacks.operate.orphan import TaggedObject
from stacks.spec.stack import MANAGED_TAG, MANAGER, STACK_TAG

if TYPE_CHECKING:
    from planner.plan.types import Properties

MANAGEMENT_URL: Final = "https://management.azure.com"
RESOURCES_VERSION: Final = "2021-04-01"


def object_ids(_lookup: str, _inputs: Properties, _region: str) -> list[str]:
    """Return nothing: no type of Azure has a lookup in stacks/data/import_ids.csv."""
    return []


def tagged_objects(_regions: list[str]) -> list[TaggedObject]:
    """Return everything that tonnage has made, by its tags: one list has all regions."""
    wanted = f"tagName eq '{MANAGED_TAG}' and tagValue eq '{MANAGER}'"
    url = (
        f"{MANAGEMENT_URL}/subscriptions/{subscription()}/resources"
        f"?$filter={quote(wanted)}&api-version={RESOURCES_VERSION}"
    )
    session = open_session(MANAGEMENT_URL)
    tagged: list[TaggedObject] = []
    seen: set[str] = set()
    # A link that comes again would never end.
    while url and url not in seen:
        seen.add(url)
        page = send(session, "GET", url)
        tagged += [
            TaggedObject(
                "azure",
                found.get("location", ""),
                (found.get("tags") or {}).get(STACK_TAG, ""),
                found["id"],
            )
            for found in page.get("value", ())
        ]
        url = page.get("nextLink", "")
    return tagged
