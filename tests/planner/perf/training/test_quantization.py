"""Operands of 8 bit against tensors that are listed one by one for each rank."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.quantization import quantization_work

TOKENS = 4096.0


def made(precision: str, tp: int = 1, *, trained: bool = True) -> Job:
    return Job(
        llm=find_model("llama-3.1-8b"),
        chip=accelerators()["h100-sxm"],
        layout=ParallelLayout(tp=tp),
        software=Software(precision=precision),
        sequence_tokens=int(TOKENS),
        global_batch=8.0,
        network_bytes_s=50e9,
        frozen_bytes=0.0 if trained else 1.1,
    )


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("precision", ["fp8", "fp8row"])
def test_each_operand_is_read_once_and_written_as_often_as_it_is_used(
    precision: str, tp: int
) -> None:
    """Llama 3.1 8B: 32 layers of 4,096, 32 heads and 8 of keys, an MLP of 14,336."""
    # Inputs of QKV, output, gate with up, and down; whole ones are gathered.
    inputs = [(4096, True), (4096, False), (4096, True), (14336, False)]
    # Gradients of what these products return.
    gradients = [(6144, False), (4096, True), (2 * 14336, False), (4096, True)]
    for name, tensors in (("input", inputs), ("gradient", gradients)):
        moved = 0.0
        for width, is_gathered in tensors:
            held = (
                width if is_gathered and precision == "fp8row" else width / tp
            )
            # 16 bit are read and 8 written; the copy is of the whole tensor.
            moved += 3 * held + (width if is_gathered else width / tp)
        found = quantization_work(made(precision, tp))
        assert found[f"quantized_{name}_bytes"] == pytest.approx(
            32 * TOKENS * moved
        )


def test_frozen_weights_need_no_copy_and_16_bit_nothing() -> None:
    trained = quantization_work(made("fp8"))
    frozen = quantization_work(made("fp8", trained=False))
    for name, moved in trained.items():
        assert frozen[name] == pytest.approx(moved * 3 / 4)
    assert set(quantization_work(made("bf16")).values()) == {0.0}


def test_a_gather_of_16_bit_leaves_the_whole_tensor_to_every_rank() -> None:
    plain = made("fp8", 8)
    loose = plain._replace(
        software=replace(plain.software, sequence_parallel=False)
    )
    row_wise = made("fp8row", 8)
    assert quantization_work(loose) == quantization_work(row_wise)
