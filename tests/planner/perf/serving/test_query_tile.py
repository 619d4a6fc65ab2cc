"""Kernels of sparse latent attention compute whole tiles of query heads."""

from __future__ import annotations

import pytest

from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.query_tile import computed_heads
from tests.planner.perf.test_serving import node


@pytest.mark.parametrize(
    ("model", "accelerator", "tp", "adp", "heads"),
    [
        # 128 heads over eight ranks are 16, which Hopper pads to 64 and Blackwell to 128.
        ("deepseek-v3.2", "h200-sxm", 8, 1, 64),
        ("deepseek-v3.2", "b200-sxm", 8, 1, 128),
        # A rank that attends for itself has all of them.
        ("deepseek-v3.2", "h200-sxm", 8, 8, 128),
        ("deepseek-v4-flash", "h200-sxm", 4, 1, 64),
        ("deepseek-v4-flash", "h200-sxm", 4, 4, 64),
        # Nothing is published of other kernels.
        ("deepseek-v3.2", "mi300x", 8, 1, 16),
        # Attention that does not choose has kernels for any number of heads.
        ("deepseek-r1", "h200-sxm", 8, 1, 16),
        ("minimax-m3", "h200-sxm", 8, 1, 8),
    ],
)
def test_heads_of_a_rank_fill_tiles(
    model: str, accelerator: str, tp: int, adp: int, heads: float
) -> None:
    llm = find_model(model)
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=tp, adp=adp)
    assert computed_heads(llm, layout, node(accelerator).accelerator) == heads
