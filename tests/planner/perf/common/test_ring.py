"""Rings over several machines: bytes counted hop by hop, and bandwidths that were measured.

The oracle sends the pieces of a tensor around rings as NCCL does: as many rings as ranks in a
machine, each leaving a machine by another NIC. It shares no formula with the program.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.step import step_times
from planner.perf.serving.work import ReplicaProfile, profile_replica
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.fabric import network_bytes_s
from planner.perf.training.forward_pass import forward_time
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.work import RankWork, rank_work
from tests.planner.perf.test_serving import node

TRUTH = Path(__file__).parents[3] / "data" / "truth"
BUSES = list(
    csv.DictReader(
        (TRUTH / "busbw.csv").read_text(encoding="utf-8").splitlines()
    )
)
# Ranks of a group, and accelerators of a machine.
SHAPES = [(16, 8), (16, 4), (8, 4), (8, 2), (4, 1), (8, 8), (4, 8), (2, 1)]
MODEL = find_model("llama-3.1-70b")
# A reduction after attention and one after the MLP, and twice as many halves of one.
REDUCTIONS = 2 * MODEL.layers
TOKEN_BYTES = 2 * MODEL.hidden  # a hidden state in 16 bit


def ring_orders(size: int, per_machine: int) -> list[list[int]]:
    """Each ring goes from machine to machine, and leaves each by another rank."""
    width = min(size, per_machine)
    return [
        [
            machine * width + (first + turn) % width
            for machine in range(size // width)
            for turn in range(width)
        ]
        for first in range(width)
    ]


def ring_traffic(
    size: int, per_machine: int, tensor_bytes: float, rounds: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Bytes that each rank sends in all, and through its NIC, in rounds around all rings.

    A round is a gather or a scatter: size - 1 turns in which every rank passes one piece on.
    """
    sent: dict[int, float] = defaultdict(float)
    by_nic: dict[int, float] = defaultdict(float)
    orders = ring_orders(size, per_machine)
    piece = tensor_bytes / len(orders) / size
    for order in orders:
        for _ in range(rounds * (size - 1)):
            for here, there in zip(order, order[1:] + order[:1], strict=True):
                sent[here] += piece
                if here // per_machine != there // per_machine:
                    by_nic[here] += piece
    return sent, by_nic


def profile(
    tp: int, machine: Node, adp: int = 1, model: str = MODEL.model
) -> ReplicaProfile:
    layout = ReplicaLayout(
        precision="bf16", kv_precision="bf16", tp=tp, adp=adp
    )
    return profile_replica(find_model(model), layout, machine)


def machine_of(
    count: int, nic_gb_s: float = 50.0, name: str = "h100-sxm"
) -> Node:
    return replace(node(name, count), network_gb_s=count * nic_gb_s)


def reduce_seconds(found: ReplicaProfile) -> float:
    """What the all-reduces of one token take beside all else that a token takes."""
    coefficients = SERVING.select(frozenset({"vllm"}))
    silent = replace(found, reduce_bytes=0.0, reduce_network_bytes=0.0)
    return (
        step_times(found, coefficients).token_s
        - step_times(silent, coefficients).token_s
    )


def work(tp: int, per_machine: int, nic_bytes_s: float = 50e9) -> RankWork:
    return rank_work(job(tp, per_machine, nic_bytes_s))


def job(tp: int, per_machine: int, nic_bytes_s: float = 50e9) -> Job:
    chip = replace(accelerators()["h100-sxm"], link_domain=per_machine)
    return Job(
        llm=MODEL,
        chip=chip,
        layout=ParallelLayout(tp=tp, dp=2),
        software=Software(),
        sequence_tokens=4096,
        global_batch=16.0,
        network_bytes_s=nic_bytes_s,
        network_latency_s=0.0,
    )


def tensor_seconds(found: RankWork) -> float:
    """Time of the collectives themselves: whatever of it products hide."""
    coefficients = replace(training_coefficients(job(8, 8)), tensor=1.0)
    return forward_time(found, coefficients).tensor


@pytest.mark.parametrize(("tp", "per_machine"), SHAPES)
def test_a_replica_sends_what_rings_send_rank_by_rank(
    tp: int, per_machine: int
) -> None:
    found = profile(tp, machine_of(per_machine))
    # An all-reduce is a scatter and a gather.
    sent, by_nic = ring_traffic(tp, per_machine, REDUCTIONS * TOKEN_BYTES, 2)
    assert set(sent) == set(range(tp))
    assert sent.values() == pytest.approx([found.reduce_bytes] * tp)
    # Every NIC carries as much as any other.
    assert [by_nic[rank] for rank in range(tp)] == pytest.approx(
        [found.reduce_network_bytes] * tp
    )


@pytest.mark.parametrize(("tp", "per_machine"), SHAPES)
def test_a_training_rank_sends_what_rings_send_rank_by_rank(
    tp: int, per_machine: int
) -> None:
    found = work(tp, per_machine)
    # A gather and a scatter around attention, and around the MLP.
    sent, by_nic = ring_traffic(
        tp, per_machine, 2 * MODEL.layers * 4096 * TOKEN_BYTES, 2
    )
    assert list(sent.values()) == pytest.approx([found.tensor_bytes] * tp)
    assert [by_nic[rank] for rank in range(tp)] == pytest.approx(
        [found.tensor_network_bytes] * tp
    )


@pytest.mark.parametrize(("tp", "per_machine"), SHAPES)
def test_the_slowest_wire_of_a_ring_sets_its_time(
    tp: int, per_machine: int
) -> None:
    coefficients = SERVING.select(frozenset({"vllm"}))
    link_gb_s = 450 if min(tp, per_machine) > 1 else None
    sent, by_nic = ring_traffic(tp, per_machine, REDUCTIONS * TOKEN_BYTES, 2)
    nic_s = max(by_nic.values(), default=0.0) / (
        50e9 * coefficients.network_bandwidth
    )
    link_s = (
        max(sent.values()) / (link_gb_s * 1e9 * coefficients.link_bandwidth)
        if link_gb_s
        else 0.0
    )
    assert reduce_seconds(
        profile(tp, machine_of(per_machine))
    ) == pytest.approx(max(nic_s, link_s))


@pytest.mark.parametrize(
    "row",
    # No replica spans machines without a fabric.
    [row for row in BUSES if row["fabric"] != "none"],
    ids=lambda row: f"{row['types']} x {row['nodes']}",
)
def test_serving_reaches_the_bus_bandwidth_that_was_measured(
    row: dict[str, str],
) -> None:
    """Within a factor of 1.25; of 1.65 on TCPX, which reaches half of its NICs."""
    chip = "b200-sxm" if "b200" in row["types"] else "h100-sxm"
    machine = machine_of(8, float(row["nominal_gb_s"]) / 8, chip)
    found = profile(
        8 * int(row["nodes"]),
        replace(machine, scaleup_link="nvswitch"),
    )
    bus_gb_s = found.reduce_bytes / reduce_seconds(found) / 1e9
    ratio = bus_gb_s / float(row["bus_gb_s"])
    assert abs(math.log(ratio)) < math.log(
        1.65 if row["fabric"] == "tcpx" else 1.25
    )


@pytest.mark.parametrize(
    "row", BUSES, ids=lambda row: f"{row['types']} x {row['nodes']}"
)
def test_training_reaches_the_bus_bandwidth_that_was_measured(
    row: dict[str, str],
) -> None:
    """Within a factor of 1.25, on plain TCP too."""
    machines = int(row["nodes"])
    nic_bytes_s = network_bytes_s(
        row["fabric"], float(row["nominal_gb_s"]) / 8 * 1e9, machines
    )
    found = work(8 * machines, 8, nic_bytes_s)
    bus_gb_s = found.tensor_bytes / tensor_seconds(found) / 1e9
    ratio = bus_gb_s / float(row["bus_gb_s"])
    assert abs(math.log(ratio)) < math.log(1.25)


@pytest.mark.parametrize(("tp", "per_machine"), [(16, 8), (16, 4), (32, 8)])
def test_a_faster_nic_never_slows_a_ring_and_the_link_limits_it(
    tp: int, per_machine: int
) -> None:
    nics_gb_s = [1.0, 5.0, 12.5, 25.0, 50.0, 1e5, 1e6]
    reducing = [
        reduce_seconds(profile(tp, machine_of(per_machine, nic)))
        for nic in nics_gb_s
    ]
    gathering = [
        tensor_seconds(work(tp, per_machine, nic * 1e9)) for nic in nics_gb_s
    ]
    for times in (reducing, gathering):
        assert times == sorted(times, reverse=True)
        # Slow NICs are all that counts, and fast ones do not.
        assert times[0] == pytest.approx(5 * times[1])
        assert times[-1] == pytest.approx(times[-2])
    # With such NICs the ring is that of one machine with a link among all of its ranks.
    assert reducing[-1] == pytest.approx(
        reduce_seconds(profile(tp, machine_of(tp)))
    )
    assert gathering[-1] == pytest.approx(tensor_seconds(work(tp, tp)))


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_group_within_a_machine_does_not_know_the_network(tp: int) -> None:
    alone = profile(tp, machine_of(8))
    assert alone.reduce_network_bytes == 0
    assert alone.machine_link_bytes_per_s == alone.link_bytes_per_s
    assert reduce_seconds(alone) == reduce_seconds(
        profile(tp, machine_of(8, 1.0))
    )
    assert tensor_seconds(work(tp, 8)) == tensor_seconds(work(tp, 8, 1e9))
    assert work(tp, 8).tensor_network_bytes == 0


def test_attention_groups_within_machines_reduce_over_their_links() -> None:
    """Two groups of eight on two machines, and eight groups of two."""
    for adp in (2, 8):
        slow, fast = (
            profile(16, machine_of(8, nic), adp, "deepseek-r1")
            for nic in (1.0, 50.0)
        )
        assert slow.reduce_network_bytes == 0
        assert reduce_seconds(slow) == pytest.approx(reduce_seconds(fast))


def test_an_exchange_between_machines_waits_as_much_longer_as_a_reduction() -> (
    None
):
    """Measured: a step of tensor parallelism over two machines in place of one."""
    layout = ReplicaLayout(
        precision="fp8", kv_precision="bf16", tp=16, adp=16, ep=16
    )
    engine = find_engine("vllm")
    within, between = (
        SERVING.select(
            coefficient_keys(layout, machine_of(count), engine),
            engine.software_year,
        )
        for count in (16, 8)
    )
    assert between.gather_latency / within.gather_latency == pytest.approx(
        between.link_latency / within.link_latency
    )
    assert between.gather_latency > 100e-6


def test_a_ring_that_passes_keys_on_has_one_nic_in_each_machine() -> None:
    """Ring attention sends from rank to rank: only the last one of a machine has the network."""
    cp, tp, per_machine = 8, 2, 8
    found = rank_work(
        job(tp, per_machine)._replace(layout=ParallelLayout(tp=tp, cp=cp, dp=2))
    )
    # Keys and values of a part of the sequence, cut over the heads.
    part_bytes = (
        4096 / cp * 2 * 2 * MODEL.kv_heads / tp * MODEL.head_dim * MODEL.layers
    )
    by_nic: dict[int, float] = defaultdict(float)
    for _ in range(cp - 1):
        for place in range(cp):
            here, there = place * tp, (place + 1) % cp * tp
            if here // per_machine != there // per_machine:
                by_nic[here] += part_bytes
    assert found.context_on_network
    assert len(by_nic) == cp * tp // per_machine
    assert list(by_nic.values()) == pytest.approx(
        [found.context_bytes] * len(by_nic)
    )


def test_more_machines_of_as_many_ranks_are_never_faster() -> None:
    """A group of sixteen on ever smaller machines, each accelerator with its NIC."""
    times = [
        tensor_seconds(work(16, per_machine)) for per_machine in (16, 8, 4, 2)
    ]
    assert times == sorted(times)
    # Half of the ranks in a machine have half of its NICs.
    assert times[2] == pytest.approx(2 * times[1])
    assert times[3] == pytest.approx(2 * times[2])
