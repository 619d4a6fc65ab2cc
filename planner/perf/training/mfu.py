"""Model FLOP utilization of training: useful FLOP over the 16-bit peak, recomputation left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.perf.training.job import Job


def flop_per_token(job: Job) -> float:
    """Model FLOP of one token: 6 N + 12 L h s (PaLM, arXiv:2204.02311); 4 N with frozen weights.

    A reference that rates the token takes 2 N + 4 L h s more.

    N are the active parameters, L the layers with attention, h the width of its heads.
    """
    language_model = job.llm
    reference_passes = float(job.reference != "none")
    flop_per_param = (4.0 if job.frozen_bytes else 6.0) + 2.0 * reference_passes
    attention_width = (
        language_model.attending_layers
        * language_model.heads
        * language_model.head_dim
        * job.sequence_tokens
    )
    return (
        flop_per_param * language_model.active_params
        + (12.0 + 4.0 * reference_passes) * attention_width
    )


def mfu(job: Job, tokens_per_s: float) -> float:
    """Share of the 16-bit peak at so many tokens a second of one accelerator."""
    return (
        tokens_per_s
        * flop_per_token(job)
        / ((job.chip.bf16_tflops or 0.0) * 1e12)
    )
