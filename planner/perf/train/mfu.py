"""Model FLOP utilization of training: useful FLOP over the 16-bit peak, recomputation left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.perf.train.job import Job


def flop(job: Job) -> float:
    """Model FLOP of one token: 6 N + 12 L h s (PaLM, arXiv:2204.02311); 4 N with frozen weights.

    A reference that rates the token takes 2 N + 4 L h s more.

    N are the active parameters, L the layers with attention, h the width of its heads.
    """
    llm = job.llm
    rated = float(job.reference != "none")
    each = (4.0 if job.frozen else 6.0) + 2.0 * rated
    scores = llm.attending * llm.heads * llm.head_dim * job.sequence
    return each * llm.active + (12.0 + 4.0 * rated) * scores


def mfu(job: Job, speed: float) -> float:
    """Share of the 16-bit peak at so many tokens a second of one accelerator."""
    return speed * flop(job) / ((job.chip.bf16_tflops or 0.0) * 1e12)
