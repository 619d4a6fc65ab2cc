"""What only a cloud can show of its answers (docs/unproved.md): nothing is made or changed.

`make live-test CLOUD=aws` asks your own account. It holds the structure of each answer against
the file in which tests have it, and lists the prices that differ from those of the catalog. With
STACK=NAME it asks about a stack that you have. Of answers it prints prices alone, and why a
question was refused.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click
import pytest

from planner.market.offer import Catalog
from planner.market.price_row import read_price_rows
from planner.market.price_update import AskedScope, price_questions
from providers.catalog.manifest import CATALOG_FOLDER
from providers.live.price import ask_prices
from providers.live.reach import clock_skew_s
from tests.cloud.contract import ANSWERED, hold, live_probes
from tests.cloud.price_check import compare_prices
from tests.providers.live.probe import TAGS, Probe

CLOUD = os.environ.get("TONNAGE_CLOUD", "")
if not CLOUD:
    pytest.skip("no cloud is named: make live-test", allow_module_level=True)

pytestmark = pytest.mark.enable_socket
NOW = datetime.now(UTC)
STACK = os.environ.get("TONNAGE_STACK") or TAGS.stack
PROBES = live_probes(CLOUD, STACK, NOW.date())
# As long as catalog update waits for all regions.
DEADLINE_S = 300.0


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_answers_have_the_structure_of_their_files(probe: Probe) -> None:
    """A right may be missing; an answer that cannot be read is a fault of ours."""
    report = hold(probe)
    click.echo(f"{probe.name}: {report.outcome}")
    for line in (*report.notes, *report.faults):
        click.echo(f"  {line}")
    if probe.function == "signed_in":
        assert report.outcome == ANSWERED, "nobody is signed in"
    assert not report.faults, "\n".join(report.faults)
    if report.outcome != ANSWERED:
        pytest.skip(report.outcome)


def test_the_clock_is_near_that_of_the_cloud() -> None:
    assert abs(clock_skew_s(CLOUD)) < 240


def test_prices_are_those_of_the_catalog(catalog: Catalog) -> None:
    """Of all regions, on demand and on spot; none may be of another order of magnitude."""
    text = (CATALOG_FOLDER / "prices.csv").read_text(encoding="utf-8")
    scope = AskedScope(clouds=(CLOUD,))
    rows = [row for row in read_price_rows(text) if scope.has(row)]
    zones = {
        (
            offer.provider,
            offer.region,
            offer.instance.instance_type,
        ): offer.zones
        for offer in catalog.offers
    }
    report = compare_prices(
        rows,
        ask_prices(price_questions(rows, scope), DEADLINE_S),
        zones,
        f"{NOW:%Y-%m-%d}",
    )
    for line in report.lines():
        click.echo(line)
    assert report.compared, "no price was answered"
    assert report.implausible == []
