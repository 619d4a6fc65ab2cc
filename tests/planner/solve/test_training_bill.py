"""The bill of a training run, counted again event by event by a second implementation."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.cost.lifetime import release_time
from planner.perf.common.constant import constant
from planner.perf.reliability import interruption, simulated_run
from planner.perf.reliability.interruption import Hazard
from planner.solve.training.cluster import Cluster
from planner.solve.training.transfer import object_bytes_s
from stacks.runtime.vm.node.retention import expired_checkpoints
from tests.conftest import find, present
from tests.planner.solve.test_training import (
    CATALOG,
    offer_of,
    searched,
    text,
)

DAY = 86_400.0
JOBS = {
    "70B on demand": text(MODEL="llama-3.1-70b", TOKENS="200B", DEADLINE="60d"),
    "70B on spot": text(
        MODEL="llama-3.1-70b", TOKENS="200B", DEADLINE="60d", SPOT="only"
    ),
    "8B, one machine": text(TOKENS="2B", METHOD="finetune"),
    "8B, adapters": text(TOKENS="50M", METHOD="lora"),
    "8B, a small dataset of an hour": text(
        TOKENS="100M", METHOD="finetune", DEADLINE="1d"
    ),
    "405B with a file system": text(
        MODEL="llama-3.1-405b", TOKENS="300B", DEADLINE="60d"
    ).replace('/tokens"', '/tokens", storage: parallel'),
    "8B, a checkpoint every ten minutes": text(
        TOKENS="60B", DEADLINE="60d"
    ).replace("train: {", "train: {checkpoint: 10m, keep_last: 5, "),
}


class Replay:
    """A clock of one machine that goes through a run from event to event.

    Each event says how long it takes and whether the machine is paid for meanwhile. A stop is an
    event of its mean: the chance of one in a short time, times what it costs.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hazard = cluster.hazard
        self.now_s = 0.0
        self.paid_s = 0.0
        self.names: list[str] = []
        self.byte_s = 0.0

    def passes(self, seconds: float, *, is_paid: bool = True) -> None:
        """Let time pass: what lies in storage lies there for so long."""
        held = (
            self.cluster.requirement.data_bytes
            + len(self.names) * self.cluster.checkpoint_bytes
        )
        self.byte_s += held * seconds
        self.now_s += seconds
        self.paid_s += seconds if is_paid else 0.0

    def segment(self, work_s: float, save_s: float) -> None:
        """Work and then save: the mean over stops, each of which begins the segment again.

        In each of many short times either nothing happens, or a stop: the part of the segment that
        was done is lost, the machines wait and start again. Expected visits of each time are
        counted from the last one backwards.
        """
        stops_per_s = self.hazard.failures_per_s + self.hazard.reclaims_per_s
        slices = 400
        slice_s = (work_s + save_s) / slices
        survives = math.exp(-stops_per_s * slice_s)
        tries = survives**-slices
        # The clock runs in a slice for as long as nothing has happened in it.
        run_s = sum(
            tries
            * survives**index
            * ((1 - survives) / stops_per_s if stops_per_s else slice_s)
            for index in range(slices)
        )
        stops = tries - 1
        is_reclaim = (
            self.hazard.reclaims_per_s / stops_per_s if stops_per_s else 0.0
        )
        self.passes(run_s + stops * self.hazard.restart_s)
        self.passes(stops * is_reclaim * self.hazard.wait_s, is_paid=False)

    def saved(self, step: int, span_steps: int) -> None:
        """A checkpoint is in the bucket, and the machines delete what is not kept."""
        self.names.append(f"iter_{step:07d}")
        keep_last = self.cluster.requirement.retention.keep_last
        for name in expired_checkpoints(self.names, keep_last, span_steps):
            self.names.remove(name)


def replayed(cluster: Cluster) -> Replay:
    """Boot, load, train with stops, save for the last time, and be given back."""
    replay = Replay(cluster)
    need = cluster.requirement
    machine = cluster.offer.instance
    replay.passes(constant("boot"))
    replay.passes(
        need.loaded_bytes / object_bytes_s(machine, cluster.nodes, "read")
    )
    # Filling, or fetching ahead, is what is left of the start.
    replay.passes(cluster.startup_s - replay.now_s)
    assert replay.now_s >= constant("boot")
    interval_s = cluster.checkpoint_interval_s
    whole = math.floor(cluster.progress_s / interval_s + 1e-9)
    # Steps are counted in thousandths of an interval: the rule of the machines goes by steps.
    span_steps = max(1, round(need.retention.keep_every_s / interval_s * 1000))
    for index in range(1, whole + 1):
        replay.segment(interval_s, cluster.checkpoint_stall_s)
        replay.saved(1000 * index, span_steps)
    replay.segment(cluster.progress_s - whole * interval_s, 0.0)
    replay.passes(
        cluster.checkpoint_bytes
        / cluster.nodes
        / cluster.storage_bytes_s("write")
    )
    if cluster.file_system is not None:
        replay.passes(
            cluster.checkpoint_bytes / object_bytes_s(machine, 1, "write")
        )
    replay.passes(float(release_time("release_s")))
    return replay


@pytest.mark.parametrize("name", JOBS)
def test_a_bill_is_its_hours_replayed_event_by_event(name: str) -> None:
    made = JOBS[name]
    solution = find(CATALOG, made)
    run = present(solution.training_run)
    [pool] = solution.pools
    search, _ = searched(made)
    plain = present(search.build_cluster(offer_of(pool), pool.min_nodes))
    cluster = replace(
        plain,
        file_system=run.storage.file_system,
        spares=run.spare_nodes,
    )
    replay = replayed(cluster)
    lines = {line.name: line for line in present(solution.bill).lines}
    machines = present(solution.bill).lines[0]
    assert float(machines.quantity) == pytest.approx(
        pool.nodes * replay.paid_s / 3600, rel=0.01
    )
    stored = replay.byte_s / 1e9 / (730 * 3600)
    # A tenth of a GB-month is a fifth of a cent.
    assert float(lines["object storage"].quantity) == pytest.approx(
        stored, rel=0.01, abs=0.1
    )
    assert run.machine_life.billed_s == pytest.approx(replay.paid_s, rel=0.01)
    # All lines again: hours, GB-months and what is paid by them, at the prices of the bill.
    hours = Decimal(replay.now_s / 3600)
    node_hours = Decimal(pool.nodes * replay.paid_s / 3600)
    by_hours = {"NAT gateway": hours, "public address": hours}
    total = Decimal(0)
    for line in present(solution.bill).lines:
        if line.usd is None or line.unit_price is None:
            continue
        if line is machines:
            total += node_hours * line.unit_price
        elif line.name == "object storage":
            total += Decimal(stored) * line.unit_price
        elif line.name.startswith("parallel file system"):
            months = hours / 730
            total += (
                months
                * present(run.storage.file_system).capacity_gib
                * line.unit_price
            )
        elif line.name in by_hours and line.unit == "hour":
            total += by_hours[line.name] * line.unit_price
        elif line.kind == "egress":
            total += line.usd
        else:
            # Disks, logs and images go by the hours of machines.
            total += line.usd * node_hours / machines.quantity
    assert float(present(solution.bill).total) == pytest.approx(
        float(total), rel=0.01
    )


def test_the_last_three_and_one_a_day_are_what_a_run_of_weeks_leaves() -> None:
    """Not the thousands of checkpoints of a run of 70B over 2T tokens."""
    made = text(MODEL="llama-3.1-70b", TOKENS="2T", DEADLINE="60d")
    run = present(find(CATALOG, made).training_run)
    days = run.machine_life.billed_s / DAY
    assert days > 10
    assert days <= run.checkpoints_kept.left <= days + 4
    left_gb = run.checkpoints_kept.left * run.checkpoint_bytes / 1e9
    assert float(present(run.checkpoints_kept.left_usd_month)) == pytest.approx(
        left_gb * 0.023, rel=0.15
    )
    more = present(
        find(
            CATALOG,
            made.replace("train: {", "train: {keep_last: 10, keep_every: 6h, "),
        ).training_run
    )
    assert more.checkpoints_kept.left > 3.5 * days
    fewer = present(
        find(
            CATALOG,
            made.replace(
                "train: {", "train: {keep_last: 2, keep_every: 730d, "
            ),
        ).training_run
    )
    assert fewer.checkpoints_kept.left == 2


def test_storage_is_shared_by_all_machines_of_an_account() -> None:
    """1,024 machines of AWS do not write 8 TB/s together, nor of any other cloud."""
    for offer in {
        o.provider: o for o in CATALOG.offers if o.instance.network_gbps >= 400
    }.values():
        for direction in ("read", "write"):
            alone = object_bytes_s(offer.instance, 1, direction)
            together = [
                nodes * object_bytes_s(offer.instance, nodes, direction)
                for nodes in (1, 4, 64, 1024)
            ]
            assert together == sorted(together)
            assert together[-1] == pytest.approx(together[-2])
            assert together[-1] < 50e9
            assert 1e9 < alone <= together[1] * (1 + 1e-9)


def test_a_restart_pays_for_loading_its_checkpoint() -> None:
    search, offers = searched(
        text(MODEL="llama-3.1-70b", TOKENS="20B", DEADLINE="30d")
    )
    offer = next(o for o in offers if o.instance.instance_type == "p5.48xlarge")
    clusters = [present(search.build_cluster(offer, n)) for n in (16, 256)]
    for cluster in clusters:
        whole_s = cluster.checkpoint_bytes / object_bytes_s(
            offer.instance, cluster.nodes, "read"
        )
        assert cluster.checkpoint_load_s == pytest.approx(whole_s)
        assert cluster.hazard.restart_s > constant("train_restart") + whole_s
    few, many = clusters
    # Every machine copies the whole checkpoint, and the account gives no more.
    assert many.checkpoint_load_s == pytest.approx(16 * few.checkpoint_load_s)
    assert many.checkpoint_write_s == pytest.approx(few.checkpoint_write_s)


def test_a_batch_that_is_not_stated_is_as_even_as_one_that_is() -> None:
    """4M tokens of 8k are 512 sequences, whether the spec says so or not."""
    for sequence, sequences in (("8k", 512), ("4k", 1024), ("2k", 2048)):
        made = text().replace("sequence: 4k, global_batch: 256", "WHAT")
        unstated = made.replace("WHAT", f"sequence: {sequence}")
        stated = made.replace(
            "WHAT", f"sequence: {sequence}, global_batch: 4M tokens"
        )
        for spec in (unstated, stated):
            search, _ = searched(spec)
            assert search.requirement.global_batch == sequences


def test_a_run_that_is_mostly_spared_ends_when_nothing_stops_it() -> None:
    """Of short runs more than nine in ten see no stop: waiting for spot is not in their end."""
    risk = Hazard(
        failures_per_s=1 / (100 * DAY),
        reclaims_per_s=1 / (40 * DAY),
        restart_s=600.0,
        wait_s=9000.0,
        notice_s=0.0,
    )
    for work_s in (3600.0, 40_000.0):
        told = interruption.finish_quantile(work_s, 3000.0, 20.0, risk, 0.9)
        drawn = simulated_run.simulate_runs(work_s, 20.0, 3000.0, risk)
        assert told == pytest.approx(drawn.end_quantile_s(0.9), rel=1e-3)
        assert told < interruption.finish_quantile(
            work_s, 3000.0, 20.0, risk, 0.999
        )


def test_a_bound_still_holds_after_its_cluster_was_timed() -> None:
    """Offers of one machine type share a search: the second one sees what the first has timed."""
    search, offers = searched(text(TOKENS="2B"))
    for name in ("p5.48xlarge", "p4d.24xlarge"):
        offer = next(o for o in offers if o.instance.instance_type == name)
        for nodes in (1, 2, 8):
            before = search.steps_bound_s(offer.instance, nodes, refined=True)
            cluster = present(search.build_cluster(offer, nodes))
            after = search.steps_bound_s(offer.instance, nodes, refined=True)
            assert before <= after <= cluster.steps_s * (1 + 1e-9)
            assert search.build_cluster(offer, nodes, after * 1.0001)


def test_spot_machines_are_not_paid_while_they_are_away() -> None:
    """At the highest published rate of reclaims, the same replay counts hours and paid hours."""
    search, offers = searched(
        text(MODEL="llama-3.1-70b", TOKENS="200B", SPOT="only", DEADLINE="300d")
    )
    offer = next(o for o in offers if o.instance.instance_type == "p5.48xlarge")
    calm = present(search.build_cluster(offer, 16))
    cluster = replace(calm, reclaim_rates="high")
    replay = replayed(cluster)
    assert replay.now_s > 1.03 * replay.paid_s
    bill = cluster.expected_bill(search.price_book)
    assert float(bill.lines[0].quantity) == pytest.approx(
        16 * replay.paid_s / 3600, rel=0.01
    )
    assert cluster.expected_s == pytest.approx(replay.now_s, rel=0.01)
