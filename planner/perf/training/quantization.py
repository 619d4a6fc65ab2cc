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
    """Elements of the operands of all layers for each token of a rank.

    whole  of tensors as wide as the hidden state, which tensor parallelism gathers
    cut    of tensors that tensor parallelism cuts
    """

    whole: float
    cut: float


class _Quantized(NamedTuple):
    """Operands of a forward pass, and gradients of results in a backward one."""

    inputs: _Operands
    gradients: _Operands


def quantization_work(job: Job) -> dict[str, float]:
    """Return the bytes that quantize inputs in a forward pass, and gradients in a backward one.

    tokens * layers * (3 * elements / r + c * elements)

    3  bytes: 2 are read and 1 is written, by the rank that has the tensor before a gather
    c  1 where weights are trained: a transposed copy, of whole tensors; else 0
    r  tp with sequence parallelism and gathers of 8 bit, else 1; tp of tensors that are cut

    Products in 16 bit have none. Those of routed experts may have a precision of their own.
    """
    software = job.software
    usual = _quantized_bytes(job, _usual_operands(job.llm), software.precision)
    routed = _quantized_bytes(
        job, _routed_operands(job.llm), software.precision_of_experts
    )
    return {
        "quantized_input_bytes": usual[0],
        "quantized_gradient_bytes": usual[1],
        "quantized_expert_input_bytes": routed[0],
        "quantized_expert_gradient_bytes": routed[1],
    }


def _quantized_bytes(
    job: Job, operands: _Quantized, precision: str
) -> tuple[float, float]:
    """Return the bytes that quantize inputs, and those that quantize gradients."""
    if precision in SIXTEEN_BIT:
        return 0.0, 0.0
    is_gathered_first = (
        precision == GATHERED_16BIT or not job.software.sequence_parallel
    )
    whole_ranks = 1 if is_gathered_first else job.layout.tp
    # Gradients of weights read operands along the other dimension.
    transposed_bytes = 0.0 if job.frozen_bytes else COPY_BYTES
    quantized_bytes = BYTES_16BIT + COPY_BYTES

    def moved_bytes(elements: _Operands) -> float:
        return (
            job.micro_tokens
            / job.layout.pp
            * (
                elements.whole
                * (quantized_bytes / whole_ranks + transposed_bytes)
                + elements.cut
                * (quantized_bytes + transposed_bytes)
                / job.layout.tp
            )
        )

    return moved_bytes(operands.inputs), moved_bytes(operands.gradients)


def _usual_operands(language_model: Llm) -> _Quantized:
    """Return the operands of attention, dense MLP, shared experts and state-space layers."""
    hidden_width = language_model.hidden
    head_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    up_matrices = language_model.mlp_matrices - 1
    mlp_layers = dense_mlp_layers(language_model)
    attention_layers = language_model.attending_layers
    mlp_width = (
        mlp_layers * language_model.ffn
        + language_model.moe_layers
        * language_model.shared_experts
        * language_model.moe_ffn
    )
    whole = (
        attention_layers + mlp_layers + 2 * language_model.state_layers
    ) * hidden_width
    return _Quantized(
        inputs=_Operands(whole, attention_layers * head_width + mlp_width),
        gradients=_Operands(
            whole,
            attention_layers * (head_width + 2 * kv_width)
            + up_matrices * mlp_width,
        ),
    )


def _routed_operands(language_model: Llm) -> _Quantized:
    """Return the operands of routed experts: tokens are gathered once for each of theirs."""
    up_matrices = language_model.mlp_matrices - 1
    copies = language_model.moe_layers * language_model.experts_per_token
    routed_width = copies * language_model.moe_ffn
    routed_hidden = copies * (
        language_model.expert_hidden or language_model.hidden
    )
    return _Quantized(
        inputs=_Operands(0.0, routed_width + routed_hidden),
        gradients=_Operands(0.0, up_matrices * routed_width + routed_hidden),
    )
