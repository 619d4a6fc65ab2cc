"""The coefficients of training, and the keys of a job that select them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.common.coefficient_table import CoefficientTable
from planner.perf.training.job import SIXTEEN_BIT

if TYPE_CHECKING:
    from planner.perf.training.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCoefficients:
    """The coefficients that apply to one job; units and meaning stand in the table."""

    attention: float
    bubble: float
    clock: float
    contention: float
    context: float
    dense_host: float
    doubling: float
    exchange: float
    exchange_network: float
    exchange_rate: float
    expert_products: float
    expert_traffic: float
    forced: float
    forced_power: float
    head_last: float
    hops: float
    host_power: float
    latency: float
    link: float
    local_expert: float
    loss_traffic: float
    moe_host: float
    network: float
    permute: float
    precision: float
    products: float
    quantizing: float
    scores: float
    softmax: float
    speed: float
    step: float
    tensor: float
    traffic: float
    unlike: float
    zero: float


TRAINING_TABLE: Final = CoefficientTable(TrainingCoefficients, "training.csv")


def coefficient_keys(job: Job) -> frozenset[str]:
    """Name what selects coefficients: vendor, architecture, kernels, precision, what is fused."""
    accelerator = job.chip
    software = job.software
    selected_keys = {
        accelerator.vendor,
        accelerator.architecture,
        software.kernels,
        software.precision,
    }
    key_conditions = {
        "torch": software.is_torch,
        "sdpa": software.is_torch and software.kernels != "foundry",
        "torch modern": software.is_torch
        and accelerator.architecture != "Ampere",
        "overlapped": software.tp_overlapped,
        "captured": software.graph_captured,
        "dropping": software.drops_tokens,
        "sinks": software.attention_sinks,
        "pipelined": job.layout.pp > 1,
        "hybrid": bool(job.llm.state_layers),
        "8 bit or less": software.precision not in (*SIXTEEN_BIT, "fp8row"),
    }
    return frozenset(
        selected_keys
        | {key_name for key_name, is_met in key_conditions.items() if is_met}
    )
