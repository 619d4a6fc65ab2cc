"""What ends, on machines of one's own: hours of such machines rented, at a share of a month."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.cost.bill_line import MACHINE_KIND
from planner.market.on_premises import DataCenter, read_data_center
from planner.render.ownership import paid_runs_text
from planner.solve.settings import SolveSettings
from planner.workload.owned_run import OwnedRun, own_run
from planner.workload.ownership import YEARS
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, find, only, present, spec_of
from tests.planner.cli.conftest import Command

CENTER = """\
machines: [{name: own, accelerator: h100-sxm, accelerators_per_node: 8, nodes: NODES,
            price: 300000, power: 10kW}]
years: 4
electricity: 0.2
pue: 1.5
space: 400
staff: 6000
utilization: 50%
residual: 10%
cost_of_capital: 8%
"""
PLANNED_USD = Decimal(500)


def center_of(nodes: int, network: str = "") -> DataCenter:
    text = CENTER.replace("NODES", str(nodes)).replace("10kW", f"10kW{network}")
    return read_data_center(text.encode(), "dc.yaml")


def blueprint(name: str) -> str:
    return (ROOT / f"blueprints/{name}.yaml").read_text()


def run_on(catalog: Any, text: str, nodes: int, network: str = "") -> OwnedRun:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
    )
    center = center_of(nodes, network)
    [found] = own_run(spec_of(text), settings, center, PLANNED_USD)
    return found


@pytest.mark.parametrize("name", ["lora-8b", "classify-backlog"])
def test_hours_are_those_of_such_machines_on_demand(catalog, name: str) -> None:
    """Energy and money follow from them by hand."""
    found = run_on(catalog, blueprint(name), 4)
    rented = only(
        catalog,
        lambda offer: (
            offer.instance.instance_type == found.as_type
            and offer.purchase == "on_demand"
        ),
    )
    bill = present(find(rented, blueprint(name)).bill)
    hours = [line.quantity for line in bill.lines if line.kind == MACHINE_KIND]
    assert found.node_hours == sum(hours)
    center = center_of(4)
    [machine] = center.machines
    for years in YEARS:
        month_usd = center.month_usd(machine, Decimal(years))
        assert found.run_usd[years] == pytest.approx(
            found.node_hours * month_usd / 730
        )
    assert found.planned_usd == found.run_usd[4]
    # It draws all of its power while it works: 10 kW * 1.5 * 0.2 USD.
    assert found.energy_usd == found.node_hours * 3


def test_runs_a_month_pay_for_machines_when_the_sums_meet(catalog) -> None:
    found = run_on(catalog, blueprint("finetune-70b"), 4)
    center = center_of(4)
    month_usd = found.nodes * center.month_usd(center.machines[0], Decimal(4))
    runs = present(found.even_runs)
    assert runs * PLANNED_USD >= month_usd > (runs - 1) * PLANNED_USD
    assert runs * found.node_hours <= 730 * found.nodes


def test_it_takes_no_more_machines_than_there_are_if_they_do(catalog) -> None:
    """The states of 70 billion parameters need more than two; eight are only earlier."""
    text = blueprint("finetune-70b")
    assert run_on(catalog, text, 64).nodes > 4
    assert run_on(catalog, text, 4).nodes == 4
    assert run_on(catalog, text, 2).nodes > 2


def test_what_ends_is_compared_on_its_page(
    tonnage: Command, here: Path
) -> None:
    (here / "dc.yaml").write_text(CENTER.replace("NODES", "1"))
    (here / "s.yaml").write_text(
        blueprint("finetune-70b") + "where: {on_premises: dc.yaml}\n"
    )
    code, page, _ = tonnage("plan", "s.yaml", "--tco")
    assert code == 0
    assert "own machines, USD of a run over" in page
    assert "x own, and there is 1 " in page
    words = " ".join(page.split())
    assert "machine-hours, whose electricity alone is $" in words
    assert "such runs a month on" in words
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    assert "| machines of your own |" in page


@pytest.mark.parametrize(
    ("even_runs", "said"),
    [
        (1, "from the first such run a month on"),
        (2, "from 2 such runs a month on"),
        (None, None),
    ],
)
def test_one_run_is_told_in_the_singular(
    even_runs: int | None, said: str | None
) -> None:
    center = read_data_center(CENTER.replace("NODES", "1").encode(), "dc.yaml")
    run = OwnedRun(
        machine=center.machines[0],
        nodes=1,
        as_type="p5.48xlarge",
        node_hours=Decimal(10),
        run_usd={},
        planned_usd=Decimal(1),
        energy_usd=Decimal(1),
        even_runs=even_runs,
    )
    assert paid_runs_text(run) == said


def test_a_run_over_a_slow_network_takes_longer(catalog) -> None:
    """That of the same machine of a cloud counts where the file says nothing."""
    text = blueprint("finetune-70b")
    hours = {
        network: run_on(catalog, text, 4, network).node_hours
        for network in ("", ", network_gbps: 3200", ", network_gbps: 25")
    }
    unsaid, fast, slow = hours.values()
    assert unsaid == fast < slow
