"""The page that shows a stack on Azure."""

from __future__ import annotations

from tests.stacks.told import NAMES, assert_laid_out, inputs_of, told_graph


def test_the_page_shows_every_metric_of_every_group(catalog) -> None:
    graph = told_graph(catalog, "azure")
    [dashboard] = inputs_of(graph, "Dashboard").values()
    [lens] = dashboard["properties"]["lenses"]
    *charts, log = lens["parts"]
    lines = [
        (line["resourceMetadata"]["id"]["$ref"], line["name"])
        for part in charts
        for line in part["metadata"]["settings"]["content"]["options"]["chart"][
            "metrics"
        ]
    ]
    assert sorted(lines) == sorted(("serve-nodes", name) for name in NAMES)
    assert_laid_out(
        [
            tuple(
                part["position"][key]
                for key in ("x", "y", "colSpan", "rowSpan")
            )
            for part in lens["parts"]
        ],
        12,
    )
    [query] = [
        entry["value"]
        for entry in log["metadata"]["inputs"]
        if entry["name"] == "Query"
    ]
    assert query.startswith("Tonnage_CL |")
