"""Model states of training on one accelerator: weights, gradients, optimizer states.

none    each rank has all states
ZeRO-1  shards optimizer states (distributed optimizer)
ZeRO-2  shards gradients too
ZeRO-3  shards weights too (FSDP)

Source: Rajbhandari et al. (arXiv:1910.02054). Values are in bytes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.perf.common.memory import quantized_bytes

if TYPE_CHECKING:
    from planner.perf.training.job import Job, Reference

ZERO_STAGES: Final = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
# Bytes of a 16-bit parameter: embeddings beside a 4-bit base, and a reference.
UNPACKED_BYTES: Final = 2.0


class Optimizer(Struct, frozen=True):
    """Bytes of one parameter in training.

    weight_bytes    weight
    gradient_bytes  gradient
    state_bytes     master copy and moments
    """

    weight_bytes: float
    gradient_bytes: float
    state_bytes: float

    @property
    def total_bytes(self) -> float:
        """Bytes of weight, gradient and states of one parameter."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


class ModelStates(Struct, frozen=True):
    """Model states on one accelerator, in bytes.

    weights    trained and frozen weights
    gradients  gradients of trained weights
    optimizer  master copies and moments
    """

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Bytes of weights, gradients and optimizer states."""
        return self.weights + self.gradients + self.optimizer


@cache
def optimizers() -> dict[str, Optimizer]:
    """Return the optimizers of planner/perf/data/optimizers.csv by name."""
    number_type = table.real_between(0, 64)
    column_types: table.Columns = {
        "optimizer": table.nonempty_text,
        "weight_bytes": number_type,
        "gradient_bytes": number_type,
        "master_bytes": number_type,
        "state_bytes": number_type,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.perf", "optimizers.csv", column_types),
        "optimizer",
    )
    return {
        optimizer_name: Optimizer(
            optimizer_row["weight_bytes"],
            optimizer_row["gradient_bytes"],
            # ZeRO-1 shards the master copy together with the moments.
            optimizer_row["master_bytes"] + optimizer_row["state_bytes"],
        )
        for (optimizer_name,), optimizer_row in keyed_rows.items()
    }


def frozen_bytes(method: str) -> float:
    """Return the bytes of a frozen parameter of a training method.

    16 bit for LoRA, 4 bit for QLoRA, 0 when the method trains all weights.
    """
    # Precision of the base weights under each adapter method.
    weight_precision = {"lora": "bf16", "dpo-lora": "bf16", "qlora": "nf4"}.get(
        method
    )
    return quantized_bytes(weight_precision) if weight_precision else 0.0


def reference_model(method: str) -> Reference:
    """Return the second model by which a training method rates preferences.

    A copy in 16 bit for DPO, the base without its adapters for DPO of adapters.
    """
    references: dict[str, Reference] = {"dpo": "copy", "dpo-lora": "base"}
    return references.get(method, "none")


def local_params(job: Job) -> tuple[float, float]:
    """Return the dense and the routed expert parameters of one rank.

    dense    (dense / pp + embeddings / ends) / tp
    experts  experts / pp / ep, or / tp when ep is 1

    `ends` is 2 when untied input embedding and head are on different stages, else 1.
    """
    language_model = job.llm
    layout = job.layout
    # Tied embeddings are whole on the first and on the last stage.
    end_stages = 1 if layout.pp == 1 or language_model.tied else 2
    dense_params = (
        language_model.dense_params / layout.pp / layout.tp
        + language_model.embedding_params / layout.tp / end_stages
    )
    # Without expert parallelism tp shards each expert.
    return dense_params, language_model.expert_params / layout.pp / (
        layout.tp if layout.ep == 1 else layout.ep
    )


def adapter_params(job: Job) -> float:
    """Return the LoRA parameters of one rank, with adapters on every projection.

    layers / (pp * tp) * sum over projections of lora_rank * (input width + output width)
    """
    language_model = job.llm
    layout = job.layout
    query_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    # Query and output projection, then key and value projection.
    attention_widths = 2 * (language_model.hidden + query_width) + 2 * (
        language_model.hidden + kv_width
    )
    mlp_width = (
        (language_model.experts * language_model.moe_ffn)
        if language_model.experts
        else language_model.ffn
    )
    # Every matrix of the MLP lies between `hidden` and its width.
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
    """Return the model states of one rank.

    A state is divided by its shard ranks from the stage of ZeRO on that shards it. Experts are
    sharded over the ranks with the same experts: shard ranks * tp / ep.
    """
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
        # Ranks of a stage with the same experts.
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
            # Embeddings stay in 16 bit when the base is quantized.
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
    # The reference is a frozen 16-bit copy of all weights.
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
            # `first_stage` is the stage of ZeRO that shards this state.
            / (group_ranks if zero_stage >= first_stage else 1)
            for param_count, group_ranks in param_groups
        )

    gradient_bytes = (
        0.0
        # Each gradient is freed as soon as its weight is updated.
        if job.fused_backward
        else sharded_bytes(optimizer.gradient_bytes, 2)
    )
    return ModelStates(
        frozen_total + sharded_bytes(optimizer.weight_bytes, 3),
        gradient_bytes,
        sharded_bytes(optimizer.state_bytes, 1),
    )
