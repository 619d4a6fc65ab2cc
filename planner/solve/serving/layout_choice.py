"""The layouts of a model on nodes: how many accelerators, in which formats, in order of ties."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from planner.facts.accelerator import UNQUANTIZED
from planner.facts.serving_engine import has_gap
from planner.perf.common.layout import Node, ReplicaLayout, can_shard
from planner.perf.serving.cache_format import (
    default_cache,
    has_cache_format,
)
from planner.perf.serving.weight_format import served_formats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.llm import Llm
    from planner.solve.serving.requirement import ServingRequirement


def serving_layouts(
    llm: Llm, requirement: ServingRequirement, node: Node, nodes_per_group: int
) -> Iterator[ReplicaLayout]:
    """Yield the layouts of a model over `nodes_per_group` nodes, in order of ties.

    A requirement that names a layout has that one alone, where nodes can have it.
    """
    for layout in _possible_layouts(llm, requirement, node, nodes_per_group):
        if requirement.layout in (None, layout):
            yield layout


def _possible_layouts(
    llm: Llm, requirement: ServingRequirement, node: Node, nodes_per_group: int
) -> Iterator[ReplicaLayout]:
    """Yield what `serving_layouts` chooses from.

    One node: all tp * pp up to its accelerators, each number of them with the largest tp: no
    measurement shows pipelines within a node.
    Several nodes: the largest tp of a node, pp over all other accelerators.
    MoE models also get ep = tp.
    Order: precision as allowed, fewer accelerators, fewer pipeline stages, whole experts before
    slices of them, cache as allowed.
    """
    for precision in served_formats(
        requirement.load.engine, node.accelerator, requirement.precisions
    ):
        for tp, pp in _tp_pp_pairs(llm, node, nodes_per_group):
            # Engines guess within one stage.
            if pp > 1 and requirement.has_draft:
                continue
            if wastes_accelerators(requirement.load.engine, node, tp * pp):
                continue
            for ep in _expert_sizes(
                llm, requirement.load.engine, precision, tp
            ):
                for kv_precision in cache_precisions(
                    llm, requirement, node, precision
                ):
                    yield ReplicaLayout(
                        precision=precision,
                        kv_precision=kv_precision,
                        tp=tp,
                        pp=pp,
                        ep=ep,
                    )


def cache_precisions(
    llm: Llm, requirement: ServingRequirement, node: Node, precision: str
) -> tuple[str, ...]:
    """Return the formats of the KV cache beside weights in a precision, in order of preference.

    The first that a requirement allows is always there. Others need kernels of the engine for
    the accelerator, and weights that are quantized: who asks for weights in 16 bit means it of
    the cache too.
    """
    first, *others = requirement.kv_precisions
    if precision in UNQUANTIZED:
        others = []
    return (
        default_cache(requirement.load.engine, precision, first),
        *(
            other
            for other in others
            if has_cache_format(
                requirement.load.engine, llm, node.accelerator, other
            )
        ),
    )


def _expert_sizes(
    llm: Llm, engine: str, precision: str, tp: int
) -> tuple[int, ...]:
    """Return over how many accelerators experts may be divided; 1 slices each, and is last."""
    # Whole experts per accelerator: tp divides their number.
    if not llm.experts or tp == 1:
        return (1,)
    whole = (tp,) if llm.experts % tp == 0 else ()
    if precision == "fp8" and has_gap(engine, "sliced-experts"):
        return whole
    return (*whole, 1)


def wastes_accelerators(
    engine: str, node: Node, accelerators_per_replica: int
) -> bool:
    """Whether a machine has room for a second replica, which the engine does not start."""
    return (
        has_gap(engine, "replicas")
        and node.accelerator_count // accelerators_per_replica > 1
    )


def _tp_pp_pairs(
    llm: Llm, node: Node, nodes_per_group: int
) -> list[tuple[int, int]]:
    tp_degrees = [
        tp_degree
        for tp_degree in range(1, node.accelerator_count + 1)
        if node.accelerator_count % tp_degree == 0 and can_shard(llm, tp_degree)
    ]
    # tp all-reduces in every layer, so it stays within a node.
    if nodes_per_group > 1:
        return [
            (tp_degree, node.accelerator_count // tp_degree * nodes_per_group)
            for tp_degree in tp_degrees
            if tp_degree == max(tp_degrees)
        ]
    widest_tp: dict[int, int] = {}
    for tp, pp in itertools.product(tp_degrees, (1, 2, 4, 8)):
        if tp * pp <= node.accelerator_count:
            widest_tp[tp * pp] = max(tp, widest_tp.get(tp * pp, 0))
    return [
        (tp, accelerators // tp)
        # Order of ties: accelerators of a replica.
        for accelerators, tp in sorted(widest_tp.items())
    ]
