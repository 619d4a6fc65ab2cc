"""Formats of the KV cache that an engine has kernels for."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.serving.cache_format import (
    attention_kind,
    cache_formats,
    has_cache_format,
)
from planner.perf.serving.engine import engine_rows


@pytest.mark.parametrize(
    ("model", "chip", "has_kernels"),
    [
        ("llama-3.3-70b", "h100-sxm", True),
        ("llama-3.3-70b", "l4", True),
        # Ampere, Turing and AMD multiply no 8 bit floating point in these kernels.
        ("llama-3.3-70b", "a100-80gb-sxm", False),
        ("llama-3.3-70b", "t4", False),
        ("llama-3.3-70b", "mi300x", False),
        ("deepseek-r1", "h200-sxm", True),
        ("deepseek-r1", "b200-sxm", True),
        # The kernels of latent attention are for data centers.
        ("deepseek-r1", "l40s", False),
        # Windows beside full attention: no row says so.
        ("gpt-oss-120b", "h100-sxm", False),
    ],
)
def test_a_cache_of_8_bits_needs_kernels_of_the_engine(
    model: str, chip: str, *, has_kernels: bool
) -> None:
    chips = accelerators()
    assert (
        has_cache_format("vllm", find_model(model), chips[chip], "fp8")
        is has_kernels
    )
    assert not has_cache_format(
        "unknown", find_model(model), chips[chip], "fp8"
    )


def test_models_are_told_apart_by_their_attention() -> None:
    assert attention_kind(find_model("llama-3.1-8b")) == "full"
    assert attention_kind(find_model("gpt-oss-20b")) == "windows"
    assert attention_kind(find_model("deepseek-r1")) == "latent"


def test_every_format_is_of_a_known_engine() -> None:
    for row in cache_formats():
        assert row.engine in engine_rows()
        assert row.from_capability <= row.to_capability
