"""What a project of Google Cloud has committed to, at a service like its own."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal

import pytest

from providers.gcp import commitment
from tests.loopback import Cloud
from tests.providers.shapes import Document, answer_of
from tests.providers.shapes.service import serve

pytestmark = pytest.mark.enable_socket
REGION = "us-central1"
CALL = "gcp/regionCommitments.list"
RUNNING = "gcp/instances.aggregatedList"
[COMMITTED] = answer_of(CALL)["items"]


def committed(**amounts: int) -> Document:
    """A commitment with other amounts of its resources; without those that are zero."""
    row: Document = deepcopy(COMMITTED)
    row["resources"] = [
        {**part, "amount": str(amounts.get(part["type"], part["amount"]))}
        for part in row["resources"]
        if amounts.get(part["type"], 1)
    ]
    return row


def commit(cloud: Cloud, *rows: Document) -> None:
    """Let a project have commitments."""
    serve(cloud, {CALL: {**answer_of(CALL), "items": list(rows)}})


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
    commit(cloud, committed(**amounts))
    [fact] = commitment.commitments(REGION, ["a3-highgpu-8g"])
    assert int(fact.amount / fact.takes["a3-highgpu-8g"]) == machines
    assert fact.usd_hour is None


@pytest.mark.parametrize("kind", ["VCPU", "MEMORY", "ACCELERATOR"])
def test_without_a_resource_it_pays_for_no_machine(
    cloud: Cloud, kind: str
) -> None:
    commit(cloud, committed(**{kind: 0}))
    assert commitment.commitments(REGION, ["a3-highgpu-8g"]) == []


def test_other_cards_and_other_commitments_are_left_out(cloud: Cloud) -> None:
    commit(cloud, committed(), {**committed(), "status": "EXPIRED"})
    facts = commitment.commitments(REGION, ["g2-standard-4", "a3-highgpu-8g"])
    assert [set(fact.takes) for fact in facts] == [{"a3-highgpu-8g"}]


def test_a_region_without_any_has_none(cloud: Cloud) -> None:
    serve(cloud, {CALL: "empty"})
    assert commitment.commitments(REGION, ["a3-highgpu-8g"]) == []
    assert commitment.commitment_use(REGION, ["a3-highgpu-8g"]) == {}
    assert len(cloud.asked) == 2


def test_several_share_what_runs(cloud: Cloud) -> None:
    first = {**committed(ACCELERATOR=8), "name": "early"}
    first["endTimestamp"] = "2026-12-01T00:00:00.000-08:00"

    machines = answer_of(RUNNING)
    machines["items"]["zones/us-central1-a"]["instances"] *= 2
    both = {**answer_of(CALL), "items": [committed(), first]}
    serve(cloud, {CALL: both, RUNNING: machines})
    assert commitment.commitment_use(REGION, ["a3-highgpu-8g"]) == {
        "early": Decimal(8),
        "h100-year": Decimal(8),
    }
