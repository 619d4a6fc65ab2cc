"""The layouts of a job on machines of a kind, as their link and their fabric join them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.perf.training.fabric import ORDINARY_NETWORK, network_bytes_s
from planner.perf.training.layout_search import LayoutSearch

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.market.offer import Instance
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.training.requirement import TrainingRequirement

BYTES_PER_GB: Final = 1e9
UNITS_BY_PRECISION: Final = {
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}  # by the name of the units that they need
NODE_LINK_DOMAIN: Final = (
    8  # accelerators beyond which a link joins several machines
)
PAIR_DOMAIN: Final = 2
SHOWN_LAYOUTS: Final = 5  # layouts
ISOLATED_FABRICS: Final = (
    "none",
    "ici",
)  # no fast network between machines that can be built


def layout_searches(
    requirement: TrainingRequirement,
    instance: Instance,
    nodes: int,
    *,
    ordinary_network: bool = False,
    fabric_share: float = 1.0,
) -> list[LayoutSearch]:
    """The layouts on so many machines in every precision, over a share of their fabric or none."""
    accelerator_count = nodes * instance.accelerators
    fabric_kind = ORDINARY_NETWORK if ordinary_network else instance.fabric
    bandwidth_gbps = (
        instance.network_gbps if fabric_kind == "none" else instance.fabric_gbps
    )
    nominal_bytes_per_s = (
        max(bandwidth_gbps, 1.0) / 8 / instance.accelerators * BYTES_PER_GB
    )
    wire_bytes_per_s = fabric_share * network_bytes_s(
        fabric_kind, nominal_bytes_per_s, nodes
    )
    accelerator = _with_link(instance, accelerator_count)
    training_jobs = [
        replace(
            requirement.build_job(instance, precision, wire_bytes_per_s),
            chip=accelerator,
        )
        for precision in requirement.precisions
        if UNITS_BY_PRECISION.get(precision, precision)
        in accelerator.precisions
    ]
    return [
        LayoutSearch(training_job, accelerator_count, instance.accelerators)
        for training_job in training_jobs
    ]


def has_fabric(instance: Instance) -> bool:
    """Whether a job may span several machines of a kind."""
    return instance.fabric not in ISOLATED_FABRICS


def fastest_layouts(
    search_spaces: list[LayoutSearch],
    layout_limit: int = 1,
    step_limit_s: float = math.inf,
) -> tuple[TimedLayout, ...]:
    """The fastest layouts of all precisions that take at most `step_limit_s` seconds a step."""
    timed_layouts: list[TimedLayout] = []
    for search_space in sorted(
        search_spaces, key=lambda candidate: candidate.bound_compute
    ):
        if search_space.bound_compute <= step_limit_s:
            timed_layouts = sorted(
                [
                    *timed_layouts,
                    *search_space.fastest(layout_limit, step_limit_s),
                ],
                key=lambda candidate: candidate.sort_key,
            )[:layout_limit]
            step_limit_s = (
                timed_layouts[-1].step_time.total
                if len(timed_layouts) == layout_limit
                else step_limit_s
            )
    return tuple(timed_layouts)


def step_bound_s(search_spaces: list[LayoutSearch], *, refined: bool) -> float:
    """Seconds that no layout in any precision undercuts; infinite when none fits.

    A closer look counts the network, and whether memory has room.
    """
    bound_s = math.inf
    for search_space in sorted(
        search_spaces, key=lambda candidate: candidate.bound_compute
    ):
        if search_space.bound_compute < bound_s:
            bound_s = min(
                bound_s,
                search_space.bound
                if refined
                else search_space.bound_any_network,
            )
    return bound_s


def _with_link(instance: Instance, accelerator_count: int) -> Accelerator:
    """The accelerator as its machine joins it: by a switch, in pairs, in a rack, or by the bus."""
    accelerator = instance.chip
    scaleup_kind = instance.scaleup
    link_domain = (
        min(accelerator.link_domain, accelerator_count)
        if accelerator.link_domain > NODE_LINK_DOMAIN
        else instance.accelerators
    )
    if scaleup_kind == "nvlink_pairs":
        link_domain = PAIR_DOMAIN
    link_kind = "none" if scaleup_kind in ("pcie", "none") else accelerator.link
    return replace(
        accelerator,
        memory_gib=instance.node.memory_gib,
        link=link_kind,
        link_domain=link_domain,
    )
