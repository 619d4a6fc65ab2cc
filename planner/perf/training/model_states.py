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
from planner.perf.common.memory import quantized_bytes

if TYPE_CHECKING:
    from planner.perf.training.job import Job

ZERO_STAGES: Final = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
UNPACKED_BYTES: Final = (
    2.0  # bytes of what is in 16 bit: beside 4 bit, and a reference
)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Bytes of a parameter: its weight, its gradient, a master copy and states."""

    weight_bytes: float
    gradient_bytes: float
    state_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of them."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


@dataclass(frozen=True, slots=True)
class ModelStates:
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
    number_type = table.real_between(0, 64)
    column_types: dict[str, Any] = {
        "optimizer": table.nonempty_text,
        "weight_bytes": number_type,
        "gradient_bytes": number_type,
        "master_bytes": number_type,
        "state_bytes": number_type,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    csv_text = (
        files("planner.perf")
        .joinpath("data", "optimizers.csv")
        .read_text(encoding="utf-8")
    )
    keyed_rows = table.rows_by_key(
        table.read_rows(csv_text, "optimizers.csv", column_types), "optimizer"
    )
    return {
        optimizer_name: Optimizer(
            optimizer_row["weight_bytes"],
            optimizer_row["gradient_bytes"],
            optimizer_row["master_bytes"] + optimizer_row["state_bytes"],
        )
        for (optimizer_name,), optimizer_row in keyed_rows.items()
    }


def frozen_bytes(method: str) -> float:
    """Bytes of a parameter that a method does not train: 16 bit, 4 bit, or 0 when it does."""
    weight_precision = {"lora": "bf16", "dpo-lora": "bf16", "qlora": "nf4"}.get(
        method
    )
    return quantized_bytes(weight_precision) if weight_precision else 0.0


def local_params(job: Job) -> tuple[float, float]:
    """Parameters of one rank: those cut over tp, and routed experts, cut over ep (else over tp).

    (dense / pp + embedding) / tp of the fuller end of the pipeline; experts / pp / ep.
    """
    language_model = job.llm
    layout = job.layout
    end_stages = 1 if layout.pp == 1 or language_model.tied else 2
    dense_params = (
        language_model.dense_params / layout.pp / layout.tp
        + language_model.embedding_params / layout.tp / end_stages
    )
    return dense_params, language_model.expert_params / layout.pp / (
        layout.tp if layout.ep == 1 else layout.ep
    )


def adapter_params(job: Job) -> float:
    """Parameters of LoRA adapters on every projection of one rank: rank * (in + out) each."""
    language_model = job.llm
    layout = job.layout
    query_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    attention_widths = 2 * (language_model.hidden + query_width) + 2 * (
        language_model.hidden + kv_width
    )
    mlp_width = (
        (language_model.experts * language_model.moe_ffn)
        if language_model.experts
        else language_model.ffn
    )
    mlp_widths = language_model.mlp_matrices * (
        language_model.hidden + mlp_width
    )
    return (
        job.lora_rank
        * language_model.layers
        * (attention_widths + mlp_widths)
        / layout.pp
        / layout.tp
    )


def model_states(job: Job) -> ModelStates:
    """Return the states of one rank; experts are cut over the ranks that hold the same ones."""
    if job.offload_states:
        return ModelStates(0.0, 0.0, 0.0)
    layout = job.layout
    optimizer = optimizers()[job.optimizer]
    zero_stage = ZERO_STAGES[layout.sharding]
    shard_ranks = layout.shard_group
    dense_params, expert_params = local_params(job)
    expert_ranks = (
        shard_ranks
        if layout.ep == 1
        else max(1.0, shard_ranks * layout.tp / layout.ep)
    )
    frozen_total = 0.0
    param_groups = [(dense_params, shard_ranks), (expert_params, expert_ranks)]
    if job.frozen_bytes:
        embedding_params = min(
            dense_params, job.llm.embedding_params / layout.tp
        )
        unpacked_bytes = (
            embedding_params
            * (UNPACKED_BYTES - job.frozen_bytes)
            / (shard_ranks if zero_stage == 3 else 1)
        )
        frozen_total = unpacked_bytes + sum(
            param_count
            * job.frozen_bytes
            / (group_ranks if zero_stage == 3 else 1)
            for param_count, group_ranks in param_groups
        )
        param_groups = [(adapter_params(job), shard_ranks)]
    elif job.reference == "copy":
        frozen_total = sum(
            param_count
            * UNPACKED_BYTES
            / (group_ranks if zero_stage == 3 else 1)
            for param_count, group_ranks in param_groups
        )

    def sharded_bytes(bytes_per_param: float, first_stage: int) -> float:
        return sum(
            param_count
            * bytes_per_param
            / (group_ranks if zero_stage >= first_stage else 1)
            for param_count, group_ranks in param_groups
        )

    gradient_bytes = (
        0.0
        if job.fused_backward
        else sharded_bytes(optimizer.gradient_bytes, 2)
    )
    return ModelStates(
        frozen_total + sharded_bytes(optimizer.weight_bytes, 3),
        gradient_bytes,
        sharded_bytes(optimizer.state_bytes, 1),
    )
