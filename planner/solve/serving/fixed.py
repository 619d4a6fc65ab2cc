"""Predicts one given serving fleet under a load, without a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cost.weekly_load import NO_SPARES
from planner.errors import InfeasibleError, Problem
from planner.facts.accelerator import chip_cores
from planner.facts.serving_engine import gap_reasons, spoken_name
from planner.perf.common import memory
from planner.perf.common.layout import ReplicaLayout, can_shard
from planner.perf.serving.cache_format import default_cache
from planner.perf.serving.replica import Replica
from planner.perf.serving.weight_format import (
    has_weight_format,
    served_formats,
)
from planner.solve.serving.evidence import evidence_warnings
from planner.solve.serving.layout_choice import wastes_accelerators
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.sizing import (
    FleetSizing,
    ReplicaGroup,
    predict_service,
    saturation_rps,
)
from planner.units import BYTES_PER_GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.llm import Llm
    from planner.market.offer import Instance
    from planner.perf.common.layout import Node
    from planner.solve.cause import Cause
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.solution import BandedPrediction


class FixedFleet(Struct, frozen=True, kw_only=True):
    """A given fleet and its predicted metrics.

    `nodes`  machines of type `instance`
    `replicas_per_node`  replicas on each machine
    `max_batch`  sequences that one replica runs at once
    `max_rps`  requests a second of the whole fleet at saturation
    `predicted`  metrics with their 90 % bands, by name
    `notes`  on what they rest, where nothing of the accelerator is in the fit
    """

    instance: Instance
    nodes: int
    replicas_per_node: int
    layout: ReplicaLayout
    max_batch: int
    max_rps: float
    predicted: dict[str, BandedPrediction]
    notes: tuple[Cause, ...] = ()


def predict_fixed(
    requirement: ServingRequirement,
    instance: Instance,
    nodes: int,
    layout_options: Mapping[str, str],
) -> FixedFleet:
    """Predict a given fleet; raise InfeasibleError when it cannot run or keep up.

    `layout_options` may set precision, kv_precision, tp, pp and ep.
    tp counts the cores of chips that have several where the machine has fewer chips.
    Defaults: first allowed precision that the accelerator runs, tp = all accelerators of the
    machine, pp = ep = 1.
    """
    node = instance.node
    layout = _fixed_layout(requirement, node, layout_options)
    _check_layout(requirement.llm, layout, node)
    _check_engine(requirement, layout, node)
    replica = Replica(requirement.llm, layout, node, requirement.load)
    _check_memory(replica, node)
    # Accelerators beyond a multiple of tp * pp stay unused.
    replicas_per_node = node.accelerator_count // layout.accelerators
    return FixedFleet(
        instance=instance,
        nodes=nodes,
        replicas_per_node=replicas_per_node,
        layout=layout,
        max_batch=replica.max_batch,
        # Completion rate at the largest batch, over all replicas.
        max_rps=saturation_rps(replica) * replicas_per_node * nodes,
        predicted=predict_serving(
            requirement,
            _fixed_sizing(requirement, replica, replicas_per_node, nodes),
        ),
        notes=tuple(
            warning.reason for warning in evidence_warnings(node.accelerator)
        ),
    )


def _fixed_layout(
    requirement: ServingRequirement,
    node: Node,
    layout_options: Mapping[str, str],
) -> ReplicaLayout:
    served_precisions = served_formats(
        requirement.load.engine, node.accelerator, requirement.precisions
    )
    # Where none is served, the first one is refused by its name.
    precision = layout_options.get(
        "precision", (served_precisions or requirement.precisions)[0]
    )
    tp = int(layout_options.get("tp", node.accelerator_count))
    pp = int(layout_options.get("pp", 1))
    return ReplicaLayout(
        precision=precision,
        kv_precision=layout_options.get(
            "kv_precision",
            default_cache(
                requirement.load.engine, precision, requirement.kv_precisions[0]
            ),
        ),
        tp=_tp_in_chips(tp, pp, node),
        pp=pp,
        ep=int(layout_options.get("ep", 1)),
    )


def _tp_in_chips(tp: int, pp: int, node: Node) -> int:
    """Return over how many chips tp cuts a layer.

    Where a machine has fewer of them, it counts their cores, as engines of such chips do.
    """
    if tp * pp <= node.accelerator_count:
        return tp
    return math.ceil(tp / chip_cores(node.accelerator))


def _check_layout(llm: Llm, layout: ReplicaLayout, node: Node) -> None:
    """Raise InfeasibleError when a model cannot be divided so on a machine."""
    # Experts are divided within the tp group, so ep must divide tp.
    if layout.ep > 1 and (not llm.experts or layout.tp % layout.ep):
        message = (
            f"ep {layout.ep} does not suit {llm.model} over tp {layout.tp}"
        )
        raise _infeasible_error(
            message, "leave ep out, or choose one that divides tp"
        )
    if (
        # A replica stays on one node, and a stage has at least one layer.
        layout.tp * layout.pp > node.accelerator_count
        or layout.pp > llm.layers
        or not can_shard(llm, layout.tp)
    ):
        message = (
            f"{llm.model} cannot be cut into tp {layout.tp}, pp {layout.pp} on "
            f"{node.accelerator_count}"
        )
        raise _infeasible_error(
            message, "choose a tp that divides its heads and the machine"
        )
    if not node.accelerator.supports(layout.precision):
        message = (
            f"{node.accelerator.accelerator} does not run {layout.precision}"
        )
        raise _infeasible_error(message, "choose another precision")


def _check_engine(
    requirement: ServingRequirement, layout: ReplicaLayout, node: Node
) -> None:
    """Raise InfeasibleError when the engine does not serve a layout or a format on a machine."""
    engine, accelerator = requirement.load.engine, node.accelerator
    if wastes_accelerators(engine, node, layout.accelerators):
        message = (
            f"{spoken_name(engine)}: {gap_reasons(engine)['replicas']}, and "
            f"{node.accelerator_count} accelerators have room for more of "
            f"{layout.accelerators}"
        )
        raise _infeasible_error(
            message,
            "choose tp and pp over all of them, or serving.engine: vllm",
        )
    if not has_weight_format(engine, accelerator, layout.precision):
        message = (
            f"nothing shows that {spoken_name(engine)} serves {layout.precision} on "
            f"{accelerator.accelerator}"
        )
        raise _infeasible_error(
            message, "choose another precision, or serving.engine: vllm"
        )


def _check_memory(replica: Replica, node: Node) -> None:
    """Raise InfeasibleError when a replica has no room for a request."""
    # 0: the weights and one sequence of the context do not fit.
    if not replica.max_batch:
        weights_gib = (
            memory.weight_bytes(replica.llm, replica.layout) / BYTES_PER_GIB
        )
        message = (
            f"weights take {weights_gib:,.1f} of {node.memory_gib:,.1f} GiB: no "
            "room for a request"
        )
        raise _infeasible_error(
            message, "use more accelerators, or a smaller precision"
        )


def _fixed_sizing(
    requirement: ServingRequirement,
    replica: Replica,
    replicas_per_node: int,
    nodes: int,
) -> FleetSizing:
    saturated_service = replica.closed_service(replica.max_batch)
    service = (
        # A batch run keeps every slot of a replica filled.
        saturated_service
        if requirement.mode == "batch"
        else predict_service(requirement, replica, replicas_per_node * nodes)
    )
    # The load exceeds the completion rate or the slots.
    if service is None:
        reachable_rps = saturation_rps(replica) * replicas_per_node * nodes
        message = (
            f"it cannot keep up: at most {reachable_rps:,.1f} requests a second"
        )
        raise _infeasible_error(message, "use more machines, or a lower rate")
    duration_hours = (
        # Requests / rate; start-up is not included.
        float(requirement.request_count)
        / (saturation_rps(replica) * replicas_per_node * nodes)
        / SECONDS_PER_HOUR
    )
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        group=ReplicaGroup(nodes=1, replicas=replicas_per_node),
        peak_groups=nodes,
        # A given fleet gets no spare groups.
        spares=NO_SPARES,
        service=service,
        duration_hours=duration_hours,
    )


def _infeasible_error(message: str, next_step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=next_step)
    )
