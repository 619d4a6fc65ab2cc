"""Layout searches of a job on a machine type, with its links and its fabric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.enumeration import enumerate_layouts
from planner.perf.training.fabric import (
    ORDINARY_NETWORK,
    network_bytes_s,
    network_latency_s,
)
from planner.perf.training.layout_search import LayoutSearch, TimedLayout
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work
from planner.units import BYTES_PER_GB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.facts.accelerator import Accelerator
    from planner.market.offer import Instance
    from planner.perf.training.job import ParallelLayout, Recompute
    from planner.solve.training.requirement import TrainingRequirement

UNITS_BY_PRECISION: Final = {
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}  # by the name of the units that they need
# Accelerators beyond which a link joins several machines.
NODE_LINK_DOMAIN: Final = 8
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
    """Return a layout search for each precision that the accelerator supports.

    `ordinary_network` replaces the fabric by TCP over the ordinary network. `fabric_share`
    scales the bandwidth between machines.
    """
    accelerator_count = nodes * instance.accelerators
    fabric_kind = ORDINARY_NETWORK if ordinary_network else instance.fabric
    # Gb/s of a machine, in one direction.
    bandwidth_gbps = (
        instance.network_gbps if fabric_kind == "none" else instance.fabric_gbps
    )
    nominal_bytes_per_s = (
        # Bytes/s of each accelerator; 1 Gb/s stands for an unknown network.
        max(bandwidth_gbps, 1.0) / 8 / instance.accelerators * BYTES_PER_GB
    )
    # Collectives reach a share of it, which falls with the machine count.
    wire_bytes_per_s = fabric_share * network_bytes_s(
        fabric_kind, nominal_bytes_per_s, nodes
    )
    accelerator = _with_link(instance, accelerator_count)
    training_jobs = [
        requirement.build_job(instance, precision, wire_bytes_per_s)._replace(
            chip=accelerator,
            network_latency_s=network_latency_s(fabric_kind),
        )
        for precision in requirement.precisions
        if _multiplies(accelerator, precision)
        and _multiplies(accelerator, requirement.expert_precision or precision)
    ]
    return [
        LayoutSearch(
            training_job,
            accelerator_count,
            instance.accelerators,
            requirement.confidence,
        )
        for training_job in training_jobs
    ]


def _multiplies(accelerator: Accelerator, precision: str) -> bool:
    """Whether an accelerator has units for products in a precision."""
    return (
        UNITS_BY_PRECISION.get(precision, precision) in accelerator.precisions
    )


def has_fabric(instance: Instance) -> bool:
    """Whether a job may span several machines of this type."""
    return instance.fabric not in ISOLATED_FABRICS


def fastest_layouts(
    search_spaces: list[LayoutSearch],
    layout_limit: int = 1,
    step_limit_s: float = math.inf,
) -> tuple[TimedLayout, ...]:
    """Return the fastest layouts over all precisions, in the order of their step time.

    Only layouts with a step time of at most `step_limit_s` seconds count. A search is skipped
    when its lower bound exceeds the slowest of `layout_limit` layouts.
    """
    fastest: list[TimedLayout] = []
    # The precision with the lowest bound first, so later ones are skipped.
    for search_space in sorted(
        search_spaces, key=lambda candidate: candidate.bound_compute
    ):
        if search_space.bound_compute <= step_limit_s:
            fastest = sorted(
                [
                    *fastest,
                    *search_space.fastest(layout_limit, step_limit_s),
                ],
                key=lambda candidate: candidate.sort_key,
            )[:layout_limit]
            step_limit_s = (
                # Another layout must beat the slowest of a full list.
                fastest[-1].step_time.total
                if len(fastest) == layout_limit
                else step_limit_s
            )
    return tuple(fastest)


def possible_layouts(
    search_space: LayoutSearch, *, shards_pipelines: bool = False
) -> list[ParallelLayout]:
    """Return the layouts over the accelerators of a search, whatever the memory.

    With `shards_pipelines` a pipeline may have each sharding of the framework, which no search
    looks at.
    """
    return list(
        enumerate_layouts(
            search_space.job,
            search_space.accelerators,
            search_space.node_accelerators,
            shards_pipelines=shards_pipelines,
        )
    )


def timed_layouts(
    search_space: LayoutSearch,
    layouts: Iterable[ParallelLayout],
    recompute_mode: Recompute | None = None,
) -> Iterator[TimedLayout]:
    """Yield the layouts of some that fit in memory, with their step times.

    Each has the least recomputation with which it fits, or the given one.
    """
    for parallel_layout in layouts:
        fitted_layout = (
            # A given mode is timed as it is, and dropped when it does not fit.
            parallel_layout._replace(recompute=recompute_mode)
            if recompute_mode
            else search_space.candidates.fit_memory(parallel_layout)
        )
        if (
            fitted_layout is not None
            # With the same confidence as planned layouts.
            and search_space.candidates.fits(fitted_layout)
        ):
            yield _time_layout(search_space, fitted_layout)


def _time_layout(
    search_space: LayoutSearch, parallel_layout: ParallelLayout
) -> TimedLayout:
    training_job = search_space.job.with_layout(parallel_layout)
    return TimedLayout(
        training_job,
        step_time(
            rank_work(training_job),
            # Coefficients for the precision, kernels and hardware.
            training_coefficients(training_job),
        ),
        search_space.candidates.layout_peak_gib(parallel_layout),
    )


def step_bound_s(search_spaces: list[LayoutSearch], *, refined: bool) -> float:
    """Lower bound of the step time over all layouts and precisions, seconds.

    Proves `bound <= step time` for every layout; infinite when there is none. `refined` also
    counts the network between machines and requires that a layout fits in memory.
    """
    bound_s = math.inf
    for search_space in sorted(
        search_spaces, key=lambda candidate: candidate.bound_compute
    ):
        # The cheap bound of compute first: it is below the others.
        if search_space.bound_compute < bound_s:
            bound_s = min(
                bound_s,
                search_space.bound_fastest
                if refined
                else search_space.bound_any_network,
            )
    return bound_s


def _with_link(instance: Instance, accelerator_count: int) -> Accelerator:
    """Return the accelerator with the memory and the scale-up link of its machine.

    `link_domain` is the number of accelerators of the job that the link joins.
    """
    accelerator = instance.chip
    scaleup_kind = instance.scaleup
    link_domain = (
        min(accelerator.link_domain, accelerator_count)
        # Rack-scale links span machines, up to the whole job.
        if accelerator.link_domain > NODE_LINK_DOMAIN
        else instance.accelerators
    )
    if scaleup_kind == "nvlink_pairs":
        link_domain = PAIR_DOMAIN
    # Without a scale-up link accelerators communicate over PCIe.
    link_kind = "none" if scaleup_kind in ("pcie", "none") else accelerator.link
    return replace(
        accelerator,
        memory_gib=instance.node.memory_gib,
        link=link_kind,
        link_domain=link_domain,
    )
