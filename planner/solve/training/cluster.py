"""One cluster for a training job: its layout, its run with everything that stops it, its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from planner.cost.bill import sum_bill
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    egress_lines,
    service_lines,
)
from planner.cost.file_system import file_systems
from planner.cost.weekly_load import HOURS_PER_MONTH
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.common.constant import constant
from planner.perf.common.memory import GIB
from planner.perf.reliability import interruption, simulated_run
from planner.perf.training.error_band import half_width_ln
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.work import rank_work
from planner.solve.training.machine_layouts import (
    SHOWN_LAYOUTS,
    fastest_layouts,
    has_fabric,
    layout_searches,
)

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.bill_line import BillLine
    from planner.cost.file_system import FileSystem
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.reliability.interruption import Hazard, ReclaimLevel
    from planner.perf.reliability.simulated_run import RunDistribution
    from planner.perf.training.job import Job
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.training.requirement import TrainingRequirement

BYTES_PER_GB: Final = 1e9
PREFETCH_S: Final = (
    600.0  # seconds of data that are fetched before the first step
)
CHECKPOINT_WRITE_S: Final = 600.0  # seconds in which a checkpoint is written to a file system of its own
MAX_SPARES: Final = 8  # at most
RETAINED_CHECKPOINTS: Final = 3  # checkpoints that are kept
BAND_Z_SCORE: Final = NormalDist().inv_cdf(0.95)
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
P50_SHARE: Final = 0.5
P90_SHARE: Final = 0.9  # of the runs keep what is told of them


@dataclass(frozen=True)
class Cluster:
    """`nodes` machines of an offer with a layout, and the run on them. Seconds.

    `file_system` is a parallel file system for data and checkpoints; without one both lie on object
    storage. `spares` are machines on top that take the place of one that fails; `reclaim_rates` the
    published reclaims of spot that are counted with.
    """

    requirement: TrainingRequirement
    offer: Offer
    nodes: int
    timed_layout: TimedLayout
    file_system: FileSystem | None = None
    spares: int = 0
    reclaim_rates: ReclaimLevel = "monthly"

    def with_confidence(self, confidence: float) -> Cluster:
        """The same cluster at the speed that holds with another confidence."""
        if confidence == self.requirement.confidence:
            return self
        return replace(
            self, requirement=replace(self.requirement, confidence=confidence)
        )

    @cached_property
    def at_median_speed(self) -> Cluster:
        """The same cluster at the speed that half of the runs reach."""
        return self.with_confidence(P50_SHARE)

    @cached_property
    def step_margin(self) -> float:
        """The factor on the time of a step that the wished confidence asks for."""
        return margin_factor(self.requirement, self.timed_layout.job)

    @property
    def accelerator_tokens_per_s(self) -> float:
        """Expected tokens a second of one accelerator."""
        training_job = self.timed_layout.job
        return (
            rank_work(training_job).tokens / self.timed_layout.step_time.total
        )

    @cached_property
    def steps_s(self) -> float:
        """Seconds of steps alone, with the margin."""
        accelerators = self.timed_layout.job.layout.accelerators
        return (
            self.requirement.work_tokens
            / (self.accelerator_tokens_per_s * accelerators)
            * self.step_margin
        )

    @cached_property
    def read_s(self) -> float:
        """Seconds to read the dataset once, on all machines."""
        return self.requirement.data_bytes / (
            self.nodes * self.storage_bytes_per_s
        )

    @property
    def progress_s(self) -> float:
        """Seconds of steps, or of reading when the data come slower than they are trained."""
        return max(self.steps_s, self.read_s)

    @cached_property
    def storage_bytes_per_s(self) -> float:
        """Bytes/s between a machine and storage when all machines use it."""
        nic_bytes_per_s = (
            self.offer.instance.network_gbps / 8 * BYTES_PER_GB or math.inf
        )
        if self.file_system is not None:
            client_bytes_per_s = (
                constant("lustre_client_gb_s", self.offer.provider)
                * BYTES_PER_GB
            )
            return min(
                nic_bytes_per_s,
                client_bytes_per_s,
                self.file_system.bytes_per_s / self.nodes,
            )
        return min(
            nic_bytes_per_s,
            constant("object_store_gb_s", self.offer.provider) * BYTES_PER_GB,
        )

    @cached_property
    def checkpoint_write_s(self) -> float:
        """Seconds to write a checkpoint, all machines at once."""
        return interruption.checkpoint_bytes(self.timed_layout.job) / (
            self.nodes * self.storage_bytes_per_s
        )

    @property
    def stages_checkpoints(self) -> bool:
        """Whether host memory holds a copy of a machine's part while it is written."""
        part_bytes = (
            interruption.checkpoint_bytes(self.timed_layout.job) / self.nodes
        )
        return (
            self.offer.instance.ram_gib * GIB
            >= constant("train_staging") * part_bytes
        )

    @property
    def checkpoint_stall_s(self) -> float:
        """Seconds for which a checkpoint stops the job; the rest is written behind it."""
        blocking_share = (
            constant("checkpoint_block") if self.stages_checkpoints else 1.0
        )
        return max(0.5, blocking_share * self.checkpoint_write_s)

    @cached_property
    def hazard(self) -> Hazard:
        """What stops the run. A notice counts only when a checkpoint can be written in it."""
        instance = self.offer.instance
        hazard = interruption.run_hazard(
            self.nodes,
            instance.provider,
            instance.family,
            self.reclaim_rates if self.offer.purchase == "spot" else "never",
            self.spares,
        )
        return (
            hazard
            if hazard.notice_s >= self.checkpoint_write_s
            else replace(hazard, notice_s=0.0)
        )

    @cached_property
    def checkpoint_interval_s(self) -> float:
        """Seconds between checkpoints: as asked, or those that lose least."""
        optimal_interval_s = max(
            constant("train_interval", "least"),
            interruption.best_interval(self.checkpoint_stall_s, self.hazard),
        )
        return min(
            self.requirement.checkpoint_interval_s or optimal_interval_s,
            max(self.progress_s, 1.0),
        )

    @property
    def goodput(self) -> float:
        """Share of the time that is progress."""
        return interruption.progress_share(
            self.checkpoint_interval_s, self.checkpoint_stall_s, self.hazard
        )

    @property
    def expected_s(self) -> float:
        """Seconds that the run takes on average."""
        return (
            self.startup_s + self.progress_s / self.goodput
            if self.goodput
            else math.inf
        )

    @cached_property
    def trials(self) -> RunDistribution:
        """A thousand runs."""
        return simulated_run.simulate_runs(
            self.progress_s,
            self.checkpoint_stall_s,
            self.checkpoint_interval_s,
            self.hazard,
        )

    @cached_property
    def startup_s(self) -> float:
        """Seconds until every machine has booted and the first data are where they are read."""
        if self.file_system is not None:
            fill_bytes_per_s = (
                constant("lustre_fill_gb_s", self.offer.provider) * BYTES_PER_GB
            )
            return (
                constant("boot")
                + self.requirement.data_bytes / fill_bytes_per_s
            )
        prefetch_bytes = min(
            self.requirement.data_bytes / self.nodes,
            self.offer.instance.nvme_gb * BYTES_PER_GB,
        )
        return constant("boot") + min(
            prefetch_bytes / self.storage_bytes_per_s, PREFETCH_S
        )

    def end_quantile_s(self, run_share: float) -> float:
        """Seconds from the order of the machines within which this share of the runs ends."""
        return self.startup_s + self.trials.end_quantile_s(run_share)

    @cached_property
    def estimated_end_s(self) -> float:
        """Seconds within which the run ends with the wished confidence, by formula."""
        run_share = self.requirement.confidence
        return self.startup_s + interruption.finish_quantile(
            self.progress_s,
            self.checkpoint_interval_s,
            self.checkpoint_stall_s,
            self.hazard,
            run_share,
        )

    def expected_bill(self, price_book: PriceBook) -> Bill:
        """What the run costs on average, from the first machine to the last checkpoint."""
        working_s = self.expected_s - self.startup_s
        reclaimed_s = (
            working_s * self.hazard.reclaims_per_s * self.hazard.wait_s
        )
        paid_s = self.startup_s + max(self.progress_s, working_s - reclaimed_s)
        return self.bill_for_run(price_book, paid_s, self.expected_s)

    def bill_quantile(self, price_book: PriceBook, run_share: float) -> Bill:
        """The bill that this share of the simulated runs stays within."""
        return self.bill_for_run(
            price_book,
            self.startup_s + self.trials.paid_quantile_s(run_share),
            self.end_quantile_s(run_share),
        )

    def bill_for_run(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """The bill of a run that pays machines for so many seconds, and lasts so long."""
        duration_months = Decimal(duration_s / HOUR_S) / HOURS_PER_MONTH
        total_nodes = self.nodes + self.spares
        paid_hours = paid_node_hours(
            self.offer, total_nodes, paid_s, duration_s
        )
        stored_bytes = self.stored_bytes
        usage = Usage(
            provider=self.offer.provider,
            peak_nodes=total_nodes,
            node_hours=paid_hours,
            running_hours=Decimal(duration_s / HOUR_S),
            cache_gb=self.boot_disk_gb,
            weights_gb=Decimal(stored_bytes / BYTES_PER_GB) * duration_months,
            sent_gb=Decimal(0),
            received_gb=Decimal(0),
            serves_traffic=False,
            network_hours=Decimal(duration_s / HOUR_S),
        )
        cost_lines = [
            machine_line(self.offer, total_nodes, paid_hours, pool="train"),
            *service_lines(usage, price_book),
        ]
        cost_lines += (
            [self.file_system.priced_line(price_book, duration_months)]
            if self.file_system is not None
            else []
        )
        cost_lines += data_egress_lines(
            self.requirement, self.offer.provider, price_book
        )
        return sum_bill(cost_lines, self.offer.usd_hour * total_nodes, "run")

    @property
    def boot_disk_gb(self) -> Decimal:
        """GB of a disk for weights to start from and two parts of checkpoints, without NVMe."""
        weights_bytes = (
            0.0
            if self.requirement.method == "pretrain"
            else BYTES_16BIT * self.requirement.llm.params
        )
        checkpoint_parts_bytes = (
            2
            * interruption.checkpoint_bytes(self.timed_layout.job)
            / self.nodes
            if self.file_system is None
            else 0.0
        )
        return cache_disk_gb(
            self.offer.instance.nvme_gb,
            Decimal((weights_bytes + checkpoint_parts_bytes) / BYTES_PER_GB),
        )

    @property
    def stored_bytes(self) -> float:
        """Bytes that are stored: the dataset, and the checkpoints that are kept."""
        return (
            self.requirement.data_bytes
            + RETAINED_CHECKPOINTS
            * interruption.checkpoint_bytes(self.timed_layout.job)
        )

    def storage_options(self) -> list[Cluster]:
        """The storage that may be used: objects, or file systems that would feed the job."""
        parallel_required = self.requirement.storage_kind == "parallel"
        if not parallel_required and (
            self.requirement.storage_kind == "object"
            or self.read_s <= self.steps_s
        ):
            return [self]
        needed_bytes_per_s = max(
            self.requirement.data_bytes / self.steps_s,
            interruption.checkpoint_bytes(self.timed_layout.job)
            / CHECKPOINT_WRITE_S,
        )
        parallel_clusters = [
            replace(self, file_system=file_system)
            for file_system in file_systems(
                self.offer.provider, needed_bytes_per_s, self.stored_bytes
            )
        ]
        return (
            parallel_clusters
            if parallel_required
            else [self, *parallel_clusters]
        )

    def with_best_spares(self) -> Cluster:
        """The cluster with as many spares as pay for themselves; spot is taken all at once."""
        cheapest = self
        for spare_count in range(1, MAX_SPARES + 1):
            candidate = replace(self, spares=spare_count)
            if (
                self.offer.purchase == "spot"
                or candidate.paid_nodes_ratio >= cheapest.paid_nodes_ratio
            ):
                break
            cheapest = candidate
        return cheapest

    @property
    def paid_nodes_ratio(self) -> float:
        """Machines that are paid for the time that is progress."""
        return (
            (self.nodes + self.spares) / self.goodput
            if self.goodput
            else math.inf
        )

    def best_layouts(self) -> tuple[TimedLayout, ...]:
        """The best layouts on these machines, the chosen one first."""
        return fastest_layouts(
            layout_searches(self.requirement, self.offer.instance, self.nodes),
            SHOWN_LAYOUTS,
        )

    def without_fabric(self) -> Cluster | None:
        """The same machines over the ordinary network: what the fabric is worth."""
        return self._with_network(ordinary_network=True)

    def without_placement(self) -> Cluster | None:
        """The same machines wherever there is room: what placing them together is worth."""
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


def margin_factor(requirement: TrainingRequirement, training_job: Job) -> float:
    """The factor on the time of a step that the wished confidence asks for."""
    z_score = NormalDist().inv_cdf(max(0.5, requirement.confidence))
    return math.exp(half_width_ln(training_job) * z_score / BAND_Z_SCORE)


def data_egress_lines(
    requirement: TrainingRequirement, provider: str, price_book: PriceBook
) -> list[BillLine]:
    """What it costs that the data leave the cloud that holds them, once."""
    if requirement.data_cloud in (None, provider):
        return []
    data_gb = Decimal(requirement.data_bytes / BYTES_PER_GB)
    return egress_lines(
        str(requirement.data_cloud),
        data_gb,
        price_book,
        f"data out of {requirement.data_cloud}",
    )


def paid_node_hours(
    offer: Offer, nodes: int, paid_s: float, duration_s: float
) -> Decimal:
    """Node-hours that are paid: those of the machines, or whole months where one commits."""
    if offer.purchase in COMMITTED_PURCHASES:
        duration_months = Decimal(duration_s / HOUR_S) / HOURS_PER_MONTH
        return HOURS_PER_MONTH * nodes * max(Decimal(1), duration_months)
    return Decimal(paid_s / HOUR_S) * nodes
