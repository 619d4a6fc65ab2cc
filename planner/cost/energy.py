"""Power and energy of machines, and the carbon of the grid where it is known."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.facts.accelerator import Accelerator

ANY_REGION: Final = "*"


class PoweredMachine(Struct, frozen=True, kw_only=True):
    """The properties of a machine that set its power.

    `provider`, `region`  location, for PUE and grid
    `chip`  accelerator with its board power (TDP), W
    `board_count`  accelerators; a slice counts as its fraction
    `role`  serve, batch, train or workspace, for the mean load
    """

    provider: str
    region: str
    chip: Accelerator
    board_count: float
    role: str


class Energy(Struct, frozen=True):
    """Power and energy of machines over the period of the bill.

    `kw`  power of all nodes at work, kW
    `kwh`  energy of the paid node-hours, kWh
    `kg_co2e`  carbon of that energy, kg CO2e; None when the grid is not known
    """

    kw: float
    kwh: float
    kg_co2e: float | None


@cache
def _energy_facts() -> dict[tuple[str, str, str], float]:
    column_types: table.Columns = {
        "kind": table.one_of("grid", "load", "node", "pue"),
        "provider": table.nonempty_text,
        "region": table.any_text,
        "value": table.real_between(0, 10_000),
        "unit": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.cost", "energy.csv", column_types),
        "kind",
        "provider",
        "region",
    )
    return {
        (fact_kind, cloud_name, region_name): fact_row["value"]
        for (fact_kind, cloud_name, region_name), fact_row in keyed_rows.items()
    }


def machine_energy(
    machine: PoweredMachine, node_count: int, node_hours: Decimal
) -> Energy | None:
    """Return the energy of machines, None when the board power or the PUE is not known.

    node kW = boards * TDP / 1000 * (node / boards) * load * PUE
    kW      = nodes * node kW
    kWh     = node-hours * node kW
    kg CO2e = kWh * grid g/kWh / 1000
    The factors are rows of data/energy.csv.
    """
    energy_facts = _energy_facts()
    location = (machine.provider, machine.region)
    if machine.chip.tdp_w is None:
        return None
    # Other architectures take the mean of the known nodes.
    node_factor = energy_facts.get(
        ("node", "any", machine.chip.architecture),
        energy_facts["node", "any", ""],
    )
    # PUE of the region, else that of the provider.
    pue_factor = energy_facts.get(
        ("pue", *location),
        energy_facts.get(("pue", machine.provider, ANY_REGION)),
    )
    if pue_factor is None:
        return None
    board_kw = machine.board_count * machine.chip.tdp_w / 1000
    node_kw = (
        board_kw
        # Power of the whole node / power of its boards.
        * node_factor
        # Mean load as a share of full power.
        * energy_facts["load", "any", machine.role]
        # Power of the data center / power of its machines.
        * pue_factor
    )
    energy_kwh = node_kw * float(node_hours)
    grid_g_per_kwh = energy_facts.get(("grid", *location))
    return Energy(
        node_kw * node_count,
        energy_kwh,
        # g/kWh to kg; regions without a row have no known grid.
        None if grid_g_per_kwh is None else energy_kwh * grid_g_per_kwh / 1000,
    )


def sum_energy(parts: Sequence[Energy]) -> Energy:
    """Return the energy of all pools together.

    Carbon is None when it is not known for one of them.
    """
    carbon_kg = [part.kg_co2e for part in parts]
    return Energy(
        sum(part.kw for part in parts),
        sum(part.kwh for part in parts),
        None
        # A sum without one pool would understate the carbon.
        if None in carbon_kg
        else sum(kilograms for kilograms in carbon_kg if kilograms is not None),
    )
