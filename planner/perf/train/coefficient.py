"""The coefficients of training, and the keys of a job that select them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.book import Book
from planner.perf.train.job import SIXTEEN

if TYPE_CHECKING:
    from planner.perf.train.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
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


TRAINING: Final = Book(Training, "training.csv")


def keys(job: Job) -> frozenset[str]:
    """Name what selects coefficients: vendor, architecture, kernels, precision, what is fused."""
    chip, soft = job.chip, job.software
    found = {chip.vendor, chip.architecture, soft.kernels, soft.precision}
    marks = {
        "torch": soft.torch,
        "sdpa": soft.torch and soft.kernels != "foundry",
        "torch modern": soft.torch and chip.architecture != "Ampere",
        "overlapped": soft.overlapped,
        "captured": soft.captured,
        "dropping": soft.dropping,
        "sinks": soft.sinks,
        "pipelined": job.spread.pp > 1,
        "hybrid": bool(job.llm.state_layers),
        "8 bit or less": soft.precision not in (*SIXTEEN, "fp8row"),
    }
    return frozenset(found | {name for name, holds in marks.items() if holds})
