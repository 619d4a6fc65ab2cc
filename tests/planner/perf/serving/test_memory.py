"""Weights, KV cache and start-up of a tiny model against what a person counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import Llm, find_model
from planner.perf.common import memory
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving import memory as startup

# Four layers of width 8: 768 parameters of attention, 1,536 of experts, 160 of
# embedding and head, and 100 of all else.
TINY = Llm(
    model="tiny",
    family="tiny",
    params=2564.0,
    active_params=2564.0,
    layers=4,
    hidden=8,
    ffn=16,
    heads=4,
    kv_heads=2,
    head_dim=2,
    vocab=10,
    experts=4,
    experts_per_token=2,
    moe_ffn=4,
    max_context=64,
)
HYBRID = replace(
    TINY,
    window=20,
    window_layers=1,
    attention_layers=3,
    state_layers=1,
    state_bytes=64,
    index_bytes=5,
)


def cut(**words: object) -> ReplicaLayout:
    return ReplicaLayout(
        **{"precision": "bf16", "kv_precision": "bf16", "tp": 1, **words}  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("layout", "by_hand"),
    [
        (cut(), 2 * 2564),
        (cut(tp=4), 2 * 2564 / 4),
        # Attention data parallelism copies all but experts and embedding.
        (cut(tp=4, adp=2), 2 * 868 / 2 + 2 * 1536 / 4 + 2 * 160 / 4),
        # The embedding is on the first stage, the head on the last.
        (cut(tp=4, adp=2, pp=2), (868 + 768) / 2 + 2 * 160 / 4 / 2),
        (cut(pp=4), 2 * (868 + 1536) / 4 + 2 * 160 / 2),
        # mxfp4 quantizes the experts alone: 17 bytes for 32 of their parameters.
        (cut(precision="mxfp4"), 2 * 868 + 1536 * 17 / 32 + 2 * 160),
        (cut(precision="fp4"), (868 + 1536) * 0.5625 + 2 * 160),
    ],
)
def test_weights_are_divided_as_the_layout_says(
    layout: ReplicaLayout, by_hand: float
) -> None:
    assert memory.weight_bytes(TINY, layout) == pytest.approx(by_hand)


def test_a_16_bit_release_is_loaded_whole_and_an_fp8_release_as_it_is() -> None:
    layout = cut(tp=2, pp=2, precision="fp8")
    assert memory.checkpoint_bytes(TINY, layout) == 2 * 2564
    released = replace(TINY, precision="fp8")
    assert memory.checkpoint_bytes(released, layout) == pytest.approx(
        4 * memory.weight_bytes(released, layout)
    )
    int4 = replace(layout, precision="int4")
    assert memory.checkpoint_bytes(TINY, int4) == pytest.approx(
        4 * memory.weight_bytes(TINY, int4)
    )


def test_a_published_count_that_is_rounded_down_takes_nothing_from_attention() -> (
    None
):
    less = replace(TINY, params=2400.0)  # 64 fewer than its matrices have
    assert memory.weight_bytes(less, cut()) == 2 * (768 + 1536 + 160)


def test_latent_attention_of_an_fp4_release_keeps_16_bits() -> None:
    latent = replace(TINY, kv_lora_rank=2, qk_rope_dim=1, params=5000.0)
    attention, embedding, experts = (
        latent.attention_params,
        latent.embedding_params,
        latent.expert_params,
    )
    other = 5000 - attention - embedding - experts
    assert memory.weight_bytes(latent, cut(precision="fp4")) == pytest.approx(
        2 * (attention + embedding) + 0.5625 * (experts + other)
    )
    assert memory.weight_bytes(latent, cut(precision="fp8")) == pytest.approx(
        2 * embedding + 1.00024 * (5000 - embedding)
    )


@pytest.mark.parametrize(
    ("llm", "layout", "token"),
    [
        # K and V of 2 heads of 2 numbers of 2 bytes.
        (TINY, cut(), 2 * 2 * 2 * 2),
        (TINY, cut(tp=2), 2 * 2 * 1 * 2),
        (TINY, cut(tp=4), 2 * 2 * 1 * 2),  # repeated
        (TINY, cut(tp=4, adp=4), 2 * 2 * 2 * 2),
        (TINY, cut(kv_precision="fp8"), 2 * 2 * 2),
        (replace(TINY, kv_heads=3), cut(tp=2), 2 * 2 * 2 * 2),
        (replace(TINY, kv_lora_rank=6, qk_rope_dim=3), cut(tp=4), 18),
        (
            replace(TINY, kv_lora_rank=6, qk_rope_dim=3),
            cut(kv_precision="fp8"),
            9,
        ),
    ],
)
def test_a_token_of_a_layer_has_the_bytes_of_its_heads(
    llm: Llm, layout: ReplicaLayout, token: int
) -> None:
    assert memory.kv_token_bytes(llm, layout) == token


@pytest.mark.parametrize(
    ("llm", "layout", "tokens", "by_hand"),
    [
        (TINY, cut(), 1, 16 * 4 * 16),
        (TINY, cut(), 16, 16 * 4 * 16),
        (TINY, cut(), 17, 16 * 4 * 32),
        # 112 tokens of 2 layers, 32 of the window; half a state; an index of 5 bytes.
        (HYBRID, cut(tp=2), 100, 8 * (2 * 112 + 32) + 64 / 2 + 5 * 112),
        (HYBRID, cut(tp=2, pp=2), 100, (8 * 256 + 32 + 560) / 2),
        (HYBRID, cut(), 16, 16 * 3 * 16 + 64 + 5 * 16),  # within the window
    ],
)
def test_a_sequence_takes_whole_pages_windows_states_and_an_index(
    llm: Llm, layout: ReplicaLayout, tokens: float, by_hand: float
) -> None:
    assert memory.kv_bytes(llm, layout, tokens) == by_hand


def card(
    gib: float = 80.0, year: float = 2026.4, **words: object
) -> startup.VllmAccelerator:
    return startup.VllmAccelerator(
        total_gib=gib,
        software_year=year,
        memory_share=0.9,
        **words,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("accelerator", "context", "tokens", "sequences"),
    [
        # vLLM 0.8 and older: a whole context, or chunks of one beyond 32,768.
        (card(year=2024.0), 1000, 2048, 256),
        (card(year=2024.0), 4096, 4096, 256),
        (card(year=2024.0), 32_768, 32_768, 256),
        (card(year=2024.0), 32_769, 2048, 0),
        # Later: by the memory, from 70 GiB on, without the A100.
        (card(69.9), 32_769, 2048, 256),
        (card(70.0), 1000, 8192, 1024),
        (card(80.0, small_defaults=True), 1000, 2048, 256),
    ],
)
def test_the_largest_step_is_the_default_of_vllm_serve(
    accelerator: startup.VllmAccelerator,
    context: int,
    tokens: int,
    sequences: int,
) -> None:
    assert startup.default_limits(accelerator, context) == startup.StepLimits(
        max_tokens=tokens, max_sequences=sequences
    )


def test_a_stated_token_budget_replaces_the_default_and_bounds_the_sequences() -> (
    None
):
    large = card(80.0)
    assert startup.step_limits(large, 1000) == startup.default_limits(
        large, 1000
    )
    for budget, sequences in ((16_384, 1024), (1024, 1024), (1000, 1000)):
        assert startup.step_limits(large, 1000, budget) == startup.StepLimits(
            max_tokens=budget, max_sequences=sequences
        )


def test_larger_steps_leave_less_memory_to_the_cache() -> None:
    """Llama 3.1 70B over four H100: a step of T tokens takes 2 T (3 ffn / 4 + 3 hidden) bytes."""
    llm = find_model("llama-3.1-70b")
    node = Node(
        accelerator=accelerators()["h100-sxm"],
        accelerator_count=8,
        memory_gib=79.65,
        compute_fraction=1.0,
        scaleup_link="nvswitch",
        network_gb_s=400.0,
    )

    def pool_gib(**words: int) -> float:
        return startup.replica_memory(
            llm, cut(tp=4), node, 2026.25, **words
        ).kv_gib

    assert pool_gib() == pool_gib(token_budget=8192)
    # From here on a step of prompts takes more than sampling 1,024 sequences.
    step_bytes = 2 * (3 * 28_672 / 4 + 3 * 8192)
    assert pool_gib(token_budget=32_768) - pool_gib(
        token_budget=65_536
    ) == pytest.approx(32_768 * step_bytes / 2**30)


@pytest.mark.parametrize(
    ("chip", "link", "small", "has_link"),
    [
        ("a100-80gb-sxm", "nvswitch", True, True),
        ("h100-sxm", "nvswitch", False, True),
        ("h100-pcie", "nvlink_pairs", False, False),
    ],
)
def test_an_accelerator_has_the_defaults_of_its_year(
    chip: str, link: str, small: bool, has_link: bool
) -> None:
    found = startup.vllm_accelerator(
        Node(
            accelerator=accelerators()[chip],
            accelerator_count=8,
            memory_gib=79.0,
            compute_fraction=1.0,
            scaleup_link=link,
            network_gb_s=400.0,
        ),
        4,
        2026.4,
    )
    assert found == startup.VllmAccelerator(
        total_gib=79.0,
        software_year=2026.4,
        memory_share=0.92,
        has_link=has_link,
        small_defaults=small,
    )


@pytest.mark.parametrize(
    ("year", "first"),
    [(1990.0, 2023), (2025.44, 2023), (2025.45, 2025.45), (2030.0, 2026.38)],
)
def test_constants_are_those_of_the_newest_version_of_a_year(
    year: float, first: float
) -> None:
    assert startup.vllm_constants(year)["from_year"] == first


@pytest.mark.parametrize(
    ("tp", "link", "gib"),
    [
        (1, True, 0.13),
        (1, False, 0.13),
        (2, True, 0.55),
        (7, True, 0.55),
        (8, True, 1.4),
        (16, True, 1.4),
        (2, False, 0.21),
        (8, False, 0.21),
    ],
)
def test_collectives_take_buffers_by_their_width_and_link(
    tp: int, link: bool, gib: float
) -> None:
    """vLLM 0.9 to 0.16."""
    accelerator = card(year=2025.5, has_link=link)
    assert startup.non_torch_gib(cut(tp=tp), accelerator) == gib
    linked = startup.non_torch_gib(cut(tp=tp), card(year=2025.5))
    assert (linked == gib) == (link or tp == 1)


@pytest.mark.parametrize(
    ("llm", "layout", "by_hand"),
    [
        # Cosine and sine of 64 positions, of as many numbers as a head.
        (TINY, cut(tp=2), 64 * 2 * 2),
        # From 4 ranks on 2 KV heads are repeated: half of K and V is a copy.
        (TINY, cut(tp=4), 256 + 2 * 4 * 8 * 2 * 2 * 0.5),
        (TINY, cut(tp=4, pp=2), 256 + 128 / 2),
        (TINY, cut(tp=4, adp=2), 256),
        (
            replace(TINY, attention_layers=3),
            cut(tp=8),
            256 + 2 * 3 * 8 * 2 * 2 * 0.75,
        ),
        (replace(TINY, kv_lora_rank=6, qk_rope_dim=3), cut(tp=4), 64 * 3 * 2),
        (replace(TINY, kv_heads=0), cut(tp=4), 256),
        (replace(TINY, kv_heads=1), cut(tp=2), 256 + 2 * 4 * 8 * 2 * 2 * 0.5),
    ],
)
def test_vllm_loads_a_rotary_table_and_repeats_heads(
    llm: Llm, layout: ReplicaLayout, by_hand: float
) -> None:
    beside = startup.vllm_weight_bytes(llm, layout) - memory.weight_bytes(
        llm, layout
    )
    assert beside == pytest.approx(by_hand)


DENSE = replace(TINY, experts=0, experts_per_token=0, moe_ffn=0)


@pytest.mark.parametrize(
    ("llm", "layout", "year", "tokens", "sequences", "by_hand"),
    [
        # 37.5 bytes of a logit, of 64 columns: 10 are padded; and the hidden states.
        (DENSE, cut(), 2025.5, 100, 256, 37.5 * 100 * 64 + 2 * 100 * 8),
        (DENSE, cut(), 2025.5, 300, 256, 37.5 * 256 * 64 + 2 * 300 * 8),
        (
            replace(DENSE, vocab=65),
            cut(),
            2025.5,
            100,
            256,
            37.5 * 100 * 128 + 1600,
        ),
        # No sampling in the profile: gate, up and product, and three hidden states.
        (DENSE, cut(), 2025.5, 100, 0, 2 * 100 * (3 * 16 + 3 * 8)),
        (DENSE, cut(tp=2), 2025.5, 100, 0, 2 * 100 * (3 * 16 / 2 + 3 * 8)),
        (DENSE, cut(tp=2, adp=2), 2025.5, 100, 0, 2 * 100 * (3 * 16 + 3 * 8)),
        # The first of two stages has no head, and sends two 16-bit tensors.
        (
            DENSE,
            cut(pp=2),
            2025.5,
            100,
            256,
            2 * 100 * (3 * 16 + 3 * 8) + 4 * 100 * 8,
        ),
        # Experts of two: 8 and 2 * 4 wide, or 8 and 2 * 20 when those are wider.
        (TINY, cut(), 2025.5, 100, 0, 2 * 100 * 3 * 8 + 2 * 100 * 2 * (8 + 8)),
        (replace(TINY, moe_ffn=3), cut(), 2025.5, 100, 0, 4800 + 400 * (8 + 8)),
        (
            replace(TINY, moe_ffn=20),
            cut(),
            2025.5,
            100,
            0,
            4800 + 400 * (20 + 40),
        ),
        (
            replace(TINY, moe_ffn=20),
            cut(tp=2),
            2025.5,
            100,
            0,
            4800 + 400 * (10 + 20),
        ),
        (replace(TINY, precision="mxfp4"), cut(), 2025.5, 100, 0, 4800),
        # From vLLM 0.17 on the workspace stays while sampling.
        (TINY, cut(), 2025.5, 100, 1, max(37.5 * 64 + 1600, 4800 + 6400)),
        (TINY, cut(), 2025.5, 100, 9, 37.5 * 9 * 64 + 1600),
        (TINY, cut(), 2026.15, 100, 9, 37.5 * 9 * 64 + 1600),
        (TINY, cut(), 2026.16, 100, 9, 14.2 * 9 * 64 + 1600 + 6400),
    ],
)
def test_a_profiling_run_peaks_at_sampling_or_in_a_layer(
    llm: Llm,
    layout: ReplicaLayout,
    year: float,
    tokens: int,
    sequences: int,
    by_hand: float,
) -> None:
    step = startup.StepLimits(max_tokens=tokens, max_sequences=sequences)
    assert startup.activation_bytes(llm, layout, year, step) == pytest.approx(
        by_hand
    )


@pytest.mark.parametrize(
    ("sequences", "graphs"), [(511, 0.3), (512, 0.5), (1024, 0.5)]
)
def test_what_is_left_of_the_share_of_vllm_is_its_pool(
    sequences: int, graphs: float
) -> None:
    """Llama 3.1 8B under vLLM of 2026.4 with 8,192 tokens a step."""
    llm, layout = find_model("llama-3.1-8b"), cut()
    step = startup.StepLimits(max_tokens=8192, max_sequences=sequences)
    found = startup.startup_memory(llm, layout, card(), step)
    weights = startup.vllm_weight_bytes(llm, layout)
    activation = startup.activation_bytes(llm, layout, 2026.4, step)
    assert found.total_gib == 80
    assert found.weights_gib == pytest.approx(weights / 2**30)
    assert found.activation_gib == pytest.approx(activation / 2**30 + 0.08)
    assert found.non_torch_gib == 0.26
    assert found.graph_gib == graphs
    assert found.overhead_gib == pytest.approx(
        found.activation_gib + 0.26 + graphs
    )
    assert found.kv_gib + found.overhead_gib + found.weights_gib == (
        pytest.approx(0.9 * 80)
    )
    # 32 layers of 16 tokens of 4,096 bytes: one block takes 2 MiB.
    assert found.kv_tokens == int(found.kv_gib * 1024 / 2) * 16
    assert found.max_sequences == sequences


def test_a_model_that_does_not_fit_has_no_tokens() -> None:
    found = startup.startup_memory(
        find_model("llama-3.1-70b"), cut(), card(), startup.SMALL_STEP
    )
    assert found.kv_gib < -60
    assert found.kv_tokens == 0


@pytest.mark.parametrize(
    ("llm", "layout", "year", "pool", "tokens"),
    [
        # Four layers of 16 tokens of 16 bytes: a block of 1,024 bytes.
        (TINY, cut(), 2026.4, 1024 * 5, 80),
        (TINY, cut(), 2026.4, 1024 * 5 - 1, 64),
        (TINY, cut(pp=2), 2026.4, 1024 * 5, 160),
        # Blocks of latent attention hold 64 tokens.
        (
            replace(TINY, kv_lora_rank=6, qk_rope_dim=2),
            cut(),
            2026.4,
            4096 * 5 + 1024,
            320,
        ),
        # An index of 4 bytes a token, in equal parts on four layers.
        (replace(TINY, index_bytes=4), cut(), 2026.4, 17 * 64 * 50, 800),
        # 3 full and 1 sliding: groups of one, four groups.
        (replace(TINY, window=20, window_layers=1), cut(), 2026.4, 256 * 9, 32),
        # vLLM up to 0.8 keeps all tokens of both kinds, in one group of nine.
        (
            replace(TINY, layers=9, window_layers=4),
            cut(),
            2024.0,
            256 * 90,
            160,
        ),
        # 5 and 4 are within half of each other: two groups of 5, the last padded.
        (
            replace(TINY, layers=9, window_layers=4),
            cut(),
            2026.4,
            256 * 5 * 7,
            48,
        ),
        # 7 and 4 are not: groups of 4, of which 7 layers take two.
        (
            replace(TINY, layers=11, window_layers=4),
            cut(),
            2026.4,
            256 * 84,
            112,
        ),
        # Nor are 6, 4 and 4: four groups of 4.
        (
            replace(
                TINY,
                layers=14,
                attention_layers=10,
                window_layers=4,
                state_layers=4,
                state_bytes=1,
            ),
            cut(),
            2026.4,
            256 * 48,
            48,
        ),
        # Three stages of four layers: the fullest has two.
        (TINY, cut(pp=3), 2026.4, 512 * 5, 80),
        # A state of 1,100 bytes takes 5 times 16 tokens of 16 bytes; 3 + 1 layers in groups of 1.
        (
            replace(TINY, attention_layers=3, state_layers=1, state_bytes=1100),
            cut(),
            2026.4,
            80 * 16 * 9,
            160,
        ),
        (
            replace(TINY, attention_layers=3, state_layers=1, state_bytes=1100),
            cut(tp=2),
            2026.4,
            80 * 8 * 9,
            160,
        ),
        (
            replace(TINY, attention_layers=3, state_layers=1, state_bytes=1100),
            cut(),
            2024.0,
            80 * 16 * 9,
            160,
        ),
    ],
)
def test_a_pool_holds_blocks_of_groups_of_layers(
    llm: Llm, layout: ReplicaLayout, year: float, pool: float, tokens: int
) -> None:
    assert startup.pool_tokens(llm, layout, pool, year) == tokens
