"""Power and energy of machines, and the carbon of the grid of their region where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.facts.accelerator import Accelerator

ANYWHERE: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of a machine counts for its power: where it stands, its boards and what they do.

    `boards` is its accelerators, a share of one counting as that share.
    """

    provider: str
    region: str
    chip: Accelerator
    boards: float
    role: str


@dataclass(frozen=True, slots=True)
class Energy:
    """kW at work, kWh of the hours that are paid, kg CO2e where the grid is known."""

    kw: float
    kwh: float
    kg_co2e: float | None


@cache
def _facts() -> dict[tuple[str, str, str], float]:
    columns: dict[str, Any] = {
        "kind": table.one_of("grid", "load", "node", "pue"),
        "provider": table.text,
        "region": table.free,
        "value": table.real(0, 10_000),
        "unit": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.cost")
        .joinpath("data", "energy.csv")
        .read_text(encoding="utf-8")
    )
    found = table.keyed(
        table.rows(text, "energy.csv", columns), "kind", "provider", "region"
    )
    return {
        (kind, cloud, name): row["value"]
        for (kind, cloud, name), row in found.items()
    }


def energy(one: Machine, nodes: int, node_hours: Decimal) -> Energy | None:
    """Return the energy of machines, or nothing when the power of their accelerator is not known.

    kW = machines * boards * board power * (machine / boards) * load * PUE.
    """
    facts, place = _facts(), (one.provider, one.region)
    if one.chip.tdp_w is None:
        return None
    whole = facts.get(
        ("node", "any", one.chip.architecture), facts["node", "any", ""]
    )
    pue = facts.get(("pue", *place), facts["pue", one.provider, ANYWHERE])
    boards = one.boards * one.chip.tdp_w / 1000
    each = boards * whole * facts["load", "any", one.role] * pue
    kwh = each * float(node_hours)
    grid = facts.get(("grid", *place))
    return Energy(
        each * nodes, kwh, None if grid is None else kwh * grid / 1000
    )
