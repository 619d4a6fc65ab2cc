"""Deployments kept apart on accelerators without a link of their own, as stages and as ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from tests.accuracy import kept_apart
from tests.accuracy.sample import Sample
from tests.accuracy.training_apart import group_lines


def page(samples: Sequence[Sample]) -> str:
    """Return the part of the page: errors by release, model and layout."""
    ratio = kept_apart.ratios(samples)
    inside = kept_apart.inside(samples)
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

TABLE: Final = kept_apart.KeptTable("inference_pcie.csv", "over PCIe", 20, page)
