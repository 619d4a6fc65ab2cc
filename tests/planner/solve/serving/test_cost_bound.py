"""No fleet is cheaper than the plan that claims to be the cheapest: against each type alone."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, find, only
from tests.planner.cli.conftest import Command

BATCH = """
apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: MODEL}
traffic:
  total_requests: REQUESTS
  input_tokens: {mean: 50, p95: 100}
  output_tokens: {mean: OUT, p95: OUT_95}
deadline: HOURSh
buy: {spot: never}
"""
TYPES = ("g6.2xlarge", "g6e.xlarge", "g7e.2xlarge", "p5.4xlarge", "g5.xlarge")
ZONED = ("g7e.2xlarge", "g6e.2xlarge", "p4d.24xlarge")


def drawn_batch(seed: int) -> str:
    draw = random.Random(seed)
    output = draw.choice([12, 180, 600, 1500])
    values = {
        "MODEL": draw.choice(["llama-3.1-8b", "qwen2.5-7b", "qwen3-8b"]),
        "REQUESTS": str(draw.choice([20_000, 200_000, 2_000_000])),
        "OUT_95": str(2 * output),
        "OUT": str(output),
        "HOURS": str(draw.choice([8, 24, 72])),
    }
    text = BATCH
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def usd(catalog: Any, text: str) -> Decimal:
    bill = find(catalog, text, keep=0).bill
    return Decimal("Infinity") if bill is None else bill.total


def of_type(catalog: Any, name: str) -> Any:
    return only(catalog, lambda offer: offer.instance.instance_type == name)


def in_region(catalog: Any, name: str) -> Any:
    return only(catalog, lambda offer: offer.region == name)


@pytest.mark.parametrize("seed", range(24))
def test_no_machine_type_alone_is_cheaper_for_a_batch(
    catalog, seed: int
) -> None:
    text = drawn_batch(seed)
    few = only(catalog, lambda offer: offer.instance.instance_type in TYPES)
    alone = min(usd(of_type(few, name), text) for name in TYPES)
    assert usd(few, text) == alone


def test_how_many_alternatives_are_shown_decides_nothing(
    tonnage: Command, here: Path
) -> None:
    (here / "b.yaml").write_text(
        (ROOT / "blueprints/classify-backlog.yaml").read_text()
    )
    pages = [
        tonnage("plan", "b.yaml", "--alternatives", count)[1].splitlines()[2:4]
        for count in ("0", "3", "10")
    ]
    assert pages[0] == pages[1] == pages[2]
    scaled = tonnage("explain", "b.yaml", "--traffic", "1x")[1]
    assert "$0.00" in scaled


@pytest.mark.parametrize("more", ["", "\nbuy: {commit: [none, 3y]}"])
def test_where_a_zone_may_fail_no_region_alone_is_cheaper(
    catalog, more: str
) -> None:
    """Regions of one price have machines in another number of zones."""
    text = (ROOT / "blueprints/agent-gpt-oss.yaml").read_text()
    text = text.replace("\nsla:", "\nsla:\n  survives: zone") + more
    few = only(
        catalog,
        lambda offer: (
            offer.provider == "aws"
            and offer.instance.instance_type in ZONED
            and offer.region.startswith("us-")
        ),
    )
    regions = {offer.region for offer in few.offers}
    zones = {
        offer.zone_count(together=False)
        for offer in few.offers
        if offer.instance.instance_type == "g7e.2xlarge"
    }
    assert len(zones) > 1
    alone = {region: usd(in_region(few, region), text) for region in regions}
    assert usd(few, text) == min(alone.values())
