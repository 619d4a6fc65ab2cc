"""Machines of one's own: money against a ledger that is written month by month."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.market.on_premises import DataCenter, read_data_center
from planner.solve.settings import SolveSettings
from planner.workload.ownership import YEARS, own_instead
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, chat, find, only, solve, spec_of
from tests.oracles.standing import WEEK_MINUTES, standing_nodes
from tests.planner.cli.conftest import Command

FILE = """\
machines: [{name: l4-1, accelerator: l4, accelerators_per_node: 1, nodes: NODES,
            price: 9000, power: 0.6kW}]
years: 4
electricity: 0.2
pue: 1.5
space: 50
staff: 100
utilization: 80%
residual: 10%
cost_of_capital: 8%
"""
SPEC = chat(traffic="peak_rps: 20\n  profile: diurnal")


def center_of(nodes: int = 4, text: str = FILE) -> DataCenter:
    return read_data_center(
        text.replace("NODES", str(nodes)).encode(), "dc.yaml"
    )


def owned(catalog: Any, center: DataCenter, cloud_usd: str = "2000") -> Any:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
    )
    [found] = own_instead(spec_of(SPEC), settings, center, Decimal(cloud_usd))
    return found


def test_a_month_of_running_is_energy_space_and_a_share_of_the_people() -> None:
    center = center_of(4)
    energy = Decimal("0.6") * Decimal("1.5") * 730 * Decimal("0.8")
    expected = energy * Decimal("0.2") + 50 + Decimal(100) / 4
    assert center.running_usd(center.machines[0]) == expected


@given(st.integers(1, 10), st.integers(0, 20), st.integers(0, 60))
def test_the_annuity_pays_the_price_back_with_its_interest(
    years: int, capital_percent: int, residual_percent: int
) -> None:
    """A loan of the price, paid by the month, leaves what the machine is worth at the end."""
    text = FILE.replace(
        "cost_of_capital: 8%", f"cost_of_capital: {capital_percent}%"
    ).replace("residual: 10%", f"residual: {residual_percent}%")
    center = center_of(4, text)
    machine = center.machines[0]
    rate = (1 + Decimal(capital_percent) / 100) ** (Decimal(1) / 12) - 1
    debt = machine.price
    for _ in range(12 * years):
        debt += debt * rate - center.capital_usd(machine, Decimal(years))
    left = machine.price * residual_percent / 100
    assert abs(debt - left) < Decimal("0.0001")


def test_the_fleet_is_that_of_the_same_machines_on_demand(catalog) -> None:
    center = center_of(50)
    found = owned(catalog, center)
    same = only(
        catalog,
        lambda offer: (
            offer.instance.instance_type == found.as_type
            and offer.purchase == "on_demand"
        ),
    )
    solution = find(same, SPEC, keep=0)
    [pool] = solution.pools
    assert found.nodes == pool.nodes
    machine = center.machines[0]
    for years in YEARS:
        assert found.month_usd[years] == found.nodes * (
            center.running_usd(machine)
            + center.capital_usd(machine, Decimal(years))
        )
    # The file says four years.
    assert found.planned_usd == found.month_usd[4]
    # With enough of them nothing is rented on demand.
    assert found.burst_usd == found.month_usd[4]
    on_demand_usd = pool.nodes * pool.usd_hour * 730
    assert found.even_hours == found.month_usd[4] / on_demand_usd


def test_what_is_above_the_own_machines_is_rented_by_the_hour(catalog) -> None:
    found = owned(catalog, center_of(1))
    assert found.nodes > 1
    center = center_of(1)
    solution = solve(
        only(
            catalog,
            lambda offer: (
                offer.instance.instance_type == found.as_type
                and offer.purchase == "on_demand"
            ),
        ),
        SPEC,
        keep=0,
    )
    [pool] = solution.pools
    above = sum(nodes - 1 for nodes in standing_nodes(solution, pool))
    expected = center.month_usd(center.machines[0], Decimal(4)) + (
        Decimal(above) * 730 / WEEK_MINUTES * pool.usd_hour
    )
    assert abs(found.burst_usd - expected) < Decimal("0.01")


@pytest.mark.parametrize("cloud_usd", ["600", "2000", "9000"])
def test_buying_has_paid_when_the_sums_meet(catalog, cloud_usd: str) -> None:
    center = center_of(50)
    found = owned(catalog, center, cloud_usd)
    spent = found.nodes * center.machines[0].price
    rented = Decimal(0)
    running = found.nodes * center.running_usd(center.machines[0])
    ledger = None
    for month in range(1, 121):
        spent += running
        rented += Decimal(cloud_usd)
        if spent <= rented:
            ledger = month
            break
    assert found.paid_months == ledger


def test_what_is_left_out_is_assumed_and_said() -> None:
    kept = [
        line
        for line in FILE.splitlines()
        if not line.startswith(("pue", "residual", "years"))
    ]
    center = center_of(4, "\n".join(kept))
    assert [name.partition(" ")[0] for name, _ in center.assumed] == [
        "years",
        "pue",
        "residual",
    ]
    assert center.pue == Decimal("1.58")


def test_machines_alone_are_enough() -> None:
    """Rooms are let by the kW, and one person cares for all machines."""
    machines, _, _ = FILE.partition("years:")
    center = center_of(4, machines)
    assert len(center.assumed) == 8
    energy = Decimal("0.6") * Decimal("1.58") * 730
    assert center.running_usd(center.machines[0]) == (
        energy * Decimal("0.0895")
        + Decimal("0.6") * Decimal("184.06")
        + Decimal("7367.5") / 4
    )


def test_what_is_assumed_has_its_unit() -> None:
    kept = [
        line for line in FILE.splitlines() if not line.startswith("electricity")
    ]
    [(said, source)] = center_of(4, "\n".join(kept)).assumed
    assert said == "electricity 0.0895 USD/kWh"
    assert "EIA" in source


def test_a_plan_is_compared_on_its_page(tonnage: Command, here: Path) -> None:
    (here / "dc.yaml").write_text(FILE.replace("NODES", "1"))
    (here / "s.yaml").write_text(
        chat(
            traffic="peak_rps: 20\n  profile: diurnal",
            extra="where: {on_premises: dc.yaml}",
        )
    )
    code, page, _ = tonnage("plan", "s.yaml", "--tco")
    assert code == 0
    assert "own machines, USD a month over" in page
    assert "x l4-1, and there is 1 " in page
    assert "x l4-1, sized as" in page
    assert "on demand above" in page
    (here / "n.yaml").write_text(SPEC)
    code, _, told = tonnage("plan", "n.yaml", "--tco")
    assert (code, "where.on_premises" in told) == (2, True)
    (here / "dc.yaml").write_text(
        FILE.replace("NODES", "1").replace("per_node: 1", "per_node: 7")
    )
    code, _, told = tonnage("plan", "s.yaml", "--tco")
    assert (code, "dc.yaml:1:" in told) == (2, True)


def test_a_machine_of_ones_own_is_explained_by_its_name(
    tonnage: Command, here: Path
) -> None:
    """With the same figures as beside the plan; people care for those of other kinds too."""
    machines, rest = FILE.replace("NODES", "4").split("]\n", 1)
    other = machines.partition("[")[2].replace("l4", "a10g")
    (here / "dc.yaml").write_text(f"{machines},\n  {other}]\n{rest}")
    (here / "s.yaml").write_text(
        chat(
            traffic="peak_rps: 20\n  profile: diurnal",
            extra="where: {on_premises: dc.yaml}",
        )
    )
    beside = tonnage("plan", "s.yaml", "--tco", "-f", "markdown")[1]
    code, page, _ = tonnage("explain", "s.yaml", "l4-1", "-f", "markdown")
    assert code == 0
    [line] = [row for row in page.splitlines() if re.match(r"\| \d+ x l4", row)]
    assert line in beside
    assert "a10g-1" in beside
    assert "a10g-1" not in page
    code, _, told = tonnage("explain", "s.yaml", "l4-2")
    assert (code, "no machine type matches 'l4-2'" in told) == (6, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FILE.replace("0.6kW", "0.6"), "cannot be read"),
        (FILE.replace("l4,", "l44,"), "l44"),
        (FILE.replace("price: 9000, ", ""), "price is missing"),
    ],
)
def test_a_wrong_data_center_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        center_of(1, text)


def test_what_is_not_paid_in_its_years_is_not_said_to_be(
    tonnage: Command, here: Path
) -> None:
    """The longer machines are used, the later they may be paid."""
    spec = (ROOT / "blueprints/agent-gpt-oss.yaml").read_text()
    (here / "s.yaml").write_text(f"{spec}where: {{on_premises: dc.yaml}}\n")
    center = (ROOT / "blueprints/on-premises/h100.yaml").read_text()
    kept = "\n".join(
        line for line in center.splitlines() if not line.startswith("years:")
    )
    pages = []
    for years in (1, 5):
        (here / "dc.yaml").write_text(f"{kept}\nyears: {years}\n")
        pages.append(tonnage("plan", "s.yaml", "--tco")[1])
    assert "not paid in its years" in pages[0]
    assert "paid after month" in pages[1]
