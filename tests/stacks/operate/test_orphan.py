"""Orphans of real clouds: what is asked, what is read, over all pages and regions."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from planner.errors import CredentialError
from stacks.azure import find as azure_find
from stacks.gcp import find as gcp_find
from stacks.operate.orphan import TaggedObject, tagged_orphans
from tests.conftest import only
from tests.loopback import Answer, Cloud, Request

pytestmark = pytest.mark.enable_socket
MINE = frozenset({"mine"})


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    import os

    url = os.environ["AWS_ENDPOINT_URL"]
    monkeypatch.setattr(azure_find, "MANAGEMENT_URL", url)
    monkeypatch.setattr(gcp_find, "ASSET_URL", url)


def test_aws_is_asked_in_every_region(catalog, cloud, urls) -> None:
    def answer(request: Request) -> Answer:
        asked = request.document()
        assert asked["TagFilters"] == [
            {"Key": "managed-by", "Values": ["tonnage"]}
        ]
        # Two pages in each region.
        if not asked.get("PaginationToken"):
            return 200, page("mine", "arn:aws:ec2:vpc/1", "next")
        return 200, page("lost", "arn:aws:ec2:vpc/2", "")

    def page(stack: str, arn: str, token: str) -> dict:
        tags = [{"Key": "tonnage-stack", "Value": stack}]
        return {
            "PaginationToken": token,
            "ResourceTagMappingList": [{"ResourceARN": arn, "Tags": tags}],
        }

    cloud.answer = answer
    two = only(catalog, lambda o: o.region in ("us-east-1", "eu-west-1"))
    assert tagged_orphans(["aws"], MINE, two) == [
        TaggedObject("aws", region, "lost", "arn:aws:ec2:vpc/2")
        for region in ("eu-west-1", "us-east-1")
    ]
    assert len(cloud.asked) == 4


def test_google_cloud_has_one_search(catalog, cloud, urls) -> None:
    def answer(request: Request) -> Answer:
        query = parse_qs(urlsplit(request.path).query)
        assert query["query"] == ["labels.managed-by:tonnage"]
        assert "/projects/proj:searchAllResources" in request.path
        if "pageToken" not in query:
            return 200, {"results": [found("mine")], "nextPageToken": "p2"}
        return 200, {"results": [found("lost")]}

    def found(stack: str) -> dict:
        return {
            "name": f"//compute.googleapis.com/{stack}",
            "location": "us-east4",
            "labels": {"tonnage-stack": stack},
        }

    cloud.answer = answer
    assert tagged_orphans(["gcp"], MINE, catalog) == [
        TaggedObject("gcp", "us-east4", "lost", "compute.googleapis.com/lost")
    ]


def test_azure_has_one_list(catalog, cloud, urls) -> None:
    def answer(request: Request) -> Answer:
        parts = urlsplit(request.path)
        if parts.path == "/more":
            return 200, {"value": [found("lost"), found("")]}
        query = parse_qs(parts.query)
        assert parts.path == "/subscriptions/sub/resources"
        assert query["$filter"] == [
            "tagName eq 'managed-by' and tagValue eq 'tonnage'"
        ]
        return 200, {
            "value": [found("mine")],
            "nextLink": f"{azure_find.MANAGEMENT_URL}/more",
        }

    def found(stack: str) -> dict:
        tags = {"tonnage-stack": stack} if stack else None
        return {
            "id": f"/subscriptions/{stack}",
            "location": "eastus",
            "tags": tags,
        }

    cloud.answer = answer
    orphans = tagged_orphans(["azure"], MINE, catalog)
    # What lost even the tag of its stack belongs to none.
    assert [orphan.stack for orphan in orphans] == ["", "lost"]


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_a_refusal_is_no_empty_answer(catalog, cloud, urls, name) -> None:
    refusal = {"__type": "AccessDeniedException", "message": "no"}
    cloud.answer = lambda _: (403, json.dumps(refusal))
    with pytest.raises(CredentialError):
        tagged_orphans([name], MINE, catalog)
