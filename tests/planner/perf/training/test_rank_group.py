"""Collectives against ranks that are enumerated one by one, and the wires that they cross.

The oracle numbers ranks as Megatron Core does (tp-cp-ep-dp-pp, experts over neighboring ranks
of a stage), puts each on a machine, and counts what has to cross. It shares no formula with
the program.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.experts import remote_machines, remote_ranks
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.model_states import local_params
from planner.perf.training.sharding import sharding_traffic
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work

BYTES_OF_A_STEP = (
    4  # 16-bit gradients are scattered, 16-bit weights are gathered
)


class Rank(NamedTuple):
    """A rank with the part of each kind of tensor that it holds, and its machine."""

    dense_part: tuple[int, int]
    expert_part: tuple[int, int]
    ring: tuple[int, int, int]
    expert_ring: tuple[int, int]
    data: int
    machine: int


def ranks(layout: ParallelLayout, per_machine: int) -> list[Rank]:
    placed = itertools.product(
        range(layout.pp), range(layout.dp), range(layout.cp), range(layout.tp)
    )
    stage = layout.tp * layout.cp * layout.dp
    return [
        Rank(
            dense_part=(tp, pp),
            expert_part=(number % stage % layout.ep, pp),
            ring=(tp, dp, pp),
            expert_ring=(number % stage // layout.ep, pp),
            data=dp * layout.cp + cp,
            machine=number // per_machine,
        )
        for number, (pp, dp, cp, tp) in enumerate(placed)
    ]


def crossing(
    everyone: list[Rank], parts: Sequence[tuple[int, ...]]
) -> tuple[float, float]:
    """Tensors that pass the link and the network of rank 0 when its group gathers one.

    Each rank holds an equal share. A machine receives what none of its ranks holds, over as
    many network cards as it has ranks of the group; these ranks then tell each other.
    """
    group = [
        x for x, part in zip(everyone, parts, strict=True) if part == parts[0]
    ]
    here = sum(x.machine == everyone[0].machine for x in group)
    return 1 - 1 / here, (len(group) - here) / len(group) / here


def jobs() -> list[tuple[Job, int]]:
    draw = random.Random(7)
    made = []
    for _ in range(60):
        model = find_model(
            draw.choice(("qwen3-30b-a3b", "llama-3.1-8b", "deepseek-v3"))
        )
        tp, cp, pp = (draw.choice((1, 2, 4)) for _ in range(3))
        dp = draw.choice((2, 4, 8, 16))
        ep = draw.choice([x for x in (1, 2, 4, 8, 16, 32) if x <= tp * cp * dp])
        per_machine = draw.choice((1, 2, 4, 8))
        layout = ParallelLayout(
            tp=tp, cp=cp, pp=pp, dp=dp, ep=ep if model.experts else 1
        )
        chip = replace(accelerators()["h100-sxm"], link_domain=per_machine)
        job = Job(
            llm=model,
            chip=chip,
            layout=layout,
            software=Software(),
            sequence_tokens=8192,
            global_batch=64.0,
            network_bytes_s=50e9,
            network_latency_s=30e-6,
        )
        made.append((job, per_machine))
    return made


def test_every_tensor_is_gathered_by_the_ranks_that_share_it() -> None:
    for job, per_machine in jobs():
        everyone = ranks(job.layout, per_machine)
        dense, experts = local_params(job)
        by_part = [(dense, [x.dense_part for x in everyone])]
        if experts:
            parts = (
                [x.expert_part for x in everyone]
                if job.layout.ep > 1
                else by_part[0][1]
            )
            by_part.append((experts, parts))
        crossed = [(p, crossing(everyone, parts)) for p, parts in by_part]
        found = sharding_traffic(job)
        assert found.reduce_link_bytes == pytest.approx(
            BYTES_OF_A_STEP * sum(p * link for p, (link, _) in crossed)
        )
        assert found.reduce_network_bytes == pytest.approx(
            BYTES_OF_A_STEP * sum(p * net for p, (_, net) in crossed)
        )


def test_hybrid_sharding_sums_over_the_ranks_with_the_same_shard() -> None:
    """Ranks of neighboring groups may share a machine, and then a part of the sum stays there."""
    within = 0
    for job, per_machine in jobs():
        if job.layout.ep > 1:
            continue
        everyone = ranks(job.layout, per_machine)
        params = sum(local_params(job))
        for size in (1, 2, 4, 8):
            if job.layout.data_parallel_ranks % size:
                continue
            grouped = job.layout._replace(sharding="zero3", shard_size=size)
            shards = [(*x.dense_part, x.data % size) for x in everyone]
            link, network = crossing(everyone, shards)
            found = sharding_traffic(job.with_layout(grouped))
            summed = BYTES_OF_A_STEP * params / size
            assert found.reduce_link_bytes == pytest.approx(summed * link)
            assert found.reduce_network_bytes == pytest.approx(summed * network)
            within += link > 0
    assert within


def test_rings_and_tensor_groups_cross_machines_where_their_neighbors_do() -> (
    None
):
    for job, per_machine in jobs():
        everyone = ranks(job.layout, per_machine)
        machines: dict[tuple[str, Hashable], set[int]] = defaultdict(set)
        for x in everyone:
            machines["ring", x.ring].add(x.machine)
            machines[
                "tensor", (x.ring[1:], everyone.index(x) // job.layout.tp)
            ].add(x.machine)
        work = rank_work(job)
        for kind, told in (
            ("ring", work.context_on_network),
            ("tensor", work.tensor_network_bytes),
        ):
            crosses = any(
                len(m) > 1 for (k, _), m in machines.items() if k == kind
            )
            assert bool(told) == crosses


def test_a_token_is_sent_once_to_each_rank_and_machine_with_its_experts() -> (
    None
):
    """All choices of two experts out of as many places, one by one."""
    for ep, per_machine in itertools.product((2, 4, 8), (1, 2, 4)):
        job, _ = next((j, m) for j, m in jobs() if j.llm.experts)
        job = job._replace(
            llm=replace(job.llm, experts_per_token=2),
            layout=ParallelLayout(dp=16, ep=ep),
            chip=replace(job.chip, link_domain=per_machine),
        )
        choices = list(itertools.product(range(ep), repeat=2))
        other_ranks = [len(set(c) - {0}) for c in choices]
        other_machines = [
            len({x // per_machine for x in c} - {0}) for c in choices
        ]
        assert remote_ranks(job) == pytest.approx(
            sum(other_ranks) / len(choices)
        )
        assert remote_machines(job) == pytest.approx(
            sum(other_machines) / len(choices)
        )


def test_latency_costs_what_its_messages_wait() -> None:
    """An all-to-all of each layer there and back, forward and backward, and gathers of FSDP."""
    job, _ = next((j, m) for j, m in jobs() if j.llm.model == "qwen3-30b-a3b")
    job = job._replace(
        layout=ParallelLayout(dp=16, ep=16),
        chip=replace(job.chip, link_domain=8),
    )
    c = training_coefficients(job)

    def exchange(latency_s: float) -> float:
        late = job._replace(network_latency_s=latency_s)
        return step_time(rank_work(late), c).token_exchange

    messages = 4 * job.llm.moe_layers * job.micro_batches
    assert exchange(1e-3) - exchange(0.0) == pytest.approx(
        messages * 1e-3 * c.exchange * c.exchange_network
    )
    gathered = job._replace(
        layout=ParallelLayout(dp=16, sharding="zero3"),
        llm=find_model("llama-3.1-8b"),
    )
    # Two gathers and a scatter of each layer over two machines.
    assert sharding_traffic(gathered).shard_latency_s == pytest.approx(
        3 * gathered.llm.layers * gathered.network_latency_s
    )
    # Once a step two collectives of each bucket of 40 million parameters, of which there is one
    # for adapters.
    summed = gathered._replace(layout=ParallelLayout(dp=16, sharding="zero1"))
    buckets = sum(local_params(summed)) / 40e6
    assert sharding_traffic(summed).reduce_latency_s == pytest.approx(
        2 * buckets * summed.network_latency_s
    )
    adapted = summed._replace(frozen_bytes=2.0, lora_rank=8)
    assert sharding_traffic(adapted).reduce_latency_s == pytest.approx(
        2 * summed.network_latency_s
    )
    late, prompt = (
        step_time(rank_work(x), training_coefficients(x)).once_a_step
        for x in (summed, summed._replace(network_latency_s=0.0))
    )
    assert late - prompt == pytest.approx(
        c.zero * sharding_traffic(summed).reduce_latency_s
    )
