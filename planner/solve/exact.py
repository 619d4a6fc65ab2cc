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
    """A fleet of `nodes` machines with `replicas` replicas on each, and what it would do."""

    instance: Instance
    nodes: int
    replicas: int
    layout: Layout
    max_batch: int
    most_rps: float
    predicted: dict[str, Predicted]


def exactly(
    need: Need, instance: Instance, nodes: int, given: Mapping[str, str]
) -> Exact:
    """Predict a fleet; raises InfeasibleError when it cannot run or cannot keep up.

    Without a layout all accelerators of a machine hold one replica, in the first precision.
    """
    node = instance.node
    precision = given.get("precision", need.precisions[0])
    tp, pp = int(given.get("tp", node.count)), int(given.get("pp", 1))
    layout = Layout(
        precision=precision,
        kv_precision=given.get("kv_precision", need.kv_precision),
        tp=tp,
        pp=pp,
        ep=int(given.get("ep", 1)),
    )
    if layout.ep > 1 and (not need.llm.experts or tp % layout.ep):
        message = f"ep {layout.ep} does not suit {need.llm.model} over tp {tp}"
        raise _impossible(
            message, "leave ep out, or choose one that divides tp"
        )
    if tp * pp > node.count or pp > need.llm.layers or not valid(need.llm, tp):
        message = f"{need.llm.model} cannot be cut into tp {tp}, pp {pp} on {node.count}"
        raise _impossible(
            message, "choose a tp that divides its heads and the machine"
        )
    if not node.accelerator.runs(precision):
        message = f"{node.accelerator.accelerator} does not run {precision}"
        raise _impossible(message, "choose another precision")
    replica = Replica(need.llm, layout, node, need.load)
    if not replica.max_batch:
        held = memory.weights(need.llm, layout) / memory.GIB
        message = f"weights take {held:,.1f} of {node.memory_gib:,.1f} GiB: no room for a request"
        raise _impossible(
            message, "use more accelerators, or a smaller precision"
        )
    count = node.count // layout.accelerators
    return Exact(
        instance=instance,
        nodes=nodes,
        replicas=count,
        layout=layout,
        max_batch=replica.max_batch,
        most_rps=most(replica) * count * nodes,
        predicted=predict(need, _fit(need, replica, count, nodes)),
    )


def _fit(need: Need, replica: Replica, count: int, nodes: int) -> Fit:
    full = replica.closed(replica.max_batch)
    service = (
        full if need.mode == "batch" else serve(need, replica, count * nodes)
    )
    if service is None:
        reached = most(replica) * count * nodes
        message = f"it cannot keep up: at most {reached:,.1f} requests a second"
        raise _impossible(message, "use more machines, or a lower rate")
    hours = float(need.requests) / (most(replica) * count * nodes) / 3600
    return Fit(
        layout=replica.layout,
        replica=replica,
        replicas=count,
        span=1,
        needed=nodes,
        groups=nodes,
        service=service,
        hours=hours,
    )


def _impossible(message: str, step: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(code="infeasible", message=message, next_step=step)
    )
