"""A cluster for a training job: layout, duration with interruptions, and cost."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.file_system import file_systems
from planner.cost.lifetime import job_lifetime
from planner.perf.common.constant import constant
from planner.perf.reliability import interruption, simulated_run
from planner.perf.reliability.retention import (
    held_checkpoint_s,
    held_checkpoints,
)
from planner.perf.training.work import rank_work
from planner.solve.training.bill import training_bill
from planner.solve.training.feeding import machine_prepare_s
from planner.solve.training.machine_layouts import (
    SHOWN_LAYOUTS,
    fastest_layouts,
    has_fabric,
    layout_searches,
)
from planner.solve.training.step_margin import margin_factor
from planner.solve.training.transfer import file_system_bytes_s, object_bytes_s
from planner.units import BYTES_PER_GB, BYTES_PER_GIB, SECONDS_PER_DAY

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.file_system import FileSystem
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.reliability.interruption import Hazard, ReclaimLevel
    from planner.perf.reliability.simulated_run import RunDistribution
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.training.requirement import TrainingRequirement
    from planner.solve.training.transfer import Direction

# Seconds of data that are fetched before the first step.
PREFETCH_S: Final = 600.0
# Seconds in which a file system of its own takes or gives a checkpoint.
CHECKPOINT_S: Final = 600.0
MAX_SPARES: Final = 8
# On a file system: the newest, one on its way to the bucket, and one being written.
FILE_CHECKPOINTS: Final = 3
# Shares of the runs that end within, and cost, at most what is told of them.
P50_SHARE: Final = 0.5
P90_SHARE: Final = 0.9
# A century: no job is awaited that long, so a longer one is said never to end.
LONGEST_RUN_S: Final = 36_500.0 * SECONDS_PER_DAY


class Cluster(Struct, frozen=True, dict=True):
    """A cluster and the run of a training job on it. All times are in seconds.

    requirement    training job and its limits
    offer          machine type, region, purchase option and price
    nodes          machines that train
    timed_layout   parallel layout with its predicted step time
    file_system    parallel file system for data and checkpoints; `None` is object storage
    spares         idle machines beyond `nodes` that replace failed ones
    reclaim_rates  column of the published spot reclaim rates
    """

    requirement: TrainingRequirement
    offer: Offer
    nodes: int
    timed_layout: TimedLayout
    file_system: FileSystem | None = None
    spares: int = 0
    reclaim_rates: ReclaimLevel = "monthly"

    def with_confidence(self, confidence: float) -> Cluster:
        """Return the cluster at the step time that holds with another confidence."""
        if confidence == self.requirement.confidence:
            return self
        return replace(
            self, requirement=replace(self.requirement, confidence=confidence)
        )

    def bought_by(self, offer: Offer) -> Cluster:
        """Return these machines bought in another way, all in one, without spares."""
        return Cluster(
            self.requirement,
            offer,
            self.nodes,
            self.timed_layout,
            self.file_system,
            reclaim_rates=self.reclaim_rates,
        )

    @cached_property
    def at_median_speed(self) -> Cluster:
        """The cluster at its median step time, without a margin."""
        return self.with_confidence(P50_SHARE)

    @cached_property
    def step_margin(self) -> float:
        """Factor on the step time for the required confidence."""
        return margin_factor(self.requirement, self.timed_layout.job)

    @property
    def accelerator_tokens_per_s(self) -> float:
        """Expected throughput of one accelerator, tokens/s.

        Tokens of a rank in a step, divided by the step time without a margin. Accelerators that
        wait for data reach less: see `reached_tokens_per_s`.
        """
        training_job = self.timed_layout.job
        return (
            rank_work(training_job).tokens / self.timed_layout.step_time.total
        )

    @property
    def reached_tokens_per_s(self) -> float:
        """Expected throughput of one accelerator that its data feed, tokens/s."""
        return (
            self.accelerator_tokens_per_s
            * self.timed_layout.step_time.total
            / self.step_s
        )

    @cached_property
    def steps_s(self) -> float:
        """Time of all optimizer steps with the margin, seconds.

        `work_tokens / (accelerator_tokens_per_s * accelerators) * step_margin`.
        """
        accelerators = self.timed_layout.job.layout.accelerators
        return (
            # Trained tokens, and evaluated ones by the work of a forward pass.
            self.requirement.work_tokens
            / (self.accelerator_tokens_per_s * accelerators)
            * self.step_margin
        )

    @cached_property
    def read_s(self) -> float:
        """Time to read the dataset once with all machines, seconds."""
        return self.requirement.data_bytes / (
            self.nodes * self.storage_bytes_s("read")
        )

    @cached_property
    def prepare_s(self) -> float:
        """Time in which the cores of all machines prepare the data, with the margin, seconds."""
        return (
            machine_prepare_s(self.requirement, self.offer.instance)
            / self.nodes
        )

    @property
    def data_s(self) -> float:
        """Time in which the data of the run come, seconds: they are read while others are made."""
        return max(self.read_s, self.prepare_s)

    @property
    def progress_s(self) -> float:
        """Time of the run without interruptions, seconds.

        `max(steps_s, data_s)`: data come while accelerators train, and the slower one limits.
        """
        return max(self.steps_s, self.data_s)

    @property
    def data_step_s(self) -> float:
        """Expected time in which the data of a step come, without a margin, seconds."""
        return self.at_median_speed.data_s / self.requirement.optimizer_steps

    @property
    def step_s(self) -> float:
        """Expected time of a step without a margin, seconds: that of its data when it waits."""
        return max(self.timed_layout.step_time.total, self.data_step_s)

    @property
    def waiting_share(self) -> float:
        """Share of the time in which accelerators wait for data; 0 where data come in time."""
        return 1 - self.steps_s / self.progress_s

    @property
    def waits_for_cores(self) -> bool:
        """Whether host cores limit the run: storage and accelerators are faster."""
        return self.prepare_s > max(self.steps_s, self.read_s)

    @property
    def required_bytes_s(self) -> float:
        """Bandwidth at which reading does not limit the run, bytes/s of all machines."""
        return self.requirement.data_bytes / max(self.steps_s, self.prepare_s)

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of a full checkpoint."""
        return interruption.checkpoint_bytes(self.timed_layout.job)

    def storage_bytes_s(self, direction: Direction) -> float:
        """Rate of one machine from or to storage while all machines use it, bytes/s."""
        instance = self.offer.instance
        if self.file_system is not None:
            return file_system_bytes_s(instance, self.nodes, self.file_system)
        return object_bytes_s(instance, self.nodes, direction)

    @cached_property
    def checkpoint_write_s(self) -> float:
        """Time to write a checkpoint with all machines at once, seconds."""
        return self.checkpoint_bytes / (
            self.nodes * self.storage_bytes_s("write")
        )

    @cached_property
    def checkpoint_load_s(self) -> float:
        """Time to load a checkpoint after a stop, seconds.

        From a file system every machine reads its part; from object storage every machine copies
        the whole checkpoint, since its part may have been written by another one.
        """
        loading_machines = self.nodes if self.file_system is not None else 1
        return self.checkpoint_bytes / (
            loading_machines * self.storage_bytes_s("read")
        )

    @cached_property
    def closing_s(self) -> float:
        """Time from the last step until the last checkpoint is in the bucket, seconds.

        The first machine copies it from a file system to the bucket.
        """
        if self.file_system is None:
            return self.checkpoint_write_s
        return self.checkpoint_write_s + self.checkpoint_bytes / (
            object_bytes_s(self.offer.instance, 1, "write")
        )

    @property
    def stages_checkpoints(self) -> bool:
        """Whether host memory can stage the part of a checkpoint that a machine writes.

        `ram >= train_staging * checkpoint_bytes / nodes`.
        """
        part_bytes = self.checkpoint_bytes / self.nodes
        return (
            self.offer.instance.ram_gib * BYTES_PER_GIB
            >= constant("train_staging") * part_bytes
        )

    @property
    def checkpoint_stall_s(self) -> float:
        """Time for which a checkpoint stops training, seconds.

        The share `checkpoint_block` of the write when it is staged, else the whole write; at
        least 0.5 s.
        """
        blocking_share = (
            constant("checkpoint_block") if self.stages_checkpoints else 1.0
        )
        # A floor for what each checkpoint costs, however fast the storage.
        return max(0.5, blocking_share * self.checkpoint_write_s)

    @cached_property
    def hazard(self) -> Hazard:
        """Rates of failures and reclaims of the cluster, and the pauses after them.

        A notice counts only when it is at least `checkpoint_write_s` long.
        """
        instance = self.offer.instance
        hazard = interruption.run_hazard(
            self.nodes * instance.machines,
            instance.provider,
            instance.family,
            self.reclaim_rates if self.offer.purchase == "spot" else "never",
            self.spares,
            load_s=self.checkpoint_load_s,
        )
        return (
            hazard
            # A shorter notice saves nothing of the work since a checkpoint.
            if hazard.notice_s >= self.checkpoint_write_s
            else replace(hazard, notice_s=0.0)
        )

    @cached_property
    def checkpoint_interval_s(self) -> float:
        """Time between checkpoints, seconds.

        The interval of the spec, else the one with the largest goodput; at least the time to
        write one, and at most `progress_s`.
        """
        optimal_interval_s = max(
            # A floor, since each checkpoint is also written and stored.
            constant("train_interval", "least"),
            interruption.best_interval(self.checkpoint_stall_s, self.hazard),
        )
        return min(
            max(
                self.requirement.checkpoint_interval_s or optimal_interval_s,
                # One is written before the next is begun.
                self.checkpoint_write_s,
            ),
            # A run shorter than an interval writes one checkpoint at its end.
            max(self.progress_s, 1.0),
        )

    @property
    def goodput(self) -> float:
        """Expected share of time that is progress, between startup and end."""
        return interruption.progress_share(
            self.checkpoint_interval_s, self.checkpoint_stall_s, self.hazard
        )

    @property
    def expected_s(self) -> float:
        """Mean duration of the run, seconds: `startup_s + progress_s / goodput + closing_s`."""
        return (
            self.startup_s + self.progress_s / self.goodput + self.closing_s
            if self.goodput
            else math.inf
        )

    @property
    def ends(self) -> bool:
        """Whether the mean run ends within `LONGEST_RUN_S`.

        Nothing that counts the days of a run may be asked of one that does not: a restart that
        the next stop begins again, almost always, has a mean of any length.
        """
        return self.expected_s <= LONGEST_RUN_S

    @cached_property
    def trials(self) -> RunDistribution:
        """Distribution of simulated runs of this cluster."""
        return simulated_run.simulate_runs(
            self.progress_s,
            self.checkpoint_stall_s,
            self.checkpoint_interval_s,
            self.hazard,
        )

    @cached_property
    def startup_s(self) -> float:
        """Time from the order of the machines to the first step, seconds.

        Boot, the weights that are trained on, then the fill of the file system, or a prefetch
        from object storage to local NVMe of at most `PREFETCH_S` seconds.
        """
        # Every machine copies all weights from the bucket.
        weights_s = self.requirement.loaded_bytes / object_bytes_s(
            self.offer.instance, self.nodes, "read"
        )
        if self.file_system is not None:
            fill_bytes_per_s = (
                constant("lustre_fill_gb_s", self.offer.provider) * BYTES_PER_GB
            )
            return (
                constant("boot")
                + weights_s
                # The dataset is loaded before the first step.
                + self.requirement.data_bytes / fill_bytes_per_s
            )
        # A machine prefetches its share of the data, up to its NVMe size.
        prefetch_bytes = min(
            self.requirement.data_bytes / self.nodes,
            self.offer.instance.nvme_gb * BYTES_PER_GB,
        )
        prefetch_s = prefetch_bytes / self.storage_bytes_s("read")
        return constant("boot") + weights_s + min(prefetch_s, PREFETCH_S)

    def end_quantile_s(self, run_share: float) -> float:
        """Duration that the share `run_share` of the simulated runs keeps, seconds."""
        return (
            self.startup_s
            + self.trials.end_quantile_s(run_share)
            + self.closing_s
        )

    @cached_property
    def estimated_end_s(self) -> float:
        """Duration that holds with the required confidence, by formula, seconds.

        `startup_s` plus the quantile of the time to finish, Daly's mean and a normal quantile of
        the losses, plus `closing_s`.
        """
        run_share = self.requirement.confidence
        finish_s = interruption.finish_quantile(
            self.progress_s,
            self.checkpoint_interval_s,
            self.checkpoint_stall_s,
            self.hazard,
            run_share,
        )
        return self.startup_s + finish_s + self.closing_s

    def billed_s(self, running_s: float) -> float:
        """Time for which a machine is billed that runs until the last checkpoint, seconds.

        The job then says that it is done, and its machines are given back.
        """
        boot_s = constant("boot")
        life = job_lifetime(
            boot_s,
            # Loading counts as work: the job says that its machine is not idle.
            running_s - boot_s,
            self.requirement.shutdown,
            says_done=True,
        )
        return running_s if life is None else life.billed_s

    @property
    def paid_working_s(self) -> float:
        """Mean time between startup and last checkpoint in which machines are paid, seconds.

        Spot machines are not paid while they are reclaimed:
        `max(progress_s, working_s * (1 - reclaims_per_s * wait_s))`.
        """
        working_s = self.expected_s - self.startup_s - self.closing_s
        # Mean time without machines: reclaims, each with a mean wait.
        reclaimed_s = (
            working_s * self.hazard.reclaims_per_s * self.hazard.wait_s
        )
        return max(self.progress_s, working_s - reclaimed_s)

    def expected_bill(self, price_book: PriceBook) -> Bill:
        """Return the bill of the mean run, until the machines are given back."""
        running_s = self.startup_s + self.paid_working_s + self.closing_s
        return self.bill_for_run(
            price_book, self.billed_s(running_s), self.billed_s(self.expected_s)
        )

    def bill_quantile(self, price_book: PriceBook, run_share: float) -> Bill:
        """Return the bill that the share `run_share` of simulated runs keeps."""
        paid_s = self.startup_s + self.trials.paid_quantile_s(run_share)
        return self.bill_for_run(
            price_book,
            self.billed_s(paid_s + self.closing_s),
            self.billed_s(self.end_quantile_s(run_share)),
        )

    def bill_for_run(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """Return the bill of a run that pays each machine for `paid_s` seconds.

        Storage, network and other services are billed for `duration_s` seconds.
        """
        return training_bill(self, price_book, paid_s, duration_s)

    def stored_byte_s(self, duration_s: float) -> float:
        """Bytes in object storage times the seconds for which they lie there.

        The dataset for the whole run, and the checkpoints that are kept. Stops stretch the time
        between checkpoints as they stretch the run.
        """
        working_s = max(
            self.progress_s, duration_s - self.startup_s - self.closing_s
        )
        stretch = working_s / self.progress_s
        held_s = held_checkpoint_s(
            self.requirement.retention,
            self.checkpoint_interval_s * stretch,
            working_s,
        )
        return (
            self.requirement.data_bytes * duration_s
            + self.checkpoint_bytes * held_s
        )

    @property
    def checkpoints_left(self) -> int:
        """Checkpoints that lie in storage when the mean run has ended."""
        stretch = 1 / self.goodput if self.goodput else 1.0
        return held_checkpoints(
            self.requirement.retention,
            self.checkpoint_interval_s * stretch,
            self.progress_s * stretch,
        )

    @property
    def file_system_bytes(self) -> float:
        """Bytes that a parallel file system holds: the dataset and `FILE_CHECKPOINTS`."""
        return (
            self.requirement.data_bytes
            + FILE_CHECKPOINTS * self.checkpoint_bytes
        )

    def storage_options(self) -> list[Cluster]:
        """Return the cluster with each storage option that may be the cheapest.

        `auto` adds file systems only when object storage is slower than the steps, or slower
        than `CHECKPOINT_S` with a checkpoint.
        """
        parallel_required = self.requirement.storage_kind == "parallel"
        is_fast_enough = (
            self.read_s <= max(self.steps_s, self.prepare_s)
            and max(self.checkpoint_write_s, self.checkpoint_load_s)
            <= CHECKPOINT_S
        )
        if not parallel_required and (
            self.requirement.storage_kind == "object" or is_fast_enough
        ):
            return [self]
        needed_bytes_per_s = max(
            self.required_bytes_s,
            # Bandwidth that moves a checkpoint in the target time.
            self.checkpoint_bytes / CHECKPOINT_S,
        )
        parallel_clusters = [
            replace(self, file_system=file_system)
            for file_system in file_systems(
                self.offer.provider,
                needed_bytes_per_s,
                self.file_system_bytes,
            )
        ]
        return (
            parallel_clusters
            if parallel_required
            else [self, *parallel_clusters]
        )

    def with_best_spares(self) -> Cluster:
        """Return the cluster with the spares of the lowest `paid_nodes_ratio`.

        Spot clusters get no spares: spot machines are mostly reclaimed together.
        """
        cheapest = self
        max_spares = 0 if self.offer.purchase == "spot" else MAX_SPARES
        group_nodes = self.requirement.joined_nodes(self.offer.instance)
        if group_nodes is not None:
            # Spares are joined by the same fabric.
            max_spares = min(max_spares, group_nodes - self.nodes)
        if self.offer.reservation is not None:
            max_spares = min(
                max_spares, self.offer.reservation.machines - self.nodes
            )
        for spare_count in range(1, max_spares + 1):
            # So many cost more even if they saved all lost time.
            if self.nodes + spare_count >= cheapest.paid_nodes_ratio:
                break
            candidate = replace(self, spares=spare_count)
            # Each further spare helps less, so the search can stop here.
            if candidate.paid_nodes_ratio >= cheapest.paid_nodes_ratio:
                break
            cheapest = candidate
        return cheapest

    @property
    def paid_nodes_ratio(self) -> float:
        """Paid machine-seconds for each second of progress."""
        return (
            (self.nodes + self.spares) / self.goodput
            if self.goodput
            else math.inf
        )

    def best_layouts(self) -> tuple[TimedLayout, ...]:
        """Return the fastest layouts on these machines, the selected one first."""
        return fastest_layouts(
            layout_searches(self.requirement, self.offer.instance, self.nodes),
            SHOWN_LAYOUTS,
        )

    def without_fabric(self) -> Cluster | None:
        """Return the cluster over the ordinary network, to compare it with the fabric.

        `None` on a single machine, without a fabric, and when no layout fits.
        """
        return self._with_network(ordinary_network=True)

    def without_placement(self) -> Cluster | None:
        """Return the cluster without a placement group, to compare it with placement.

        It reaches the share `placed_apart` of the fabric. `None` as in `without_fabric`.
        """
        # Share of the fabric that machines without a placement group reach.
        return self._with_network(fabric_share=constant("placed_apart"))

    def _with_network(
        self, *, ordinary_network: bool = False, fabric_share: float = 1.0
    ) -> Cluster | None:
        instance = self.offer.instance
        if self.nodes == 1 or not has_fabric(instance):
            return None
        timed_layouts = fastest_layouts(
            layout_searches(
                self.requirement,
                instance,
                self.nodes,
                ordinary_network=ordinary_network,
                fabric_share=fabric_share,
            )
        )
        return (
            replace(self, timed_layout=timed_layouts[0])
            if timed_layouts
            else None
        )
