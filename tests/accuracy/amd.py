"""Deployments on AMD by sources that no fit has, kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.accuracy import kept_apart
from tests.accuracy.sample import Sample


def page(samples: Sequence[Sample]) -> str:
    """Return the part of the page: errors by model, engine, load and source."""
    return f"{TEXT}\n{kept_apart.table(samples, HEAD, _group)}"


def _group(sample: Sample) -> tuple[str, ...]:
    row = sample.row
    return (
        row["model"],
        f"{row['framework'].split()[0]} {row['framework_version']}".strip(),
        row["source_date"],
        sample.group,
    )


HEAD: Final = ("model", "engine", "measured", "load")
TEXT: Final = """## AMD, kept apart

Deployments of five sources that no fit has, and the latest of InferenceX. That is the only source
of closed loops on AMD in the fits, and its servers were tuned for its runs: DeepSeek-R1 on MI300X,
MI325X and MI355X ([decision 117](decisions/0117-kernels-of-amd.md),
[118](decisions/0118-fused-latent-attention.md)).

What InferenceX measured in September 2026 is kept apart: a release of SGLang that is newer than
any in the fits, and Qwen3.5 397B on MI355X, where these know one other model. DeepSeek-R1 is
predicted 1.06 to 1.19 times as fast as it was measured, and Qwen3.5 1.01 to 1.45 times. Times per
token of these 14 rows err by 12 % in the mean.

The other servers of 2026 ran as their recipes start them: the cookbook of SGLang, a pull request
to it, and a recipe of vLLM. In the median they are predicted 1.56 times as fast as they were
measured. DeepSeek-R1 by SGLang 0.5.7, before its latent attention was fused on MI300X, is
predicted 1.29 times as fast. MiniMax M2.7, whose attention ran by Triton, takes five times as long
as predicted for a token with 1,000 users and more. Four runs whose server compiled or stood still
meanwhile are not scored.

Until March 2025 engines multiplied experts and latent attention on AMD by general kernels. Those
of AMD are up to three times and 17 times as fast, says AMD, and releases before them are
predicted to be that much slower. Nothing was fitted to dstack's rows of such releases. But they
were seen when two of AMD's four claims were taken, so they do not prove it. Their prompts take
longer still: vLLM's first tokens come five times later than predicted.

Oracle's batches of Llama 3.1 405B in fp8 are predicted within 6 % up to 32 requests, and a third
too fast at 256.
"""

TABLE: Final = kept_apart.KeptTable("inference_amd.csv", "on AMD", 40, page)
