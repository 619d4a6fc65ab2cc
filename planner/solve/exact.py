"""One exactly given fleet under a need: what it would do, without any search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import InfeasibleError, Problem
from planner.perf import memory
from planner.perf.layout import Layout, valid
from planner.perf.serve import Replica
from planner.solve.predict import predict
from planner.solve.size import Fit, most, serve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.solve.need import Need
    from planner.solve.offer import Instance
    from planner.solve.solution import Predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """A fleet of `nodes` machines with `replicas_per_node` replicas on each, and what it would do."""

    instance: Instance
    nodes: int
    replicas_per_node: int
    layout: Layout
    max_batch: int
    max_rps: float
    predicted: dict[str, Predicted]


def exactly(
    requirement: Need,
    instance: Instance,
    nodes: int,
    layout_options: Mapping[str, str],
) -> Exact:
    """Predict a fleet; raises InfeasibleError when it cannot run or cannot keep up.

    Without a layout all accelerators of a machine hold one replica, in the first precision.
    """
    node = instance.node
    precision = layout_options.get("precision", requirement.precisions[0])
    tp, pp = (
        int(layout_options.get("tp", node.accelerator_count)),
        int(layout_options.get("pp", 1)),
    )
    layout = Layout(
        precision=precision,
        kv_precision=layout_options.get(
            "kv_precision", requirement.kv_precision
        ),
        tp=tp,
        pp=pp,
        ep=int(layout_options.get("ep", 1)),
    )
    if layout.ep > 1 and (not requirement.llm.experts or tp % layout.ep):
        message = (
            f"ep {layout.ep} does not suit {requirement.llm.model} over tp {tp}"
        )
        raise _impossible(
            message, "leave ep out, or choose one that divides tp"
        )
    if (
        tp * pp > node.accelerator_count
        or pp > requirement.llm.layers
        or not valid(requirement.llm, tp)
    ):
        message = f"{requirement.llm.model} cannot be cut into tp {tp}, pp {pp} on {node.accelerator_count}"
        raise _impossible(
            message, "choose a tp that divides its heads and the machine"
        )
    if not node.accelerator.supports(precision):
        message = f"{node.accelerator.accelerator} does not run {precision}"
        raise _impossible(message, "choose another precision")
    replica = Replica(requirement.llm, layout, node, requirement.load)
    if not replica.max_batch:
        weights_gib = memory.weights(requirement.llm, layout) / memory.GIB
        message = f"weights take {weights_gib:,.1f} of {node.memory_gib:,.1f} GiB: no room for a request"
        raise _impossible(
            message, "use more accelerators, or a smaller precision"
        )
    replicas_per_node = node.accelerator_count // layout.accelerators
    return Exact(
        instance=instance,
        nodes=nodes,
        replicas_per_node=replicas_per_node,
        layout=layout,
        max_batch=replica.max_batch,
        max_rps=most(replica) * replicas_per_node * nodes,
        predicted=predict(
            requirement, _fit(requirement, replica, replicas_per_node, nodes)
        ),
    )


def _fit(
    requirement: Need, replica: Replica, replicas_per_node: int, nodes: int
) -> Fit:
    saturated_service = replica.closed_service(replica.max_batch)
    service = (
        saturated_service
        if requirement.mode == "batch"
        else serve(requirement, replica, replicas_per_node * nodes)
    )
    if service is None:
        reachable_rps = most(replica) * replicas_per_node * nodes
        message = (
            f"it cannot keep up: at most {reachable_rps:,.1f} requests a second"
        )
        raise _impossible(message, "use more machines, or a lower rate")
    duration_hours = (
        float(requirement.request_count)
        / (most(replica) * replicas_per_node * nodes)
        / 3600
    )
    return Fit(
        layout=replica.layout,
        replica=replica,
        replicas_per_group=replicas_per_node,
        nodes_per_group=1,
        peak_groups=nodes,
        total_groups=nodes,
        service=service,
        duration_hours=duration_hours,
    )


def _impossible(message: str, next_step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=next_step)
    )
