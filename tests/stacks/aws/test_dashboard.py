"""The page that shows a stack on AWS."""

from __future__ import annotations

import json

from tests.stacks.told import NAMES, assert_laid_out, inputs_of, told_graph


def test_the_page_shows_every_metric_of_every_group(catalog) -> None:
    graph = told_graph(catalog, "aws")
    [dashboard] = inputs_of(graph, "Dashboard").values()
    widgets = json.loads(dashboard["dashboardBody"])["widgets"]
    lines = [
        tuple(line[:4])
        for widget in widgets
        if widget["type"] == "metric"
        for line in widget["properties"]["metrics"]
    ]
    groups = ["watched-serve"]
    assert sorted(lines) == sorted(
        ("tonnage", name, "AutoScalingGroupName", group)
        for name in NAMES
        for group in groups
    )
    assert_laid_out(
        [(w["x"], w["y"], w["width"], w["height"]) for w in widgets], 24
    )
    [log] = [w for w in widgets if w["type"] == "log"]
    assert "SOURCE '/tonnage/watched'" in log["properties"]["query"]
