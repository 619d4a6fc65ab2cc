"""The bound of the step time against layouts of software with every trait."""

from __future__ import annotations

import itertools

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.enumeration import cut_families
from planner.perf.training.job import Job, ParallelLayout, Recompute, Software
from planner.perf.training.lower_bound import step_lower_bound
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work

RECOMPUTED: tuple[Recompute, ...] = ("none", "full")
TRAITS = {
    "plain": Software(),
    "stops early": Software(kernels="compiled", stops_early=True),
    "graphs": Software(precision="mxfp8", graph_captured=True),
    "pieces": Software(
        precision="fp8", exchange_overlapped=True, sends_per_expert=True
    ),
    "slow": Software(precision="mxfp8", gradient_slowdown=10.0),
    "experts apart": Software(expert_precision="nvfp4"),
    "row-wise": Software(kernels="compiled", precision="fp8row"),
}


def job_of(model: str) -> Job:
    return Job(
        llm=find_model(model),
        chip=accelerators()["b200-sxm"],
        layout=ParallelLayout(),
        software=Software(),
        sequence_tokens=8192,
        global_batch=96.0,
        network_bytes_s=50e9,
        network_latency_s=30e-6,
    )


@pytest.mark.parametrize("trait", TRAITS)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_no_layout_is_faster_than_its_bound(model: str, trait: str) -> None:
    asked = Job(
        llm=find_model(model),
        chip=accelerators()["b200-sxm"],
        layout=ParallelLayout(),
        software=TRAITS[trait],
        sequence_tokens=4096,
        global_batch=64.0,
        network_bytes_s=50e9,
        network_latency_s=30e-6,
    )
    least = step_lower_bound(asked)
    for tp, pp, ep, recompute in itertools.product(
        (1, 2, 8), (1, 2), (1, 4), RECOMPUTED
    ):
        dp = 32 // (tp * pp)
        if ep > 1 and (not asked.llm.experts or ep > dp * tp):
            continue
        layout = ParallelLayout(
            tp=tp, pp=pp, ep=ep, dp=dp, micro=2.0, recompute=recompute
        )
        one = asked._replace(layout=layout)
        seconds = step_time(rank_work(one), training_coefficients(one)).total
        bound = least.bound_layout(asked, layout, least.comm_bound(one))
        assert 0.2 * seconds < bound <= seconds


@pytest.mark.parametrize("accelerators_used", [32, 96])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_a_family_is_as_fast_as_its_fastest_partition_without_communication(
    model: str, accelerators_used: int
) -> None:
    asked = job_of(model)
    least = step_lower_bound(asked)
    families = cut_families(asked.llm, 96.0, 8192, accelerators_used, 8)
    assert any(len(family.cut_layouts) > 1 for family in families)
    for family in families:
        bounds = [least.bound_cut(asked, cut) for cut in family.cut_layouts]
        assert least.bound_family(asked, family) == pytest.approx(
            min(bounds), rel=1e-12
        )


def test_what_tokens_send_is_a_part_of_all_communication() -> None:
    asked = job_of("qwen3-30b-a3b")
    least = step_lower_bound(asked)
    senders = 0
    for family in cut_families(asked.llm, 96.0, 8192, 96, 8):
        for cut in family.cut_layouts:
            one = asked._replace(layout=cut)
            sent = least.bound_cut(asked, cut, least.sent_bound(asked, cut))
            every = least.bound_cut(asked, cut, least.comm_bound(one))
            assert least.bound_cut(asked, cut) <= sent <= every
            senders += sent > least.bound_cut(asked, cut)
    assert senders
