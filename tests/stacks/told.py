"""A service whose troubles are told to people."""

from __future__ import annotations

from typing import Any

from planner.plan.graph import PlannedGraph
from stacks.build import build_stack
from stacks.graph import Graph
from tests.conftest import find, spec_of
from tests.stacks.watched import SPEC

# What machines with an engine tell.
NAMES = (
    "Heartbeat",
    "Busy",
    "Trouble",
    "Utilization",
    "Power",
    "Requests",
    "Tokens",
)
MAIL = "ops@example.com"
WEBHOOK = "https://example.com/alarms?to=us"
TOPICS = {
    "aws": "arn:aws:sns:us-east-1:123456789012:alarms",
    "gcp": "projects/ops-project/topics/alarms",
    "azure": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/ops"
    "/providers/Microsoft.Insights/actionGroups/alarms",
}


def told_spec(cloud: str) -> str:
    """A spec with a receiver of each kind."""
    receivers = [f"mailto:{MAIL}", WEBHOOK, TOPICS[cloud]]
    return SPEC.replace("CLOUD", cloud) + f"notify: {receivers}\n"


def told_graph(catalog: Any, cloud: str, *, told: bool = True) -> Graph:
    """What is built of it, or of the same spec without receivers."""
    text = told_spec(cloud) if told else SPEC.replace("CLOUD", cloud)
    spec = spec_of(text)
    return build_stack(spec, find(catalog, text, keep=0), spec.name).graph


def inputs_of(graph: Graph | PlannedGraph, type_name: str) -> dict[str, Any]:
    """The inputs of the resources of a type, by their names."""
    return {
        resource.name: resource.inputs
        for resource in graph.resources
        if resource.type.rpartition(":")[2] == type_name
    }


def assert_laid_out(boxes: list[tuple[int, ...]], page_width: int) -> None:
    """No two boxes of a page cover the same place, and none leaves it."""
    places = [
        (x + column, y + row)
        for x, y, width, height in boxes
        for column in range(width)
        for row in range(height)
    ]
    assert len(places) == len(set(places))
    assert all(0 <= x < page_width for x, _ in places)
