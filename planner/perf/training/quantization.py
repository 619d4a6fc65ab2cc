"""Bytes that quantize the operands of products of 8 bit or less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.products import dense_mlp_layers

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job

# Row-wise 8 bit in plain PyTorch is quantized after a gather, not before it.
GATHERED_16BIT: Final = "fp8row"
COPY_BYTES: Final = 1.0  # of an element in 8 bit


class _Operands(NamedTuple):
    """Elements of the operands of a layer for each token of a rank.

    whole  of tensors as wide as the hidden state, which tensor parallelism gathers
    cut    of tensors that tensor parallelism cuts
    """

    whole: float
    cut: float


def quantization_work(job: Job) -> dict[str, float]:
    """Return the bytes that quantize inputs in a forward pass, and gradients in a backward one.

    tokens * layers * (3 * elements / r + c * elements)

    3  bytes: 2 are read and 1 is written, by the rank that has the tensor before a gather
    c  1 where weights are trained: a transposed copy, of whole tensors; else 0
    r  tp with sequence parallelism and gathers of 8 bit, else 1; tp of tensors that are cut
    """
    software = job.software
    if software.precision in SIXTEEN_BIT:
        return {"quantized_input_bytes": 0.0, "quantized_gradient_bytes": 0.0}
    inputs, gradients = _layer_operands(job.llm)
    is_gathered_first = (
        software.precision == GATHERED_16BIT or not software.sequence_parallel
    )
    whole_ranks = 1 if is_gathered_first else job.layout.tp
    # Gradients of weights read operands along the other dimension.
    transposed_bytes = 0.0 if job.frozen_bytes else COPY_BYTES

    def moved_bytes(operands: _Operands) -> float:
        quantized_bytes = BYTES_16BIT + COPY_BYTES
        return (
            job.micro_tokens
            / job.layout.pp
            * (
                operands.whole
                * (quantized_bytes / whole_ranks + transposed_bytes)
                + operands.cut
                * (quantized_bytes + transposed_bytes)
                / job.layout.tp
            )
        )

    return {
        "quantized_input_bytes": moved_bytes(inputs),
        "quantized_gradient_bytes": moved_bytes(gradients),
    }


def _layer_operands(language_model: Llm) -> tuple[_Operands, _Operands]:
    """Return the elements of inputs, and of gradients of results, in all layers of a token."""
    hidden_width = language_model.hidden
    head_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    up_matrices = language_model.mlp_matrices - 1
    mlp_layers = dense_mlp_layers(language_model)
    routed_width = (
        language_model.moe_layers
        * (language_model.experts_per_token + language_model.shared_experts)
        * language_model.moe_ffn
    )
    # Tokens are gathered once for each of their experts, on the ranks of these.
    routed_hidden = (
        language_model.moe_layers
        * language_model.experts_per_token
        * (language_model.expert_hidden or hidden_width)
    )
    attention_layers = language_model.attending_layers
    whole = (
        attention_layers + mlp_layers + 2 * language_model.state_layers
    ) * hidden_width
    inputs = _Operands(
        whole,
        attention_layers * head_width
        + mlp_layers * language_model.ffn
        + routed_width
        + routed_hidden,
    )
    gradients = _Operands(
        whole,
        attention_layers * (head_width + 2 * kv_width)
        + up_matrices * (mlp_layers * language_model.ffn + routed_width)
        + routed_hidden,
    )
    return inputs, gradients
