"""One cluster for a training job: its layout, its run with everything that stops it, its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from planner.cost.line import Usage, egress, services
from planner.cost.storage import sized
from planner.cost.week import HOURS_PER_MONTH
from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train import run, trial
from planner.perf.train.band import half
from planner.perf.train.memory import HALF
from planner.perf.train.work import work
from planner.solve.bill import COMMITTED, cache_gb, machines, summed
from planner.solve.train.machine import SHOWN, connected, fastest, layouts

if TYPE_CHECKING:
    from planner.cost.line import Line
    from planner.cost.price import PriceBook
    from planner.cost.storage import FileSystem
    from planner.perf.train.job import Job
    from planner.perf.train.run import Hazard, Rates
    from planner.perf.train.search import Laid
    from planner.perf.train.trial import Trials
    from planner.solve.bill import Bill
    from planner.solve.offer import Offer
    from planner.solve.train.need import TrainNeed

GB: Final = 1e9
FIRST: Final = 600.0  # seconds of data that are fetched before the first step
WRITTEN: Final = 600.0  # seconds in which a checkpoint is written to a file system of its own
SPARES: Final = 8  # at most
KEPT: Final = 3  # checkpoints that are kept
TAIL: Final = NormalDist().inv_cdf(0.95)
HOUR: Final = 3600.0
DAY: Final = 86_400.0
EVEN: Final = 0.5
SURE: Final = 0.9  # of the runs keep what is told of them


@dataclass(frozen=True)
class Cluster:
    """`nodes` machines of an offer with a layout, and the run on them. Seconds.

    `store` is a parallel file system for data and checkpoints; without one both lie on object
    storage. `spares` are machines on top that take the place of one that fails; `rates` the
    published reclaims of spot that are counted with.
    """

    need: TrainNeed
    offer: Offer
    nodes: int
    laid: Laid
    store: FileSystem | None = None
    spares: int = 0
    rates: Rates = "monthly"

    def at(self, confidence: float) -> Cluster:
        """The same cluster at the speed that holds with another confidence."""
        if confidence == self.need.confidence:
            return self
        return replace(self, need=replace(self.need, confidence=confidence))

    @cached_property
    def usual(self) -> Cluster:
        """The same cluster at the speed that half of the runs reach."""
        return self.at(EVEN)

    @cached_property
    def margin(self) -> float:
        """The factor on the time of a step that the wished confidence asks for."""
        return margin(self.need, self.laid.job)

    @property
    def speed(self) -> float:
        """Expected tokens a second of one accelerator."""
        training_job = self.laid.job
        return work(training_job).tokens / self.laid.step.total

    @cached_property
    def steps(self) -> float:
        """Seconds of steps alone, with the margin."""
        accelerators = self.laid.job.spread.accelerators
        return self.need.work / (self.speed * accelerators) * self.margin

    @cached_property
    def read(self) -> float:
        """Seconds to read the dataset once, on all machines."""
        return self.need.data_bytes / (self.nodes * self.wire)

    @property
    def progress(self) -> float:
        """Seconds of steps, or of reading when the data come slower than they are trained."""
        return max(self.steps, self.read)

    @cached_property
    def wire(self) -> float:
        """Bytes/s between a machine and storage when all machines use it."""
        nic_bytes_per_s = self.offer.instance.network_gbps / 8 * GB or math.inf
        if self.store is not None:
            client_bytes_per_s = (
                constant("lustre_client_gb_s", self.offer.provider) * GB
            )
            return min(
                nic_bytes_per_s,
                client_bytes_per_s,
                self.store.rate / self.nodes,
            )
        return min(
            nic_bytes_per_s,
            constant("object_store_gb_s", self.offer.provider) * GB,
        )

    @cached_property
    def written(self) -> float:
        """Seconds to write a checkpoint, all machines at once."""
        return run.checkpoint_bytes(self.laid.job) / (self.nodes * self.wire)

    @property
    def staged(self) -> bool:
        """Whether host memory holds a copy of a machine's part while it is written."""
        part_bytes = run.checkpoint_bytes(self.laid.job) / self.nodes
        return (
            self.offer.instance.ram_gib * GIB
            >= constant("train_staging") * part_bytes
        )

    @property
    def save(self) -> float:
        """Seconds for which a checkpoint stops the job; the rest is written behind it."""
        blocking_share = constant("checkpoint_block") if self.staged else 1.0
        return max(0.5, blocking_share * self.written)

    @cached_property
    def risk(self) -> Hazard:
        """What stops the run. A notice counts only when a checkpoint can be written in it."""
        instance = self.offer.instance
        hazard = run.hazard(
            self.nodes,
            instance.provider,
            instance.family,
            self.rates if self.offer.purchase == "spot" else "never",
            self.spares,
        )
        return (
            hazard
            if hazard.notice >= self.written
            else replace(hazard, notice=0.0)
        )

    @cached_property
    def interval(self) -> float:
        """Seconds between checkpoints: as asked, or those that lose least."""
        optimal_interval_s = max(
            constant("train_interval", "least"),
            run.interval(self.save, self.risk),
        )
        return min(
            self.need.checkpoint or optimal_interval_s, max(self.progress, 1.0)
        )

    @property
    def goodput(self) -> float:
        """Share of the time that is progress."""
        return run.effective(self.interval, self.save, self.risk)

    @property
    def expected(self) -> float:
        """Seconds that the run takes on average."""
        return (
            self.start + self.progress / self.goodput
            if self.goodput
            else math.inf
        )

    @cached_property
    def trials(self) -> Trials:
        """A thousand runs."""
        return trial.trials(self.progress, self.save, self.interval, self.risk)

    @cached_property
    def start(self) -> float:
        """Seconds until every machine has booted and the first data are where they are read."""
        if self.store is not None:
            fill_bytes_per_s = (
                constant("lustre_fill_gb_s", self.offer.provider) * GB
            )
            return constant("boot") + self.need.data_bytes / fill_bytes_per_s
        prefetch_bytes = min(
            self.need.data_bytes / self.nodes, self.offer.instance.nvme_gb * GB
        )
        return constant("boot") + min(prefetch_bytes / self.wire, FIRST)

    def within(self, run_share: float) -> float:
        """Seconds from the order of the machines within which this share of the runs ends."""
        return self.start + self.trials.end(run_share)

    @cached_property
    def ends(self) -> float:
        """Seconds within which the run ends with the wished confidence, by formula."""
        run_share = self.need.confidence
        return self.start + run.late(
            self.progress, self.interval, self.save, self.risk, run_share
        )

    def bill(self, price_book: PriceBook) -> Bill:
        """What the run costs on average, from the first machine to the last checkpoint."""
        working_s = self.expected - self.start
        reclaimed_s = working_s * self.risk.reclaims * self.risk.wait
        paid_s = self.start + max(self.progress, working_s - reclaimed_s)
        return self.billed(price_book, paid_s, self.expected)

    def within_bill(self, price_book: PriceBook, run_share: float) -> Bill:
        """The bill that this share of the simulated runs stays within."""
        return self.billed(
            price_book,
            self.start + self.trials.cost(run_share),
            self.within(run_share),
        )

    def billed(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """The bill of a run that pays machines for so many seconds, and lasts so long."""
        duration_months = Decimal(duration_s / HOUR) / HOURS_PER_MONTH
        total_nodes = self.nodes + self.spares
        paid_hours = node_hours(self.offer, total_nodes, paid_s, duration_s)
        stored_bytes = self.held
        usage = Usage(
            provider=self.offer.provider,
            nodes=total_nodes,
            node_hours=paid_hours,
            on_hours=Decimal(duration_s / HOUR),
            cache_gb=self.disk,
            weights_gb=Decimal(stored_bytes / GB) * duration_months,
            sent_gb=Decimal(0),
            received_gb=Decimal(0),
            served=False,
            standing=Decimal(duration_s / HOUR),
        )
        cost_lines = [
            machines(self.offer, total_nodes, paid_hours),
            *services(usage, price_book),
        ]
        cost_lines += (
            [self.store.line(price_book, duration_months)]
            if self.store is not None
            else []
        )
        cost_lines += moved(self.need, self.offer.provider, price_book)
        return summed(cost_lines, self.offer, total_nodes)

    @property
    def disk(self) -> Decimal:
        """GB of a disk for weights to start from and two parts of checkpoints, without NVMe."""
        weights_bytes = (
            0.0
            if self.need.method == "pretrain"
            else HALF * self.need.llm.params
        )
        checkpoint_parts_bytes = (
            2 * run.checkpoint_bytes(self.laid.job) / self.nodes
            if self.store is None
            else 0.0
        )
        return cache_gb(
            self.offer, Decimal((weights_bytes + checkpoint_parts_bytes) / GB)
        )

    @property
    def held(self) -> float:
        """Bytes that are stored: the dataset, and the checkpoints that are kept."""
        return self.need.data_bytes + KEPT * run.checkpoint_bytes(self.laid.job)

    def stored(self) -> list[Cluster]:
        """The storage that may be used: objects, or file systems that would feed the job."""
        parallel_required = self.need.storage == "parallel"
        if not parallel_required and (
            self.need.storage == "object" or self.read <= self.steps
        ):
            return [self]
        needed_bytes_per_s = max(
            self.need.data_bytes / self.steps,
            run.checkpoint_bytes(self.laid.job) / WRITTEN,
        )
        parallel_clusters = [
            replace(self, store=file_system)
            for file_system in sized(
                self.offer.provider, needed_bytes_per_s, self.held
            )
        ]
        return (
            parallel_clusters
            if parallel_required
            else [self, *parallel_clusters]
        )

    def spared(self) -> Cluster:
        """The cluster with as many spares as pay for themselves; spot is taken all at once."""
        cheapest = self
        for spare_count in range(1, SPARES + 1):
            candidate = replace(self, spares=spare_count)
            if (
                self.offer.purchase == "spot"
                or candidate.price >= cheapest.price
            ):
                break
            cheapest = candidate
        return cheapest

    @property
    def price(self) -> float:
        """Machines that are paid for the time that is progress."""
        return (
            (self.nodes + self.spares) / self.goodput
            if self.goodput
            else math.inf
        )

    def layouts(self) -> tuple[Laid, ...]:
        """The best layouts on these machines, the chosen one first."""
        return fastest(
            layouts(self.need, self.offer.instance, self.nodes), SHOWN
        )

    def without(self) -> Cluster | None:
        """The same machines over the ordinary network: what the fabric is worth."""
        return self._joined(ordinary_network=True)

    def apart(self) -> Cluster | None:
        """The same machines wherever there is room: what placing them together is worth."""
        return self._joined(fabric_share=constant("placed_apart"))

    def _joined(
        self, *, ordinary_network: bool = False, fabric_share: float = 1.0
    ) -> Cluster | None:
        instance = self.offer.instance
        if self.nodes == 1 or not connected(instance):
            return None
        timed_layouts = fastest(
            layouts(
                self.need,
                instance,
                self.nodes,
                ordinary_network=ordinary_network,
                fabric_share=fabric_share,
            )
        )
        return replace(self, laid=timed_layouts[0]) if timed_layouts else None


def margin(requirement: TrainNeed, training_job: Job) -> float:
    """The factor on the time of a step that the wished confidence asks for."""
    z_score = NormalDist().inv_cdf(max(0.5, requirement.confidence))
    return math.exp(half(training_job) * z_score / TAIL)


def moved(
    requirement: TrainNeed, provider: str, price_book: PriceBook
) -> list[Line]:
    """What it costs that the data leave the cloud that holds them, once."""
    if requirement.home in (None, provider):
        return []
    data_gb = Decimal(requirement.data_bytes / GB)
    return egress(
        str(requirement.home),
        data_gb,
        price_book,
        f"data out of {requirement.home}",
    )


def node_hours(
    offer: Offer, nodes: int, paid_s: float, duration_s: float
) -> Decimal:
    """Node-hours that are paid: those of the machines, or whole months where one commits."""
    if offer.purchase in COMMITTED:
        duration_months = Decimal(duration_s / HOUR) / HOURS_PER_MONTH
        return HOURS_PER_MONTH * nodes * max(Decimal(1), duration_months)
    return Decimal(paid_s / HOUR) * nodes
