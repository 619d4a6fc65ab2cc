"""Work of the scan of state-space layers, beside their projections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.perf.training.job import Job

STATE_BYTES: Final = 4.0  # of an element of a state, in fp32
# A chunk's state is written, read and written with those before it, and read.
STATE_PASSES: Final = 4.0


def scan_work(job: Job) -> dict[str, float]:
    """Return FLOP and bytes of the scans of one rank in a forward pass of a micro-batch.

    FLOP   tokens * layers * e * (4 + 2 * c / n)
    bytes  tokens * layers * 4 * 4 * e / c

    e  elements of a state: heads * width of a head * n
    n  depth of a state
    c  tokens of a chunk

    Within a chunk tokens attend to each other, across chunks they pass a state on: each token
    is added to it, and reads from it. Source: arXiv:2405.21060, section 6.
    """
    language_model = job.llm
    state_elements = language_model.state_bytes / STATE_BYTES
    chunk_tokens = constant("scan", "chunk")
    scanned_elements = (
        job.micro_tokens
        * language_model.state_layers
        * state_elements
        / (job.layout.tp * job.layout.pp)
    )
    return {
        "scan_flop": scanned_elements
        * (4 + 2 * chunk_tokens / constant("scan", "depth")),
        "scan_bytes": scanned_elements
        * STATE_PASSES
        * STATE_BYTES
        / chunk_tokens,
    }
