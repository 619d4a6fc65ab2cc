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

MI300X by five sources that no fit has. The fits know closed loops on AMD from one source, whose
servers were tuned for its runs ([decision 117](decisions/0117-kernels-of-amd.md)).

The servers of 2026 ran as their recipes start them: the cookbook of SGLang, a pull request to it,
and a recipe of vLLM. In the median they are predicted 1.6 times as fast as they were measured,
within their bands. MiniMax M2.7, whose attention ran by Triton, takes four times as long as
predicted for a token with 1,000 users and more. Three runs whose server still compiled are not
scored.

Until March 2025 engines multiplied experts and latent attention on AMD by general kernels. Those
of AMD are up to three times and 17 times as fast, says AMD, and releases before them are
predicted to be that much slower. Nothing was fitted to dstack's rows of such releases. But they
were seen when two of AMD's four claims were taken, so they do not prove it. Their prompts take
longer still: vLLM's first tokens come five times later than predicted.

Oracle's batches of Llama 3.1 405B in fp8 are predicted within 2 % up to 32 requests, and a third
too fast at 256.
"""

TABLE: Final = kept_apart.KeptTable("inference_amd.csv", "on AMD", 40, page)
