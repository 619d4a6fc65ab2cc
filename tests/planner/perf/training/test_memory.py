"""Memory of a training rank of a tiny model against what a person counts."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import Llm, find_model
from planner.perf.training import memory
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.model_states import (
    adapter_params,
    frozen_bytes,
    local_params,
    model_states,
    optimizers,
)

# 868 parameters in four layers of width 8, and 160 in embedding and head.
DENSE = Llm(
    model="tiny",
    family="tiny",
    params=1028.0,
    active_params=1028.0,
    layers=4,
    hidden=8,
    ffn=16,
    heads=4,
    kv_heads=2,
    head_dim=2,
    vocab=10,
)
# The same and 1,536 parameters in four experts a layer.
EXPERTS = replace(
    DENSE, params=2564.0, experts=4, experts_per_token=2, moe_ffn=4
)
SERIAL = Software(sequence_parallel=False)
TORCH = Software(kernels="compiled")


def tiny(
    llm: Llm = DENSE,
    software: Software | None = None,
    more: dict[str, object] | None = None,
    **layout: object,
) -> Job:
    job = Job(
        llm=llm,
        chip=accelerators()["h100-sxm"],
        layout=ParallelLayout(**layout),  # type: ignore[arg-type]
        software=software or Software(),
        sequence_tokens=32,
        global_batch=64,
        network_bytes_s=50e9,
    )
    return job._replace(**(more or {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "level", "by_hand"),
    [
        (tiny(), "full", 2 * 8),
        (tiny(tp=2), "full", 8),
        (tiny(tp=2, software=SERIAL), "full", 16),
        # 8 h, queries, keys, values and output in 16 bit, six tensors of the MLP.
        (tiny(), "none", 8 * 8 + 2 * (2 * 8 + 2 * 4) + 6 * 16),
        (tiny(tp=2), "none", 208 / 2),
        (tiny(tp=2, software=SERIAL), "none", 64 + 144 / 2),
        (tiny(software=Software(kernels="eager")), "none", 64 + 48 + 8 * 16),
        (tiny(software=Software(kernels="foundry")), "none", 240),
        (tiny(software=Software(kernels="compiled")), "none", 208),
        (tiny(replace(DENSE, mlp_matrices=2)), "none", 64 + 48 + 4 * 16),
        (tiny(software=Software(kernels="megatron21")), "attention", 80 + 144),
        # Scores of 4 heads with 32 tokens.
        (
            tiny(software=Software(kernels="megatron21")),
            "none",
            224 + 5 * 4 * 32,
        ),
        (tiny(), "attention", 208),
        (tiny(), "layer", (16 + 208) / 2),
        (tiny(), "ops", 16 + 2 * (2 * 8 + 4 + 16)),
        (tiny(software=Software(kernels="eager")), "ops", 32 + 72),
        (tiny(tp=2), "ops", 88 / 2),
        (tiny(tp=2, software=SERIAL), "ops", 16 + 72 / 2),
        # Two experts of width 4, and a 16-bit copy before and after each.
        (tiny(EXPERTS), "none", 64 + 48 + 6 * 8 + 2 * 2 * 8 * 2),
        (tiny(replace(EXPERTS, shared_experts=1)), "none", 64 + 48 + 72 + 64),
        (tiny(EXPERTS, tp=2), "none", 224 / 2),
        (tiny(EXPERTS, tp=2, software=SERIAL), "none", 64 + 96 / 2 + 64),
        (tiny(EXPERTS), "ops", 16 + 2 * (16 + 4 + 8) + 64),
    ],
)
def test_a_token_of_a_layer_keeps_what_its_level_says(
    job: Job, level: str, by_hand: float
) -> None:
    assert memory.layer_token_bytes(job, level) == pytest.approx(by_hand)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "stage", "batches"),
    [
        ({}, 0, 1),
        ({"pp": 4}, 0, 4),
        ({"pp": 4}, 1, 3),
        ({"pp": 4}, 3, 1),
        ({"pp": 4, "vpp": 2}, 0, 4 * (1 + 3 / 8)),
        ({"pp": 4, "vpp": 2}, 3, 5.5 - 3),
        ({"pp": 4, "dp": 32}, 0, 2),  # a step has no more
        ({"pp": 4, "vpp": 2, "dp": 64}, 0, 1),
    ],
)
def test_a_stage_stores_the_micro_batches_that_wait_for_their_backward(
    layout: dict[str, object], stage: int, batches: float
) -> None:
    job = tiny(**layout)  # type: ignore[arg-type]
    assert memory.in_flight(job, stage) == pytest.approx(batches)
    each = 32 * 208 * 4 / job.layout.pp
    assert memory.activation_total(job, stage) == pytest.approx(each * batches)
    adapters = job._replace(frozen_bytes=2.0)
    assert memory.activation_total(adapters, stage) == pytest.approx(
        0.75 * each * batches
    )


@pytest.mark.parametrize(
    ("layout", "more", "by_hand"),
    [
        ({"sharding": "none", "dp": 8}, {}, 0),
        ({"sharding": "zero1", "dp": 8}, {}, 0),
        ({"sharding": "zero3"}, {}, 0),
        ({"sharding": "zero3", "cp": 2}, {}, 3 * 160 + 217 * 10),
        # Root of 80 and layers of (514 - 80) / 4 = 108.5 parameters.
        ({"sharding": "zero3", "dp": 8, "tp": 2}, {}, 3 * 80 + 108.5 * 10),
        ({"sharding": "zero2", "dp": 8, "tp": 2}, {}, 108.5 * 6),
        *(
            (
                {"sharding": sharding, "dp": 8, "tp": 2},
                {"optimizer": name},
                root + 108.5 * (copies + gradient),
            )
            for sharding, root, copies in (("zero2", 0, 2), ("zero3", 240, 6))
            for name, gradient in (
                ("adamw-fp32", 4),
                ("muon", 4),
                ("sgd", 4),
                ("adamw-16bit", 0),
                ("adam8bit", 0),
            )
        ),
        # PyTorch keeps weights and fp32 gradients of a whole stage: 868 / 2 + 160 / 2.
        ({"sharding": "zero3", "dp": 8, "pp": 2}, {"software": TORCH}, 6 * 514),
        # ZeRO-2 has its weights whole: they are states, and no copy of them.
        ({"sharding": "zero2", "dp": 8, "pp": 2}, {"software": TORCH}, 4 * 514),
        # Megatron scatters in every micro-batch: a root of 80, two layers of 217 parameters.
        ({"sharding": "zero3", "dp": 8, "pp": 2}, {}, 3 * 80 + 217 * 10),
        ({"sharding": "zero2", "dp": 8, "pp": 2}, {}, 217 * 6),
        ({"sharding": "zero2", "dp": 8}, {"frozen_bytes": 2.0}, 0),
        (
            {"sharding": "zero3", "dp": 8, "tp": 2},
            {"frozen_bytes": 2.0},
            160 + 434,
        ),
        # One matrix of 8 * 16 is unpacked to 16 bit.
        (
            {"sharding": "zero3", "dp": 8, "tp": 2},
            {"frozen_bytes": 0.5},
            160 + 108.5 + 2 * 128 / 2,
        ),
        ({"sharding": "zero3", "dp": 8}, {"frozen_bytes": 1.0}, 320 + 434),
        (
            {"sharding": "zero3", "dp": 8},
            {"llm": EXPERTS},
            3 * 160 + (868 + 1536) / 4 * 10,
        ),
        (
            {"sharding": "zero3", "dp": 8, "pp": 2},
            {"llm": EXPERTS, "software": TORCH},
            6 * (514 + 768),
        ),
        (
            {"sharding": "zero3", "dp": 8},
            {"software": Software(counts_allocated=True)},
            217 * 10,
        ),
    ],
)
def test_fsdp_gathers_what_its_stage_of_zero_says(
    layout: dict[str, object], more: dict[str, object], by_hand: float
) -> None:
    job = tiny(more=more, **layout)  # type: ignore[arg-type]
    assert memory.gathered_bytes(job) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("layout", "software", "work", "logits"),
    [
        # 1.11 times what a layer keeps without scores, for 32 tokens.
        ({}, {}, 1.11 * 32 * 208, 4 * 32 * 10),
        ({"micro": 2.0}, {}, 2 * 1.11 * 32 * 208, 2 * 1280),
        ({}, {"kernels": "megatron21"}, 1.11 * 32 * 224, 1280),
        ({}, {"loss": "eager"}, 1.11 * 32 * 208, 3 * 1280),
        ({}, {"loss": "chunked"}, 1.11 * 32 * 208, 640),
        # Gathered inputs: 8 bytes of the width when collectives overlap, 12 otherwise.
        ({"tp": 2}, {}, 1.11 * 32 * 104 + 8 * 32 * 8, 640),
        (
            {"tp": 2},
            {"tp_overlapped": False},
            1.11 * 32 * 104 + 12 * 32 * 8,
            640,
        ),
        ({}, {"keeps_all_logits": True}, 1.11 * 32 * 208, 1280),
        # 16-bit logits of all 64 micro-batches of a step.
        (
            {"pp": 2},
            {"keeps_all_logits": True},
            1.11 * 32 * 208,
            1280 + 64 * 640,
        ),
        (
            {"pp": 2, "tp": 2},
            {"keeps_all_logits": True},
            1.11 * 32 * 104 + 2048,
            640 + 64 * 320,
        ),
        ({"pp": 2}, {}, 1.11 * 32 * 208, 1280),
    ],
)
def test_the_last_stage_has_the_logits_and_the_first_most_micro_batches(
    layout: dict[str, object],
    software: dict[str, object],
    work: float,
    logits: float,
) -> None:
    job = tiny(software=Software(**software), dp=1, **layout)  # type: ignore[arg-type]
    found = memory.stage_peaks(job)
    ends = sorted({0, job.layout.pp - 1})
    assert len(found) == len(ends)
    for stage, peak in zip(ends, found, strict=True):
        assert peak.model_states == model_states(job).total
        assert peak.gathered_copies == memory.gathered_bytes(job)
        assert peak.activations == memory.activation_total(job, stage)
        assert peak.working_set == pytest.approx(work)
        assert peak.logits == pytest.approx(logits if stage == ends[-1] else 0)
        assert peak.total == pytest.approx(
            peak.model_states
            + peak.gathered_copies
            + peak.activations
            + work
            + peak.logits
        )
    fullest = max(peak.total for peak in found)
    assert memory.fullest_stage(job).total == fullest
    assert memory.peak_gib(job) == pytest.approx(
        1.22 + 1.0444 * fullest / 2**30, abs=1e-12
    )
    counted = job._replace(
        software=replace(job.software, counts_allocated=True)
    )
    assert memory.peak_gib(counted) == pytest.approx(fullest / 2**30)


@pytest.mark.parametrize(
    ("llm", "layout", "dense", "experts"),
    [
        (DENSE, {}, 1028, 0),
        (DENSE, {"tp": 2, "pp": 2}, 868 / 4 + 160 / 2 / 2, 0),
        # A shared embedding is whole on both ends of a pipeline.
        (replace(DENSE, tied=True), {"pp": 2}, (1028 - 80) / 2 + 80, 0),
        (EXPERTS, {"tp": 2}, 514, 1536 / 2),
        (EXPERTS, {"tp": 2, "pp": 2, "ep": 4}, 257, 1536 / 2 / 4),
    ],
)
def test_a_rank_holds_its_part_of_layers_embedding_and_experts(
    llm: Llm, layout: dict[str, object], dense: float, experts: float
) -> None:
    assert local_params(tiny(llm, **layout)) == (dense, experts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("llm", "layout", "by_hand"),
    [
        # 56 of attention: 2 * (8 + 8) + 2 * (8 + 4); 72 of the MLP: 3 * (8 + 16).
        (DENSE, {}, 8 * 4 * (56 + 72)),
        (DENSE, {"tp": 2, "pp": 4}, 512),
        (replace(DENSE, mlp_matrices=2), {}, 8 * 4 * (56 + 48)),
        (replace(EXPERTS, moe_ffn=5), {}, 8 * 4 * (56 + 3 * (8 + 20))),
    ],
)
def test_adapters_are_as_long_as_their_matrices_have_sides(
    llm: Llm, layout: dict[str, object], by_hand: float
) -> None:
    job = tiny(llm, more={"lora_rank": 8}, **layout)  # type: ignore[arg-type]
    assert adapter_params(job) == by_hand


def test_frozen_weights_have_16_or_4_bits() -> None:
    assert [frozen_bytes(m) for m in ("lora", "dpo-lora", "finetune")] == [
        2.0,
        2.0,
        0.0,
    ]
    assert frozen_bytes("qlora") == pytest.approx(0.5 + 1 / 64 + 4 / 64 / 256)
    assert optimizers()["adamw"].total_bytes == 2 + 4 + 12


LORA = {"frozen_bytes": 2.0, "lora_rank": 8}
QLORA = {"frozen_bytes": 0.5, "lora_rank": 8}


@pytest.mark.parametrize(
    ("llm", "layout", "more", "weights", "gradients", "states"),
    [
        (
            DENSE,
            {"dp": 8, "sharding": "none"},
            {},
            2 * 1028,
            4 * 1028,
            12 * 1028,
        ),
        (DENSE, {"dp": 8}, {}, 2056, 4112, 12 * 1028 / 8),
        (DENSE, {"dp": 8, "sharding": "zero2"}, {}, 2056, 514, 1542),
        (DENSE, {"dp": 8, "sharding": "zero3"}, {}, 257, 514, 1542),
        (DENSE, {"dp": 8, "shard_size": 2}, {}, 2056, 4112, 6 * 1028),
        (DENSE, {"dp": 8}, {"fused_backward": True}, 2056, 0, 1542),
        (DENSE, {"dp": 8}, {"offload_states": True}, 0, 0, 0),
        # Ranks with the same experts: 8 * 2 / 4, or 8 when tp divides each.
        (
            EXPERTS,
            {"dp": 8, "tp": 2, "ep": 4},
            {},
            2 * (514 + 384),
            4 * (514 + 384),
            12 * (514 / 8 + 384 / 4),
        ),
        (
            EXPERTS,
            {"dp": 8, "tp": 2},
            {},
            2 * (514 + 768),
            4 * (514 + 768),
            12 * (514 + 768) / 8,
        ),
        (
            EXPERTS,
            {"ep": 4},
            {},
            2 * (1028 + 384),
            4 * (1028 + 384),
            12 * (1028 + 384),
        ),
        # A frozen copy in 16 bit; it is sharded by ZeRO-3 alone.
        (DENSE, {"dp": 8}, {"reference": "copy"}, 2 * 2056, 4112, 1542),
        (
            DENSE,
            {"dp": 8, "sharding": "zero3"},
            {"reference": "copy"},
            2 * 257,
            514,
            1542,
        ),
        (DENSE, {"dp": 8}, {"reference": "base"}, 2056, 4112, 1542),
        # Adapters of 4,096 parameters are trained, all else is frozen.
        (DENSE, {"dp": 8}, LORA, 2056 + 8192, 16_384, 12 * 512),
        (
            DENSE,
            {"dp": 8, "sharding": "zero3"},
            LORA,
            257 + 1024,
            2048,
            6144,
        ),
        # 160 of embedding and head stay in 16 bit.
        (DENSE, {"dp": 8}, QLORA, 514 + 240 + 8192, 16_384, 6144),
        (
            DENSE,
            {"dp": 8, "sharding": "zero3"},
            QLORA,
            (514 + 240) / 8 + 1024,
            2048,
            6144,
        ),
        (DENSE, {"dp": 8, "tp": 2}, QLORA, 257 + 120 + 4096, 8192, 3072),
        (
            EXPERTS,
            {"dp": 8, "ep": 4, "tp": 2, "sharding": "zero3"},
            QLORA,
            (257 + 120) / 8 + 192 / 4 + 512,
            1024,
            3072,
        ),
        # A stage of many has fewer parameters than the embedding: 54.25 + 80.
        (
            DENSE,
            {"dp": 8, "pp": 16},
            QLORA,
            134.25 * 2 + 512,
            1024,
            384,
        ),
    ],
)
def test_states_of_a_rank_are_those_of_a_pocket_calculator(
    llm: Llm,
    layout: dict[str, object],
    more: dict[str, object],
    weights: float,
    gradients: float,
    states: float,
) -> None:
    """16-bit weights, fp32 gradients, and 12 bytes of master copy and moments."""
    found = model_states(tiny(llm, more=more, **layout))  # type: ignore[arg-type]
    assert (found.weights, found.gradients, found.optimizer) == (
        pytest.approx((weights, gradients, states))
    )
    assert found.total == pytest.approx(weights + gradients + states)


@pytest.mark.parametrize(
    ("model", "chip", "precision", "layout"),
    [
        # Recipes of Megatron-Bridge 0.4 that recompute and offload nothing.
        ("llama-3.1-405b", "gb200", "mxfp8", "tp4 pp16 vpp8 dp4"),
        ("llama-3.1-405b", "gb200", "fp8", "tp4 pp16 vpp4 dp4"),
        ("llama-3.1-405b", "gb300", "mxfp8", "tp2 pp8 vpp4 cp2 dp8"),
        ("llama-3.1-405b", "h100-sxm", "fp8", "tp8 pp8 vpp8 cp2 dp8"),
        ("llama-3-70b", "h100-sxm", "fp8", "tp4 pp8 vpp5 dp2"),
        ("llama-3-70b", "gb200", "mxfp8", "tp2 pp4 vpp5 dp8"),
        ("qwen3-235b-a22b", "h100-sxm", "fp8", "tp2 pp8 vpp4 ep32 dp16"),
        ("qwen3-235b-a22b", "gb300", "mxfp8", "pp4 vpp12 ep32 dp64"),
    ],
)
def test_published_layouts_that_recompute_nothing_fit(
    model: str, chip: str, precision: str, layout: str
) -> None:
    """Within a twentieth: they ran, most of them with little memory left."""
    stated = dict(re.findall(r"([a-z]+)(\d+)", layout))
    tp, pp, vpp, cp, ep, dp = (
        int(stated.get(name, 1))
        for name in ("tp", "pp", "vpp", "cp", "ep", "dp")
    )
    job = Job(
        llm=find_model(model),
        chip=accelerators()[chip],
        layout=ParallelLayout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, dp=dp),
        software=Software(precision=precision),
        sequence_tokens=4096 if "qwen" in model else 8192,
        global_batch=1536.0,
        network_bytes_s=50e9,
        optimizer="adamw-16bit",
    )
    assert memory.peak_gib(job) < 1.05 * job.chip.memory_gib


@pytest.mark.parametrize("chunks", [1, 2, 8])
def test_meta_s_layout_of_llama_3_1_405b_fits_without_recomputation(
    chunks: int,
) -> None:
    """arXiv:2407.21783, table 4 and section 3.3.2: 16,384 H100, 16 bit, gradients sharded."""
    job = Job(
        llm=find_model("llama-3.1-405b"),
        chip=accelerators()["h100-sxm"],
        layout=ParallelLayout(
            tp=8, pp=16, vpp=chunks, dp=128, sharding="zero2"
        ),
        software=Software(),
        sequence_tokens=8192,
        global_batch=2048.0,
        network_bytes_s=50e9,
    )
    assert memory.peak_gib(job) < job.chip.memory_gib
    # As large as that: it is what the layout was made for.
    assert memory.peak_gib(job) > 0.9 * job.chip.memory_gib


def in_memory(memory_gib: float, layout: ParallelLayout) -> Job:
    chip = replace(accelerators()["h100-sxm"], memory_gib=memory_gib)
    return tiny(
        find_model("llama-3.1-8b"),
        more={"chip": chip, "sequence_tokens": 8192, "layout": layout},
    )


@pytest.mark.parametrize(
    "layout",
    [
        ParallelLayout(dp=8, sharding="zero3"),
        ParallelLayout(tp=4, dp=2, micro=4.0),
        ParallelLayout(tp=2, pp=4, dp=2),
        ParallelLayout(pp=4, vpp=2, dp=4),
    ],
)
def test_recomputation_by_force_is_the_least_that_fits(
    layout: ParallelLayout,
) -> None:
    whole = memory.peak_gib(in_memory(80.0, layout))
    least = memory.peak_gib(in_memory(80.0, layout._replace(recompute="full")))
    between = (2 * whole + least) / 3
    forced = layout._replace(recompute="forced")
    for memory_gib, peak in (
        (whole * 1.01, whole),
        (between, between),
        (least * 0.99, least),
    ):
        job = in_memory(memory_gib, forced)
        assert memory.peak_gib(job) == pytest.approx(peak)
        assert memory.exceeds_memory(job) == (memory_gib < least)
    # A little less than the share of layers that fills memory does not fit.
    shares = [number / 1000 for number in range(1, 1000)]
    fitting = [
        share
        for share in shares
        if not memory.exceeds_memory(
            in_memory(between, layout.with_layer_share(share))
        )
    ]
    filled = in_memory(between, layout.with_layer_share(fitting[0]))
    assert memory.peak_gib(filled) == pytest.approx(between, rel=1e-2)
    assert fitting == shares[-len(fitting) :]


def test_what_is_allocated_leaves_room_for_what_is_reserved() -> None:
    """A run of which allocated memory is counted recomputes as much as any other."""
    layout = ParallelLayout(
        dp=8, sharding="zero3", micro=4.0, recompute="forced"
    )
    job = in_memory(80.0, layout)
    counted = job._replace(
        software=replace(job.software, counts_allocated=True)
    )
    assert memory.peak_gib(job) == pytest.approx(80.0)
    assert memory.peak_gib(counted) == pytest.approx((80.0 - 1.22) / 1.0444)
    assert not memory.exceeds_memory(counted)


def test_groups_of_an_interleaved_pipeline_are_those_that_megatron_takes() -> (
    None
):
    """A last group that is neither whole nor as large as the stages is refused (schedules.py)."""
    for stages in (2, 3, 8):
        for count in range(stages, 40):
            job = tiny(pp=stages, vpp=2, more={"global_batch": float(count)})
            size = memory.microbatch_group(job)
            assert stages <= size <= count
            assert count % size == 0 or count % size >= stages
            smaller = range(stages, size)
            assert all(0 < count % x < stages for x in smaller)
