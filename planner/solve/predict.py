"""The numbers that a fit is expected to reach, each with its band and its basis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.perf import memory
from planner.perf.constant import constant
from planner.solve.solution import Predicted

if TYPE_CHECKING:
    from planner.solve.need import Need
    from planner.solve.size import Fit

MS: Final = 1000.0


def predict(need: Need, fit: Fit) -> dict[str, Predicted]:
    """Return the predicted numbers of a fit at peak, with every needed replica up.

    Latency percentiles are the spec's; without any, the 95th.
    """
    room = fit.replica.memory
    copies = fit.replicas * fit.needed
    held = fit.service.in_flight * memory.kv(need.llm, fit.layout, need.load.held) / memory.GIB
    used = room.used_gib + min(held, room.pool_gib)
    service = fit.service
    result = {
        "memory_gib_per_accelerator": _band(used, "memory"),
        "memory_fraction": _band(used / room.total_gib, "memory"),
        "output_tokens_per_s": _band(service.output_tokens_per_s * copies, "throughput"),
        "requests_per_s": _band(service.rate * copies, "throughput"),
    }
    if need.mode == "batch":
        result["duration_days"] = _band(fit.hours / 24, "throughput")
        return result
    wanted = {(x.metric, x.percentile) for x in need.limits} | {("ttft", 95), ("tpot", 95)}
    for metric, percentile in sorted(wanted):
        value = service.quantile(metric, percentile) * MS
        result[f"{metric}_p{percentile}_ms"] = _band(value, metric)
    return result


def _band(value: float, name: str) -> Predicted:
    width = constant("band", name)
    return Predicted(value, value / width, value * width, "physics")
