"""Power and energy of machines, and the carbon of the grid of their region where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.solve.offer import Offer

ANYWHERE: Final = "*"


@dataclass(frozen=True, slots=True)
class Energy:
    """kW at work, kWh of the hours that are paid, kg CO2e where the grid is known."""

    kw: float
    kwh: float
    kg_co2e: float | None


@cache
def _facts() -> dict[tuple[str, str, str], float]:
    columns: dict[str, Any] = {
        "kind": table.one_of("grid", "load", "node", "pue"), "provider": table.text,
        "region": table.free, "value": table.real(0, 10_000), "unit": table.text, **table.SOURCED,
    }  # fmt: skip
    text = files("planner.cost").joinpath("data", "energy.csv").read_text(encoding="utf-8")
    found = table.keyed(table.rows(text, "energy.csv", columns), "kind", "provider", "region")
    return {(kind, cloud, name): row["value"] for (kind, cloud, name), row in found.items()}


def energy(offer: Offer, nodes: int, node_hours: Decimal, role: str) -> Energy | None:
    """Return the energy of machines, or nothing when the power of their accelerator is not known.

    kW = machines * accelerators * board power * (machine / boards) * load * PUE; a share of an
    accelerator counts as that share.
    """
    facts, kind = _facts(), offer.instance
    if kind.chip.tdp_w is None:
        return None
    whole = facts.get(("node", "any", kind.chip.architecture), facts["node", "any", ""])
    pue = facts.get(("pue", offer.provider, offer.region), facts["pue", offer.provider, ANYWHERE])
    boards = kind.accelerators * kind.fraction * kind.chip.tdp_w / 1000
    each = boards * whole * facts["load", "any", role] * pue
    kwh = each * float(node_hours)
    grid = facts.get(("grid", offer.provider, offer.region))
    return Energy(each * nodes, kwh, None if grid is None else kwh * grid / 1000)
