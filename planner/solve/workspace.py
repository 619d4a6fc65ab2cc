"""Machines for people: the cheapest that holds what they work on, one for each."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.line import Usage, services
from planner.cost.week import HOURS_PER_MONTH, Week, week
from planner.facts import llm
from planner.facts.accelerator import accelerators
from planner.perf import memory, startup
from planner.perf.layout import Layout
from planner.perf.serve import SERVED
from planner.perf.train.job import Job, Software, Spread
from planner.perf.train.memory import peak_gib
from planner.perf.train.states import frozen_bytes
from planner.solve.bill import COMMITTED, Bill, machines, summed

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.facts.llm import Llm
    from planner.solve.offer import Instance, Offer
    from planner.spec.model import Workspace

GB: Final = Decimal(10**9)
ANY: Final = "h100-sxm"  # what a job takes does not depend on it
RANK: Final = 16  # of adapters
TUNED: Final = 2048  # tokens of a sequence that is trained on interactively
INTERACTIVE: Final = (
    8192  # tokens of context that an interactive model must hold
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a machine must have: GiB of each accelerator or of all together, and how many."""

    accelerator_gib: float
    total_gib: float
    accelerator_count: int
    llm: Llm | None

    def shortfall(self, instance: Instance) -> str:
        """Say what a machine type lacks, or nothing."""
        node = instance.node
        usable_gib = node.memory_gib
        if instance.accelerators < self.accelerator_count:
            return f"accelerators: {instance.accelerators} of {self.accelerator_count}"
        # Marketed and usable memory differ by up to 7 %: a "24 GB" GPU reports 22.35 GiB.
        if instance.memory_gib_each < self.accelerator_gib * 0.93:
            return f"memory: {instance.memory_gib_each:g} GiB each of {self.accelerator_gib:g} GiB"
        if usable_gib * instance.accelerators < self.total_gib:
            available_gib = usable_gib * instance.accelerators
            return (
                f"memory: {available_gib:,.0f} GiB of {self.total_gib:,.0f} GiB"
            )
        return ""


def room(spec: Workspace) -> Room:
    """Return what a workspace must hold; raises MissingError for an unknown model."""
    if spec.accelerator is not None:
        accelerator_gib = spec.accelerator.memory / memory.GIB
        return Room(
            accelerator_gib=accelerator_gib,
            total_gib=0.0,
            accelerator_count=spec.accelerator.count,
            llm=None,
        )
    assert spec.fits is not None  # noqa: S101 - one of the two is required by the schema
    architecture = llm.find(spec.fits.model, spec.fits.place)
    if spec.fits.use != "inference":
        return Room(
            accelerator_gib=0.0,
            total_gib=_trained(architecture, spec.fits.use),
            accelerator_count=1,
            llm=architecture,
        )
    layout = Layout(precision=architecture.precision, kv_precision="bf16", tp=1)
    model_bytes = memory.weights(architecture, layout) + memory.kv(
        architecture, layout, INTERACTIVE
    )
    memory_rules, step_limits = startup.era(SERVED.software_year), startup.SMALL
    reserve_gib = (
        startup.activation(architecture, layout, SERVED.software_year, step_limits)
        / memory.GIB
    )
    reserve_gib += (
        memory_rules["buffers_gib"]
        + memory_rules["non_torch_gib"]
        + memory_rules["graph_gib"]
    )
    required_gib = (model_bytes / memory.GIB + reserve_gib) / memory_rules[
        "share"
    ]
    return Room(accelerator_gib=0.0, total_gib=required_gib, accelerator_count=1, llm=architecture)


def _trained(architecture: Llm, tuning_method: str) -> float:
    """GiB that training one sequence at a time takes in all, with activations computed again."""
    frozen_param_bytes = frozen_bytes(tuning_method)
    training_job = Job(
        llm=architecture,
        chip=accelerators()[ANY],
        layout=Spread(recompute="full"),
        software=Software(),
        sequence_tokens=TUNED,
        global_batch=1.0,
        network_bytes_s=1.0,
        frozen_bytes=frozen_param_bytes,
        lora_rank=RANK if frozen_param_bytes else 0,
    )
    return peak_gib(training_job)


def bill(spec: Workspace, offer: Offer, price_book: PriceBook) -> Bill:
    """Return the bill when every machine runs in all scheduled hours: an upper bound."""
    machine_hours = node_hours(spec, offer)
    disk_gb = Decimal(spec.disk) / GB
    monthly_usage = Usage(
        provider=offer.provider,
        peak_nodes=spec.users,
        node_hours=machine_hours,
        running_hours=open_week(spec).running_hours,
        cache_gb=disk_gb,
        weights_gb=Decimal(0),
        sent_gb=Decimal(0),
        received_gb=Decimal(0),
        serves_traffic=False,
    )
    return summed(
        [
            machines(offer, spec.users, machine_hours),
            *services(monthly_usage, price_book),
        ],
        offer,
        spec.users,
    )


def node_hours(spec: Workspace, offer: Offer) -> Decimal:
    """Machine-hours of a month that are paid."""
    if offer.purchase in COMMITTED:
        return HOURS_PER_MONTH * spec.users
    return open_week(spec).running_hours * spec.users


def open_week(spec: Workspace) -> Week:
    """The hours in which the machines may run."""
    return week("flat", spec.shutdown.schedule)
