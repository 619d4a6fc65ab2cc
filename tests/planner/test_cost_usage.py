"""What a spec states of its use: it is what the bill counts, and nothing else changes."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.cost.usage import usage_assumptions, usage_value
from planner.spec.field_table import block_fields
from tests.conftest import chat
from tests.planner.cli.conftest import Command

CROSSING = "traffic between zones"
WHERE = "where: {clouds: [aws], regions: [us-east-1]}"


def plan(tonnage: Command, folder: Path, usage: str = "") -> dict[str, Any]:
    (folder / "spec.yaml").write_text(chat(extra=f"{WHERE}\n{usage}"))
    code, document, told = tonnage("plan", "spec.yaml", "-f", "json")
    assert code == 0, told
    found: dict[str, Any] = json.loads(document)
    return found


def quantities(document: dict[str, Any]) -> dict[str, Decimal]:
    return {
        line["name"]: Decimal(line["quantity"])
        for line in document["cost"]["lines"]
    }


def test_what_a_spec_may_state_is_what_the_table_says() -> None:
    stated = {row.usage for row in usage_assumptions().values() if row.stated}
    assert {field.name for field in block_fields("shared", "usage")} == stated


@pytest.mark.parametrize(
    ("usage", "lines"),
    [
        ("log_gb_per_node_hour", {"logs", "NAT data"}),
        ("container_image_gb", {"NAT data"}),
        ("node_starts_per_month", {"NAT data"}),
        ("stream_bytes_per_token", {"load balancer data", CROSSING}),
        ("prompt_bytes_per_token", {"load balancer data", CROSSING}),
        ("overlap_hours", set()),
        # Twice nothing is nothing.
        ("cross_region_gb", set()),
    ],
)
def test_only_the_lines_of_it_change(
    tonnage: Command, here: Path, usage: str, lines: set[str]
) -> None:
    assumed = plan(tonnage, here)
    doubled = plan(
        tonnage, here, f"usage: {{{usage}: {2 * usage_value(usage):f}}}"
    )
    before, after = quantities(assumed), quantities(doubled)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == lines
    assert all(after[name] > before[name] for name in lines)
    [told] = [
        used for used in doubled["cost"]["usage"] if used["name"] == usage
    ]
    assert told["source"] == "spec"
    assert Decimal(told["amount"]) == 2 * usage_value(usage)


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_what_crosses_regions_is_billed_where_it_is_stated(
    tonnage: Command, here: Path, cloud: str
) -> None:
    """All three publish 0.02 USD a GB between two regions of North America."""
    (here / "spec.yaml").write_text(
        chat(
            extra=f"where: {{clouds: [{cloud}]}}\n"
            "usage: {cross_region_gb: 500}"
        )
    )
    code, document, _ = tonnage("plan", "spec.yaml", "-f", "json")
    assert code == 0
    cost = json.loads(document)["cost"]
    [line] = [line for line in cost["lines"] if line["kind"] == "cross_region"]
    assert Decimal(line["quantity"]) == 500
    assert Decimal(line["usd"]) == Decimal(10)
    assert "transfers to other networks" in cost["excludes"]


def test_logs_are_those_of_the_hours(tonnage: Command, here: Path) -> None:
    document = plan(tonnage, here, "usage: {log_gb_per_node_hour: 0.5}")
    lines = quantities(document)
    [hours] = [
        Decimal(line["quantity"])
        for line in document["cost"]["lines"]
        if line["kind"] == "accelerators"
    ]
    assert lines["logs"] == hours / 2
    assert (
        plan(tonnage, here, "usage: {log_gb_per_node_hour: 0}")["cost"]["total"]
        < (document["cost"]["total"])
    )


def test_a_spec_says_nothing_of_its_neighbour(
    tonnage: Command, here: Path
) -> None:
    """Specs of one command share what was searched, and not what one of them states."""
    alone = plan(tonnage, here)["cost"]["total"]
    (here / "chatty.yaml").write_text(
        chat(extra=f"{WHERE}\nusage: {{log_gb_per_node_hour: 5}}")
    )
    for order in (("chatty.yaml", "spec.yaml"), ("spec.yaml", "chatty.yaml")):
        code, document, _ = tonnage("plan", *order, "-f", "json")
        assert code == 0
        totals = {
            found["spec"]["path"]: found["cost"]["total"]
            for found in json.loads(document)
        }
        assert totals["spec.yaml"] == alone
        assert Decimal(totals["chatty.yaml"]) > Decimal(alone)


def test_a_page_says_what_is_stated_and_a_full_one_the_rest(
    tonnage: Command, here: Path
) -> None:
    (here / "spec.yaml").write_text(
        chat(extra=f"{WHERE}\nusage: {{node_starts_per_month: 9}}")
    )
    _, page, _ = tonnage("plan", "spec.yaml")
    assert "stated: usage.node_starts_per_month: 9 count" in page
    assert "assumed:" not in page
    _, full, _ = tonnage("plan", "spec.yaml", "--full")
    assert full.count("assumed: usage.") == 6
    code, _, told = tonnage("check", "spec.yaml")
    assert code == 0, told
    (here / "spec.yaml").write_text(
        chat(extra=f"{WHERE}\nusage: {{node_starts: 9}}")
    )
    code, _, told = tonnage("check", "spec.yaml")
    assert code == 2
    assert "node_starts_per_month" in told
