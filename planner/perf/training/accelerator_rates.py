"""Peak rates and bandwidths of the accelerator of a training job."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.perf.training.job import Job

# 16-bit FLOP for each exponential, where nobody publishes the rate.
FLOP_PER_EXP: Final = 250.0


def accelerator_rates(job: Job) -> dict[str, float]:
    """Return the peak rates and bandwidths of the accelerator, a second, and its `power_ratio`."""
    accelerator = job.chip
    software = job.software
    flop_s_16bit = (accelerator.bf16_tflops or 0.0) * 1e12
    # The data sheet gives the sum of both directions.
    link_bytes_s = accelerator.link_gb_s / 2 * 1e9
    # Without a link accelerators of a machine communicate over PCIe.
    if accelerator.link == "none" or not link_bytes_s:
        pcie_gb_s = constant("pcie_gen", str(max(3, accelerator.pcie_gen)))
        link_bytes_s = constant("pcie_reached") * pcie_gb_s * 1e9
    # Board power over what full clocks need at this peak rate.
    power_ratio = (accelerator.tdp_w or math.inf) / (
        (accelerator.bf16_tflops or 1.0) * constant("train_watts")
    )
    return {
        "peak_flop_s": _peak_flop_s(accelerator, software.precision),
        "expert_peak_flop_s": _peak_flop_s(
            accelerator, software.precision_of_experts
        ),
        "flop_s_16bit": flop_s_16bit,
        "flop_s_32bit": (accelerator.fp32_tflops or 0.0) * 1e12
        or flop_s_16bit / constant("matrix_gain"),
        "memory_bytes_s": (accelerator.bandwidth_gb_s or 0.0) * 1e9,
        "link_bytes_s": link_bytes_s,
        "network_bytes_s": job.network_bytes_s,
        "exponentials_s": _exponential_rates().get(
            accelerator.architecture, flop_s_16bit / FLOP_PER_EXP / 1e12
        )
        * 1e12,
        "power_ratio": min(1.0, power_ratio),
    }


def _peak_flop_s(accelerator: Accelerator, precision: str) -> float:
    """Return the dense peak in a precision, FLOP/s: that of 16 bit where it has none."""
    low_precision = {
        **dict.fromkeys(SIXTEEN_BIT, 0.0),
        "int8": accelerator.int8_tops,
        "nvfp4": accelerator.fp4_tflops,
    }
    peak_tflops = low_precision.get(precision, accelerator.fp8_tflops)
    return (peak_tflops or accelerator.bf16_tflops or 0.0) * 1e12


@cache
def _exponential_rates() -> dict[str, float]:
    column_types = {
        "architecture": table.nonempty_text,
        "rate": table.real_between(0.1, 1000),
        "unit": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        rate_row["architecture"]: rate_row["rate"]
        for rate_row in table.load_rows(
            "planner.perf", "exponentials.csv", column_types
        )
    }
