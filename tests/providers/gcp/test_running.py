"""What runs of a stack on Google Cloud, at a service like its own."""

from __future__ import annotations

from datetime import date

import pytest

from planner.plan.actual.charge import StackTags
from providers.gcp import running
from tests.loopback import Cloud
from tests.providers.shapes import answer_of
from tests.providers.shapes.service import serve

pytestmark = pytest.mark.enable_socket
CALL = "gcp/instances.aggregatedList"
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")


def test_what_does_not_run_or_is_of_another_stack_is_left_out(
    cloud: Cloud,
) -> None:
    """Of two machines that run, one on spot: those that come up are counted as well."""
    document = answer_of(CALL)
    listed = document["items"]["zones/us-central1-a"]
    machine = listed["instances"][0]
    listed["instances"] += [
        {**machine, "status": "STAGING"},
        {**machine, "status": "TERMINATED"},
        {**machine, "labels": {"tonnage-stack": "other"}},
    ]
    document["items"]["zones/us-west1-b"] = listed
    serve(cloud, {CALL: document})
    found = running.running_machines("us-central1", TAGS)
    assert [(each.is_spot, each.nodes) for each in found] == [
        (False, 2),
        (True, 1),
    ]
    assert {each.machine_type for each in found} == {"a3-highgpu-8g"}


def test_where_nothing_runs_there_are_no_machines(cloud: Cloud) -> None:
    serve(cloud, {CALL: "empty"})
    assert running.running_machines("us-central1", TAGS) == []


def test_a_cost_is_told_by_an_export_alone() -> None:
    with pytest.raises(OSError, match="tonnage usage PLAN --from FILE"):
        running.month_cost("us-east4", TAGS, date(2026, 11, 27))
