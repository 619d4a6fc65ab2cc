"""A plan, and exports that are made of one: what the laws of usage and review speak about."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.plan.actual.charge import Charge, StackTags, read_charges
from planner.plan.types import CostLine, Plan
from tests.conftest import ROOT, chat
from tests.stacks.engine.test_simulated import plan_of

EXPORTS = ROOT / "tests" / "data" / "exports"
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")
FIRST_DAY = 1
DAYS = 10
HOURS = 24 * DAYS
COLUMNS = [
    "BilledCost",
    "EffectiveCost",
    "BillingCurrency",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ServiceName",
    "ChargeDescription",
    "ResourceId",
    "ConsumedQuantity",
    "ConsumedUnit",
    "CommitmentDiscountStatus",
    "Tags",
]
# How Google Cloud and AWS name what the lines of a bill are for; units as there.
METERS = {
    "accelerators": ("Compute Engine", "Nvidia L4 GPU running in Virginia"),
    "disk": ("Compute Engine", "Balanced PD Capacity in Virginia"),
    "nat_per_node": ("Networking", "Networking Cloud Nat Gateway Uptime"),
    "nat_data": ("Networking", "Networking Cloud Nat Data Processing"),
    "public_ip": ("Compute Engine", "External IP Charge on a Standard VM"),
    "load_balancer": (
        "Networking",
        "Network Load Balancing: Forwarding Rule Minimum Service Charge",
    ),
    "load_balancer_data": (
        "Networking",
        "Network Load Balancing: Data Processing Charge",
    ),
    "object_storage": ("Cloud Storage", "Standard Storage Virginia"),
    "logs": ("Cloud Logging", "Log Storage cost"),
    "alert": ("Cloud Monitoring", "Alerting condition"),
    "scheduler_job": ("Cloud Scheduler", "Jobs"),
    "workflow_step": ("Workflows", "Workflows Internal Steps"),
}
UNITS = {
    "node-hour": ("hour", 1),
    "hour": ("seconds", 3600),
    "hour per VM": ("hour", 1),
    "GB-month": ("gibibyte month", 1),
    "GB": ("gibibyte", 1),
    "condition-month": ("month", 1),
    "job-month": ("month", 1),
    "step": ("count", 1),
}


@pytest.fixture(scope="session")
def plan(catalog) -> Plan:
    """A month of a service on Google Cloud, of one pool of machines with an L4 each."""
    made = plan_of(
        catalog,
        chat(extra="where: {clouds: [gcp], accelerators: {allow: [l4]}}"),
    )
    pool = made.solution.pools[0]
    assert (pool.accelerator, pool.accelerators_per_node) == ("l4", 1)
    assert {line.kind for line in made.cost.lines} <= set(METERS)
    return made


def export_row(**cells: Any) -> dict[str, Any]:
    """A row of FOCUS of the stack; cells by their columns."""
    return {
        "BilledCost": "0",
        "EffectiveCost": "1",
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargePeriodStart": "2026-10-01T00:00:00Z",
        "ChargePeriodEnd": "2026-10-02T00:00:00Z",
        "ServiceName": "Compute Engine",
        "ChargeDescription": "Nvidia L4 GPU running in Virginia",
        "ResourceId": "",
        "ConsumedQuantity": "1",
        "ConsumedUnit": "hour",
        "CommitmentDiscountStatus": "",
        "Tags": json.dumps({"tonnage-stack": "chat", "tonnage-pool": "serve"}),
        **cells,
    }


def focus_bytes(rows: list[dict[str, Any]]) -> bytes:
    """An export of FOCUS as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def charges_of(rows: list[dict[str, Any]]) -> list[Charge]:
    """The charges of a stack in an export of rows."""
    return read_charges({"focus.csv": focus_bytes(rows)}, TAGS)


def planned_rows(plan: Plan, days: int = DAYS) -> list[dict[str, Any]]:
    """An export that is exactly the plan for some days: each line, each day, each machine."""
    return [
        row
        for day in range(FIRST_DAY, FIRST_DAY + days)
        for line in plan.cost.lines
        for row in _line_rows(line, plan, day)
    ]


def _line_rows(line: CostLine, plan: Plan, day: int) -> list[dict[str, Any]]:
    service, meter = METERS[line.kind]
    unit, per_unit = UNITS[line.unit]
    assert line.usd is not None
    nodes = plan.solution.pools[0].nodes if line.pool else 1
    share = Decimal(24) / 730 / nodes
    return [
        export_row(
            EffectiveCost=f"{line.usd * share:f}",
            ChargePeriodStart=f"2026-10-{day:02}T00:00:00Z",
            ChargePeriodEnd=f"2026-10-{day + 1:02}T00:00:00Z",
            ServiceName=service,
            ChargeDescription=meter,
            ResourceId=f"{line.kind}-{node}",
            ConsumedQuantity=f"{line.quantity * per_unit * share:f}",
            ConsumedUnit=unit,
        )
        for node in range(nodes)
    ]


def export(name: str) -> dict[str, bytes]:
    """A stored export by its path."""
    path = Path("tests/data/exports") / name
    return {str(path): (EXPORTS / name).read_bytes()}
