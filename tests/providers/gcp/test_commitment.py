"""What a project of Google Cloud has committed to, at a service like its own."""

from __future__ import annotations

import json
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.gcp import commitment
from tests.loopback import Answer, Cloud, Request

pytestmark = pytest.mark.enable_socket
DATA = Path(__file__).parents[1] / "live" / "data"
REGION = "us-central1"
MACHINES = json.loads(
    (Path(__file__).parent / "data" / "machine_types.json").read_text()
)["machineTypes"]
[COMMITTED] = json.loads((DATA / "gcp_commitments.json").read_text())["answer"][
    "items"
]


def committed(**amounts: int) -> dict[str, Any]:
    """A commitment with other amounts of its resources; without those that are zero."""
    row: dict[str, Any] = deepcopy(COMMITTED)
    row["resources"] = [
        {**part, "amount": str(amounts.get(part["type"], part["amount"]))}
        for part in row["resources"]
        if amounts.get(part["type"], 1)
    ]
    return row


def serve(cloud: Cloud, *rows: dict[str, Any]) -> None:
    def answer(request: Request) -> Answer:
        if "/machineTypes" in request.path:
            listed = {"machineTypes": MACHINES}
            return 200, {"items": {f"zones/{REGION}-a": listed}}
        return 200, {"kind": "compute#commitmentList", "items": list(rows)}

    cloud.answer = answer


@pytest.mark.parametrize(
    ("amounts", "machines"),
    [
        ({}, 2),
        ({"ACCELERATOR": 24}, 2),
        ({"VCPU": 207}, 0),
        ({"VCPU": 208}, 1),
        ({"MEMORY": 1916928}, 1),
        ({"VCPU": 10_000, "MEMORY": 10**9, "ACCELERATOR": 40}, 5),
    ],
)
def test_what_is_short_bounds_the_machines(
    cloud: Cloud, amounts: dict[str, int], machines: int
) -> None:
    """A machine of eight accelerators has 208 vCPUs and 1,916,928 MB."""
    serve(cloud, committed(**amounts))
    [fact] = commitment.commitments(REGION, ["a3-highgpu-8g"])
    assert int(fact.amount / fact.takes["a3-highgpu-8g"]) == machines
    assert fact.usd_hour is None


@pytest.mark.parametrize("kind", ["VCPU", "MEMORY", "ACCELERATOR"])
def test_without_a_resource_it_pays_for_no_machine(
    cloud: Cloud, kind: str
) -> None:
    serve(cloud, committed(**{kind: 0}))
    assert commitment.commitments(REGION, ["a3-highgpu-8g"]) == []


def test_other_cards_and_other_commitments_are_left_out(cloud: Cloud) -> None:
    serve(cloud, committed(), {**committed(), "status": "EXPIRED"})
    facts = commitment.commitments(REGION, ["g2-standard-4", "a3-highgpu-8g"])
    assert [set(fact.takes) for fact in facts] == [{"a3-highgpu-8g"}]


def test_a_region_without_any_has_none(cloud: Cloud) -> None:
    serve(cloud)
    assert commitment.commitments(REGION, ["a3-highgpu-8g"]) == []
    assert commitment.commitment_use(REGION, ["a3-highgpu-8g"]) == {}
    assert len(cloud.asked) == 2


def test_several_share_what_runs(cloud: Cloud) -> None:
    first = {**committed(ACCELERATOR=8), "name": "early"}
    first["endTimestamp"] = "2026-12-01T00:00:00.000-08:00"

    def answer(request: Request) -> Answer:
        if "/instances" in request.path:
            document = json.loads((DATA / "gcp_instances.json").read_text())
            machines = document["answer"]["items"]["zones/us-central1-a"]
            machines["instances"] *= 2
            return 200, document["answer"]
        return 200, {"items": [committed(), first]}

    cloud.answer = answer
    assert commitment.commitment_use(REGION, ["a3-highgpu-8g"]) == {
        "early": Decimal(8),
        "h100-year": Decimal(8),
    }
