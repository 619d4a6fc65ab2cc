"""Finds objects of Cloud Monitoring, whose ids the cloud has made up, by what they are called.

A lookup of stacks/data/import_ids.csv is VERSION/COLLECTION|FIELD=input|LIST.FIELD.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.gcp.client import open_account
from providers.live.rest import send
from stacks.operate.orphan import TaggedObject
from stacks.spec.stack import MANAGED_TAG, MANAGER, STACK_TAG

if TYPE_CHECKING:
    from planner.plan.types import Properties

MONITORING_URL: Final = "https://monitoring.googleapis.com"
ASSET_URL: Final = "https://cloudasset.googleapis.com"


def object_ids(lookup: str, inputs: Properties, _region: str) -> list[str]:
    """Return the ids of the objects that are called as a resource is."""
    collection_path, condition, path = lookup.split("|")
    version, collection = collection_path.split("/")
    field_name, input_path = condition.split("=")
    list_name, id_field = path.split(".")
    wanted = _input_at(inputs, input_path)
    account = open_account()
    url = f"{MONITORING_URL}/{version}/projects/{account.project}/{collection}"
    found_ids = []
    page_token = ""
    while True:
        page = send(
            account.session, "GET", f"{url}?pageToken={quote(page_token)}"
        )
        found_ids += [
            str(found[id_field])
            for found in page.get(list_name, ())
            if found.get(field_name) == wanted
        ]
        next_token = page.get("nextPageToken", "")
        # A token that comes again would never end.
        if not next_token or next_token == page_token:
            return found_ids
        page_token = next_token


def tagged_objects(_regions: list[str]) -> list[TaggedObject]:
    """Return everything that tonnage has made, by its labels: one search has all regions."""
    account = open_account()
    url = (
        f"{ASSET_URL}/v1/projects/{account.project}:searchAllResources"
        f"?query={quote(f'labels.{MANAGED_TAG}:{MANAGER}')}"
    )
    tagged = []
    page_token = ""
    while True:
        page = send(
            account.session, "GET", f"{url}&pageToken={quote(page_token)}"
        )
        tagged += [
            TaggedObject(
                "gcp",
                found.get("location", ""),
                found.get("labels", {}).get(STACK_TAG, ""),
                found["name"].removeprefix("//"),
            )
            for found in page.get("results", ())
        ]
        next_token = page.get("nextPageToken", "")
        # A token that comes again would never end.
        if not next_token or next_token == page_token:
            return tagged
        page_token = next_token


def _input_at(inputs: Properties, input_path: str) -> Any:
    """Return an input; a document that is written as text is read."""
    value: Any = inputs
    for part in input_path.split("."):
        if isinstance(value, str):
            value = json.loads(value)
        value = value.get(part)
    return value
