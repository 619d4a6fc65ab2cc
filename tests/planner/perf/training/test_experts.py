"""Tokens that are sent for experts, against every choice of experts."""

from __future__ import annotations

import itertools
from statistics import mean

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.experts import (
    expert_work,
    remote_machines,
    remote_ranks,
)
from planner.perf.training.job import Job, ParallelLayout, Software


def made(ep: int, chosen: int, *, per_expert: bool) -> Job:
    return Job(
        llm=replace(find_model("qwen3-30b-a3b"), experts_per_token=chosen),
        chip=replace(accelerators()["h100-sxm"], link_domain=2),
        layout=ParallelLayout(dp=ep, ep=ep),
        software=Software(sends_per_expert=per_expert),
        sequence_tokens=4096,
        global_batch=64.0,
        network_bytes_s=50e9,
    )


@pytest.mark.parametrize(("ep", "chosen"), [(2, 1), (4, 2), (4, 3), (6, 4)])
def test_a_token_is_sent_as_often_as_in_all_choices(
    ep: int, chosen: int
) -> None:
    """Each expert of a token lies on any rank alike; rank 0 on machine 0 sends."""
    choices = list(itertools.product(range(ep), repeat=chosen))
    by_rank = mean(len(set(picked) - {0}) for picked in choices)
    by_machine = mean(len({x // 2 for x in picked} - {0}) for picked in choices)
    once = made(ep, chosen, per_expert=False)
    assert remote_ranks(once) == pytest.approx(by_rank)
    assert remote_machines(once) == pytest.approx(by_machine)
    often = made(ep, chosen, per_expert=True)
    assert remote_ranks(often) == pytest.approx(
        mean(sum(x != 0 for x in picked) for picked in choices)
    )
    assert remote_machines(often) == pytest.approx(
        mean(sum(x // 2 != 0 for x in picked) for picked in choices)
    )


def test_a_slow_gradient_adds_its_part_of_the_products() -> None:
    """Nine times more for one of nine: three products, three passes of each."""
    job = made(4, 4, per_expert=False)
    slow = job._replace(software=replace(job.software, gradient_slowdown=10.0))
    assert expert_work(job)["slow_passes"] == 0
    assert expert_work(slow)["slow_passes"] == pytest.approx(3.0)
