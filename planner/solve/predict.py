"""The numbers that a fit is expected to reach, each with its band and its basis."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from planner.perf import memory
from planner.perf.band import Band, band, news
from planner.perf.constant import constant
from planner.solve.solution import Predicted

if TYPE_CHECKING:
    from planner.solve.need import Need
    from planner.solve.size import Fit

MS: Final = 1000.0
PERCENTILES: Final = (50, 90, 95, 99)


def predict(need: Need, fit: Fit) -> dict[str, Predicted]:
    """Return the predicted numbers of a fit at peak, with every needed replica up.

    What arrives is served as long as
    the fleet keeps up, so the band of a rate reaches from what surely is to what arrives.
    """
    new, basis = news(need.llm, fit.replica.node.accelerator)
    copies, service = fit.replicas * fit.needed, fit.service
    flow = band("throughput", "offline", new, basis)
    result = _memory(need, fit)
    for name, value in (
        ("output_tokens_per_s", service.output_tokens_per_s),
        ("requests_per_s", service.rate),
    ):
        most = min(1.0, flow.high) if need.mode == "open" else flow.high
        result[name] = _within(value * copies, Band(flow.low, most, basis))
    if need.mode == "batch":
        slower = Band(1 / flow.high, 1 / flow.low, basis)
        result["duration_days"] = _within(fit.hours / 24, slower)
        return result
    bands = {metric: fit.replica.band(metric) for metric in ("ttft", "tpot")}
    bands["e2e"] = _wider(*bands.values())
    for metric, percentile in itertools.product(sorted(bands), PERCENTILES):
        value = service.quantile(metric, percentile) * MS
        result[f"{metric}_p{percentile}_ms"] = _within(value, bands[metric])
    return result


def _memory(need: Need, fit: Fit) -> dict[str, Predicted]:
    room = fit.replica.memory
    held = (
        fit.service.in_flight
        * memory.kv(need.llm, fit.layout, need.load.held)
        / memory.GIB
    )
    used = room.weights_gib + room.kept_gib + min(held, room.kv_gib)
    share = constant("memory_error", "used")
    within = Band(1 - share, 1 + share, "calibrated")
    return {
        "memory_gib_per_accelerator": _within(used, within),
        "memory_fraction": _within(used / room.total_gib, within),
    }


def _wider(one: Band, other: Band) -> Band:
    return Band(min(one.low, other.low), max(one.high, other.high), one.basis)


def _within(value: float, found: Band) -> Predicted:
    return Predicted(value, value * found.low, value * found.high, found.basis)
