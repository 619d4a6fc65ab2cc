"""Measured deployments that are kept apart: no fit sees them.

They are of accelerators without a link of their own, as stages of a pipeline and as ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from planner.estimate.inference import predict_inference
from tests.accuracy.adapter import TRUTH
from tests.accuracy.bars import Bar
from tests.accuracy.least import Array
from tests.accuracy.sample import Sample, read
from tests.accuracy.training_apart import group_lines

APART: Final = TRUTH / "inference_pcie.csv"


def read_rows() -> list[Sample]:
    """Return the deployments that are kept apart; raises ValueError when one is refused."""
    samples, refused = read(APART.read_text(encoding="utf-8"))
    if refused:
        raise ValueError(refused[0])
    return samples


def ratios(samples: Sequence[Sample]) -> Array:
    """Return the log of predicted over measured throughput with the table as it stands."""
    return np.array(
        [
            np.log(
                predict_inference(sample.setup).columns["output_tok_s"].value
                / sample.throughput
            )
            for sample in samples
        ]
    )


def bars(samples: Sequence[Sample]) -> Iterator[Bar]:
    """Yield the bars of the deployments that are kept apart."""
    yield Bar(
        f"throughput kept apart, {len(samples)} rows over PCIe, mean",
        100 * float(np.mean(np.abs(np.expm1(ratios(samples))))),
        None,
        20,
    )
    yield Bar(
        f"90 % bands of throughput kept apart, {len(samples)} rows over PCIe: rows inside",
        100 * float(np.mean(_inside(samples))),
        85,
        None,
    )


def _inside(samples: Sequence[Sample]) -> Array:
    """Say of each row whether its band has what was measured."""
    bands = [
        predict_inference(sample.setup).columns["output_tok_s"]
        for sample in samples
    ]
    return np.array(
        [
            band.low <= sample.throughput <= band.high
            for band, sample in zip(bands, samples, strict=True)
        ]
    )


def page(samples: Sequence[Sample]) -> str:
    """Return the part of the page: errors by release, model and layout."""
    ratio = ratios(samples)
    inside = _inside(samples)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        row = sample.row
        groups[
            row["framework_version"],
            row["model"],
            row["pp"],
            row["tp"],
            "yes" if row["attn_dp"] not in ("", "1") else "no",
        ].append(place)
    lines = [
        TEXT,
        "| release | model | stages | ranks of a stage | attention apart | rows | mean error "
        "| bias | inside |",
        "|---|---|--:|--:|---|--:|--:|--:|--:|",
    ]
    lines += group_lines(groups, ratio, inside)
    return "\n".join(lines) + "\n"


TEXT: Final = """## Accelerators over PCIe, kept apart

No coefficient was fitted to these rows: what TensorRT-LLM publishes of RTX PRO 6000, whose
accelerators have PCIe alone, at most throughput. That each stage of a pipeline plans every
micro-batch for itself, and that the last one has the output head, was added because of them; what
it costs is counted from what a step costs without stages. So was the share of PCIe that experts
reach, which is that of an all-reduce
([decision 111](decisions/0111-stages-wait-for-the-last.md)). Releases before 1.1 lose more for
each stage than is predicted.
"""
