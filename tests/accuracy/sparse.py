"""Deployments of models whose attention chooses, kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.accuracy import kept_apart
from tests.accuracy.sample import Sample


def page(samples: Sequence[Sample]) -> str:
    """Return the part of the page: errors by model, accelerator, engine and ranks."""
    return f"{TEXT}\n{kept_apart.table(samples, HEAD, _group)}"


def _group(sample: Sample) -> tuple[str, ...]:
    row = sample.row
    return (
        row["model"],
        row["gpu"],
        row["framework"],
        row["weight_precision"],
        "yes" if row["attn_dp"] != "1" else "no",
        "ShareGPT" if "ShareGPT" in row["len_kind"] else row["input_len"],
    )


HEAD: Final = (
    "model",
    "accelerator",
    "engine",
    "weights",
    "attention apart",
    "prompts",
)
TEXT: Final = """## Sparse attention, kept apart

No coefficient was fitted to these rows, and no fit has a model whose attention chooses. GPUStack
measured DeepSeek V3.2 on eight H200, and the cookbook of SGLang has DeepSeek V4 without guesses.
Predicted over measured, as a geometric mean, and the rows within their 90 % bands.

That a kernel computes whole tiles of query heads, and multiplies latent entries as they are, was
added because of these rows; both are read off the source of vLLM, and nothing was chosen to match
([decision 116](decisions/0116-tiles-of-query-heads.md)). Before that vLLM's runs with prompts of
fixed lengths came out 1.21 to 1.96 times as fast as measured.

ShareGPT's 1,000 requests came at once. Their 99th percentiles of 0.7 to 4.2 seconds for a token
look like servers that still compile, though no source says so. V4 Flash computes little for a
token, and is predicted about twice as fast as it is, within its band; what takes the time is not
published. V4 Pro on B200 and B300 is predicted within 7 %.
"""

TABLE: Final = kept_apart.KeptTable(
    "inference_sparse.csv", "with sparse attention", 80, page
)
