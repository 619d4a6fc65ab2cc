"""What weights, gradients and optimizer states of training take on one accelerator, exactly.

none: all whole; ZeRO-1 (distributed optimizer) cuts the optimizer, ZeRO-2 gradients too, ZeRO-3
(FSDP) weights too (Rajbhandari et al., arXiv:1910.02054). Bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.perf.memory import bytes_of

if TYPE_CHECKING:
    from planner.perf.train.job import Job

LEVELS: Final = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
TRAINED: Final = (
    2.0  # bytes of what is in 16 bit: beside 4 bit, and a reference
)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Bytes of a parameter: its weight, its gradient, a master copy and states."""

    weight: float
    gradient: float
    kept: float

    @property
    def whole(self) -> float:
        """All of them."""
        return self.weight + self.gradient + self.kept


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one accelerator."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer


@cache
def optimizers() -> dict[str, Optimizer]:
    """Return the optimizers by name."""
    number = table.real(0, 64)
    columns: dict[str, Any] = {
        "optimizer": table.text,
        "weight_bytes": number,
        "gradient_bytes": number,
        "master_bytes": number,
        "state_bytes": number,
        "meaning": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "optimizers.csv")
        .read_text(encoding="utf-8")
    )
    found = table.keyed(
        table.rows(text, "optimizers.csv", columns), "optimizer"
    )
    return {
        name: Optimizer(
            r["weight_bytes"],
            r["gradient_bytes"],
            r["master_bytes"] + r["state_bytes"],
        )
        for (name,), r in found.items()
    }


def frozen_bytes(method: str) -> float:
    """Bytes of a parameter that a method does not train: 16 bit, 4 bit, or 0 when it does."""
    kept = {"lora": "bf16", "dpo-lora": "bf16", "qlora": "nf4"}.get(method)
    return bytes_of(kept) if kept else 0.0


def owned(job: Job) -> tuple[float, float]:
    """Parameters of one rank: those cut over tp, and routed experts, cut over ep (else over tp).

    (dense / pp + embedding) / tp of the fuller end of the pipeline; experts / pp / ep.
    """
    llm, s = job.llm, job.spread
    ends = 1 if s.pp == 1 or llm.tied else 2
    dense = llm.dense / s.pp / s.tp + llm.embedding / s.tp / ends
    return dense, llm.expert / s.pp / (s.tp if s.ep == 1 else s.ep)


def adapters(job: Job) -> float:
    """Parameters of LoRA adapters on every projection of one rank: rank * (in + out) each."""
    llm, s = job.llm, job.spread
    query, kept = llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
    attention = 2 * (llm.hidden + query) + 2 * (llm.hidden + kept)
    wide = (llm.experts * llm.moe_ffn) if llm.experts else llm.ffn
    mlp = llm.mlp_matrices * (llm.hidden + wide)
    return job.rank * llm.layers * (attention + mlp) / s.pp / s.tp


def states(job: Job) -> States:
    """Return the states of one rank; experts are cut over the ranks that hold the same ones."""
    if job.offload:
        return States(0.0, 0.0, 0.0)
    s, form = job.spread, optimizers()[job.optimizer]
    level, among = LEVELS[s.sharding], s.among
    dense, experts = owned(job)
    same = among if s.ep == 1 else max(1.0, among * s.tp / s.ep)
    frozen = 0.0
    groups = [(dense, among), (experts, same)]
    if job.frozen:
        embedding = min(dense, job.llm.embedding / s.tp)
        extra = (
            embedding * (TRAINED - job.frozen) / (among if level == 3 else 1)
        )
        frozen = extra + sum(
            n * job.frozen / (cut if level == 3 else 1) for n, cut in groups
        )
        groups = [(adapters(job), among)]
    elif job.reference == "copy":
        frozen = sum(
            n * TRAINED / (cut if level == 3 else 1) for n, cut in groups
        )

    def held(each: float, least: int) -> float:
        return sum(
            n * each / (cut if level >= least else 1) for n, cut in groups
        )

    gradients = 0.0 if job.backward_step else held(form.gradient, 2)
    return States(frozen + held(form.weight, 3), gradients, held(form.kept, 1))
