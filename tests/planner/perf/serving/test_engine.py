"""What a release of an engine does by itself, and which coefficients follow from it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.drafting import drafting, find_draft
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica import Replica
from planner.perf.serving.step import p_norm
from tests.conftest import present

LOAD = ServingLoad(
    prompt_lengths=LengthDistribution(mean_tokens=1000, p95_tokens=3000),
    answer_lengths=LengthDistribution(mean_tokens=200, p95_tokens=600),
)


def node(chip: str) -> Node:
    accelerator = accelerators()[chip]
    return Node(
        accelerator=accelerator,
        accelerator_count=8,
        memory_gib=accelerator.memory_gib,
        compute_fraction=1.0,
        scaleup_link=accelerator.link,
        network_gb_s=100.0,
    )


def layout(precision: str, tp: int = 2) -> ReplicaLayout:
    return ReplicaLayout(precision=precision, kv_precision="bf16", tp=tp)


@pytest.mark.parametrize(
    ("engine_name", "year", "expected"),
    [
        # Release notes of vLLM 0.14.0, 2026-01-20.
        ("vllm", 2025.95, False),
        ("vllm", 2026.06, True),
        ("vllm", None, True),
        # Every release of these that was measured does the same.
        ("sglang", None, False),
        ("trtllm", None, False),
    ],
)
def test_a_release_plans_ahead_as_its_notes_say(
    engine_name: str, year: float | None, expected: bool
) -> None:
    assert find_engine(engine_name, year).plans_ahead is expected


@pytest.mark.parametrize(
    ("chip", "engine_name", "year", "expected"),
    [
        # SGLang 0.4.4 of 2025-03-13 is the first with AMD's own kernels.
        ("mi300x", "sglang", 2025.1, True),
        ("mi300x", "vllm", 2025.1, True),
        ("mi300x", "sglang", 2025.3, False),
        ("mi300x", "vllm", None, False),
        ("h100-sxm", "sglang", 2025.1, False),
    ],
)
def test_amd_had_general_kernels_before_its_own(
    chip: str, engine_name: str, year: float | None, expected: bool
) -> None:
    keys = coefficient_keys(
        layout("fp8"), node(chip), find_engine(engine_name, year)
    )
    assert ("amd early" in keys) is expected


@pytest.mark.parametrize(
    ("chip", "engine_name", "year", "expected"),
    [
        # SGLang 0.5.9 and 0.5.12, between which MI300X got the kernels of MI355X.
        ("mi300x", "sglang", 2026.14, True),
        ("mi325x", "sglang", 2026.14, True),
        ("mi300x", "sglang", 2026.38, False),
        ("mi355x", "sglang", 2026.14, False),
        ("mi300x", "vllm", 2026.14, False),
        # Before AMD's own kernels nothing was fused anywhere.
        ("mi300x", "sglang", 2025.1, False),
    ],
)
def test_mi300x_fused_latent_attention_later_than_its_successor(
    chip: str, engine_name: str, year: float, expected: bool
) -> None:
    keys = coefficient_keys(
        layout("fp8"), node(chip), find_engine(engine_name, year)
    )
    assert ("sglang amd unfused" in keys) is expected


@pytest.mark.parametrize("precision", ["bf16", "fp8", "mxfp4"])
def test_planning_ahead_shortens_a_step_and_changes_nothing_else(
    precision: str,
) -> None:
    ahead = find_engine("vllm")
    waiting = replace(ahead, plans_ahead=False)
    fast, slow = (
        SERVING.select(
            coefficient_keys(layout(precision), node("h100-sxm"), engine),
            engine.software_year,
        )
        for engine in (ahead, waiting)
    )
    assert fast.step_overhead < slow.step_overhead
    assert fast.sequence_overhead < slow.sequence_overhead
    assert fast == replace(
        slow,
        step_overhead=fast.step_overhead,
        sequence_overhead=fast.sequence_overhead,
    )


@pytest.mark.parametrize(
    ("chip", "precision", "unpacks"),
    [
        ("h100-sxm", "mxfp4", True),
        ("a100-80gb-sxm", "int4", True),
        ("a100-80gb-sxm", "fp8", True),
        ("h100-sxm", "fp8", False),
        ("h100-sxm", "bf16", False),
        ("b200-sxm", "mxfp4", False),
    ],
)
def test_weights_are_unpacked_where_no_product_takes_their_format(
    chip: str, precision: str, unpacks: bool
) -> None:
    keys = coefficient_keys(layout(precision), node(chip), find_engine("vllm"))
    assert ("unpacked" in keys) is unpacks


def test_unpacked_weights_hide_products_of_small_batches() -> None:
    """MARLIN keeps most of its gain up to 16 to 32 tokens (arXiv 2408.11743).

    There the products take two to four tenths of the time of the reads on an A10.
    """
    keys = coefficient_keys(
        layout("mxfp4"), node("h100-sxm"), find_engine("vllm")
    )
    unpacked = SERVING.select(keys, 2026.0).overlap
    plain = SERVING.select(keys - {"unpacked"}, 2026.0).overlap
    for product_s in (0.2, 0.4):
        hidden = p_norm(1.0, product_s, unpacked) - 1
        assert hidden < 0.15
        assert hidden < (p_norm(1.0, product_s, plain) - 1) / 2


def test_guesses_from_the_prompt_wait_for_the_tokens_of_a_step() -> None:
    model = find_model("llama-3.3-70b")

    def step_s(method: str) -> float:
        row = present(find_draft(method, model, "llama-3.3-70b"))
        guesses = drafting(row, 0.5)
        load = replace(LOAD, drafting=guesses)
        replica = Replica(model, layout("fp8"), node("h100-sxm"), load)
        return replica.step_times.fixed_s

    alone = Replica(model, layout("fp8"), node("h100-sxm"), LOAD)
    assert step_s("eagle3") == alone.step_times.fixed_s
    assert step_s("ngram") > alone.step_times.fixed_s
