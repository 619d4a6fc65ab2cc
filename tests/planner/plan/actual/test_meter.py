"""Every line of a bill can be found again in an export."""

from __future__ import annotations

import csv

import pytest

from planner.plan.actual.export_format import export_formats
from planner.plan.actual.ledger import UNUSED_KIND
from planner.plan.actual.meter import line_of, line_title, measure_of, meter_of
from providers.catalog.load import load_catalog
from tests.conftest import BLUEPRINTS, ROOT
from tests.conftest import find as find_fleet

GROUPS = ROOT / "planner" / "plan" / "actual" / "data" / "line_groups.csv"
LINES = {row["kind"] for row in csv.DictReader(GROUPS.read_text().splitlines())}


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.stem)
def test_lines_of_bills_have_a_title_and_a_measure(path) -> None:
    if "on_premises" in path.read_text():
        return
    solution = find_fleet(load_catalog(), path.read_text(), keep=0)
    assert solution.bill is not None
    for line in solution.bill.lines:
        assert line.kind in LINES
        assert measure_of(line.unit) is not None, line.unit


def test_categories_are_lines_with_titles() -> None:
    for known in export_formats():
        for (field, _), meaning in known.words.items():
            if field == "category" and meaning != "usage":
                assert meaning in LINES
    assert line_title(line_of(UNUSED_KIND)) == "unused commitment"


@pytest.mark.parametrize(
    ("service", "meter", "kind"),
    [
        (
            "Amazon Elastic Compute Cloud",
            "USE2-BoxUsage:p5.48xlarge RunInstances",
            "accelerators",
        ),
        ("Amazon Elastic Compute Cloud", "EBS:VolumeUsage.gp3", "disk"),
        ("Elastic Load Balancing", "LoadBalancerUsage", "load_balancer"),
        ("Elastic Load Balancing", "LCUUsage", "load_balancer_data"),
        ("AmazonCloudWatch", "CW:AlarmMonitorUsage", "alarm"),
        ("Compute Engine", "Spot Preemptible A3 Instance Core", "accelerators"),
        ("Cloud Storage", "Standard Storage US Regional", "object_storage"),
        ("NAT Gateway", "Standard Data Processed", "nat_data"),
        ("NAT Gateway", "Standard Gateway", "nat"),
        ("Bandwidth", "Standard Data Transfer Out", "egress"),
    ],
)
def test_meters_of_three_clouds(service: str, meter: str, kind: str) -> None:
    found = meter_of(service, meter)
    assert found is not None
    assert found.kind == kind


def test_an_unknown_meter_is_not_guessed() -> None:
    assert meter_of("Amazon Elastic Compute Cloud", "something else") is None
    assert measure_of("100 Hours") is None
