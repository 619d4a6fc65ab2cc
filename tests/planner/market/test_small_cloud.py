"""Small clouds: what the machine-hours of a bill would cost there."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from planner.market.small_cloud import (
    cheapest_elsewhere,
    small_cloud_machines,
)
from planner.units import HOURS_PER_MONTH
from tests.conftest import ROOT, only
from tests.stacks.engine.test_simulated import plan_of


def test_a_cloud_has_one_price_for_a_machine() -> None:
    found = Counter(
        (machine.cloud, machine.accelerator, machine.accelerators)
        for machine in small_cloud_machines()
    )
    assert max(found.values()) == 1


def test_machines_are_compared_with_such_ones_alone(catalog) -> None:
    """For every machine type: as many of the same accelerator, cheapest first."""
    instances = {
        offer.instance.instance_type: offer.instance for offer in catalog.offers
    }
    compared = 0
    for instance in instances.values():
        fleets = cheapest_elsewhere(instance, HOURS_PER_MONTH, most=99)
        compared += bool(fleets)
        for fleet in fleets:
            machine = fleet.machine
            assert machine.accelerator == instance.accelerator
            assert machine.accelerators == instance.accelerators
            assert fleet.usd == round(HOURS_PER_MONTH * machine.usd_hour, 2)
        assert [fleet.usd for fleet in fleets] == sorted(
            fleet.usd for fleet in fleets
        )
        assert instance.fraction == 1 or not fleets
    assert compared > 10


@pytest.mark.parametrize("name", ["chat-405b", "finetune-70b"])
def test_a_plan_compares_the_hours_of_its_bill(catalog, name: str) -> None:
    plan = plan_of(catalog, (ROOT / f"blueprints/{name}.yaml").read_text())
    hours = sum(
        line.quantity for line in plan.cost.lines if line.kind == "accelerators"
    )
    assert plan.cost.elsewhere
    for found in plan.cost.elsewhere:
        assert abs(found.usd - hours * found.usd_hour) <= Decimal("0.01")


def test_what_nobody_else_rents_out_is_not_compared(catalog) -> None:
    few = only(
        catalog, lambda offer: offer.instance.instance_type == "g2-standard-4"
    )
    text = (ROOT / "blueprints/chat-8b.yaml").read_text()
    assert plan_of(few, text).cost.elsewhere == ()
