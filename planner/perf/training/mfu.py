"""Model FLOP utilization (MFU) of training.

Model FLOP over the dense 16-bit peak; recomputation does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.perf.training.job import Job


def flop_per_token(job: Job) -> float:
    """Return the model FLOP of one token.

    all weights trained  6 N + 12 L h s
    frozen weights       4 N + 12 L h s
    with a reference     2 N + 4 L h s more, for its forward pass

    N  active parameters
    L  layers with attention; of those whose tokens share entries of the cache, the entries of a
       token, beside windows
    h  heads * width of a head
    s  tokens of a sequence

    Source: PaLM (arXiv:2204.02311).
    """
    language_model = job.llm
    reference_passes = float(job.reference != "none")
    # Two FLOP a pass; frozen weights have no pass for their gradient.
    flop_per_param = (4.0 if job.frozen_bytes else 6.0) + 2.0 * reference_passes
    attended_tokens: float = (
        language_model.attending_layers * job.sequence_tokens
    )
    if language_model.has_entries:
        attended_tokens = (
            language_model.whole_entries * job.sequence_tokens
            + language_model.window_layers
            * min(language_model.window, job.sequence_tokens)
        )
    attention_width = (
        language_model.heads * language_model.head_dim * attended_tokens
    )
    return (
        flop_per_param * language_model.active_params
        # Two products, two FLOP each, three passes; causality not used.
        + (12.0 + 4.0 * reference_passes) * attention_width
    )


def mfu(job: Job, tokens_per_s: float) -> float:
    """Return the share of the dense 16-bit peak.

    `tokens_per_s` is that of one accelerator.
    """
    return (
        tokens_per_s
        * flop_per_token(job)
        / ((job.chip.bf16_tflops or 0.0) * 1e12)
    )
