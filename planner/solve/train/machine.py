"""The layouts of a job on machines of a kind, as their link and their fabric join them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.perf.train.fabric import PLAIN, network
from planner.perf.train.search import Layouts

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.perf.train.search import Laid
    from planner.solve.offer import Instance
    from planner.solve.train.need import TrainNeed

GB: Final = 1e9
WEIGHTS: Final = {
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}  # by the name of the units that they need
RACK: Final = 8  # accelerators beyond which a link joins several machines
PAIR: Final = 2
SHOWN: Final = 5  # layouts
ALONE: Final = (
    "none",
    "ici",
)  # no fast network between machines that can be built


def layouts(
    need: TrainNeed,
    instance: Instance,
    nodes: int,
    *,
    plain: bool = False,
    share: float = 1.0,
) -> list[Layouts]:
    """The layouts on so many machines in every precision, over a share of their fabric or none."""
    accelerators = nodes * instance.accelerators
    fabric = PLAIN if plain else instance.fabric
    gbps = instance.network_gbps if fabric == "none" else instance.fabric_gbps
    nominal = max(gbps, 1.0) / 8 / instance.accelerators * GB
    wire = share * network(fabric, nominal, nodes)
    chip = _linked(instance, accelerators)
    jobs = [
        replace(need.job(instance, precision, wire), chip=chip)
        for precision in need.precisions
        if WEIGHTS.get(precision, precision) in chip.precisions
    ]
    return [Layouts(job, accelerators, instance.accelerators) for job in jobs]


def connected(instance: Instance) -> bool:
    """Whether a job may span several machines of a kind."""
    return instance.fabric not in ALONE


def fastest(
    found: list[Layouts], keep: int = 1, limit: float = math.inf
) -> tuple[Laid, ...]:
    """The fastest layouts of all precisions that take at most `limit` seconds a step."""
    best: list[Laid] = []
    for one in sorted(found, key=lambda x: x.glance):
        if one.glance <= limit:
            best = sorted(
                [*best, *one.best(keep, limit)], key=lambda x: x.rank
            )[:keep]
            limit = best[-1].step.total if len(best) == keep else limit
    return tuple(best)


def shortest(found: list[Layouts], *, closely: bool) -> float:
    """Seconds that no layout in any precision undercuts; infinite when none fits.

    A closer look counts the network, and whether memory has room.
    """
    least = math.inf
    for one in sorted(found, key=lambda x: x.glance):
        if one.glance < least:
            least = min(least, one.least if closely else one.first)
    return least


def _linked(instance: Instance, accelerators: int) -> Accelerator:
    """The accelerator as its machine joins it: by a switch, in pairs, in a rack, or by the bus."""
    chip, kind = instance.chip, instance.scaleup
    domain = (
        min(chip.link_domain, accelerators)
        if chip.link_domain > RACK
        else instance.accelerators
    )
    if kind == "nvlink_pairs":
        domain = PAIR
    link = "none" if kind in ("pcie", "none") else chip.link
    return replace(
        chip, memory_gib=instance.node.memory_gib, link=link, link_domain=domain
    )
