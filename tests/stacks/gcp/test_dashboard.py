"""The page that shows a stack on Google Cloud."""

from __future__ import annotations

import json
import re

from tests.stacks.told import NAMES, assert_laid_out, inputs_of, told_graph


def test_the_page_shows_every_metric(catalog) -> None:
    graph = told_graph(catalog, "gcp")
    [dashboard] = inputs_of(graph, "Dashboard").values()
    layout = json.loads(dashboard["dashboardJson"])["mosaicLayout"]
    tiles = layout["tiles"]
    shown = [
        re.findall(r"/watched/[a-z0-9-]+/(\w+)", json.dumps(data_set))
        for tile in tiles
        for data_set in tile["widget"].get("xyChart", {}).get("dataSets", [])
    ]
    assert sorted(shown) == sorted([name.lower()] for name in NAMES)
    assert_laid_out(
        [(t["xPos"], t["yPos"], t["width"], t["height"]) for t in tiles],
        layout["columns"],
    )
    described = inputs_of(graph, "MetricDescriptor")
    types = {inputs["type"].rpartition("/")[2] for inputs in described.values()}
    assert types == {name.lower() for name in NAMES}
