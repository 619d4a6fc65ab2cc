"""What ranks that shard the states of a training send each other."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.model_states import (
    adapter_params,
    frozen_bytes,
    local_params,
)
from planner.perf.training.sharding import sharding_traffic

RANKS = 16


def job(method: str, gather_bytes: float = 2.0) -> Job:
    """A dense model that is sharded over machines of one accelerator."""
    return Job(
        llm=find_model("llama-3.1-8b"),
        chip=accelerators()["l40s"],
        layout=ParallelLayout(dp=RANKS, sharding="zero3"),
        software=Software(gather_bytes=gather_bytes),
        sequence_tokens=2048,
        global_batch=float(RANKS),
        frozen_bytes=frozen_bytes(method),
        lora_rank=16,
        network_bytes_s=10e9,
    )


def sent_bytes(job: Job) -> float:
    """Bytes of whole tensors that the ranks gather and scatter in a micro-batch."""
    traffic = sharding_traffic(job)
    assert not traffic.reduce_network_bytes
    return traffic.shard_network_bytes * RANKS / (RANKS - 1)


def test_frozen_weights_are_gathered_twice_and_have_no_gradients() -> None:
    for method, weight_bytes in (("lora", 2.0), ("qlora", 0.5)):
        adapted = job(method)
        [dense, _] = local_params(adapted)
        adapters = adapter_params(adapted)
        assert adapters < dense / 100
        weights = sent_bytes(adapted) - 3 * 2 * adapters
        # Four bits have their scales beside them.
        assert weights / dense == pytest.approx(2 * weight_bytes, rel=0.15)
        assert weights / dense >= 2 * weight_bytes


def test_weights_that_train_have_gradients_beside_two_gathers() -> None:
    [dense, _] = local_params(job("full"))
    assert sent_bytes(job("full")) == pytest.approx(6 * dense)
    assert sent_bytes(job("full", gather_bytes=1.0)) == pytest.approx(4 * dense)


def test_a_gather_in_8_bits_makes_four_bits_no_larger() -> None:
    assert sent_bytes(job("qlora", gather_bytes=1.0)) == sent_bytes(
        job("qlora")
    )
    assert sent_bytes(job("lora", gather_bytes=1.0)) < sent_bytes(job("lora"))
