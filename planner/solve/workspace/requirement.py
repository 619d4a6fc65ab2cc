"""Machines for people: the cheapest that holds what they work on, one for each."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.bill import Bill, sum_bill
from planner.cost.bill_line import Usage, service_lines
from planner.cost.weekly_load import HOURS_PER_MONTH, Week, weekly_load
from planner.facts import llm
from planner.facts.accelerator import accelerators
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.common import memory
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving import memory as startup
from planner.perf.serving.replica import SERVING_ENGINE
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.memory import peak_gib
from planner.perf.training.model_states import frozen_bytes

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.facts.llm import Llm
    from planner.market.offer import Instance, Offer
    from planner.spec.model import Workspace

BYTES_PER_GB: Final = Decimal(10**9)
REFERENCE_GPU: Final = "h100-sxm"  # what a job takes does not depend on it
ADAPTER_RANK: Final = 16  # of adapters
TUNING_TOKENS: Final = (
    2048  # tokens of a sequence that is trained on interactively
)
INFERENCE_TOKENS: Final = (
    8192  # tokens of context that an interactive model must hold
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRequirement:
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


def workspace_requirement(spec: Workspace) -> WorkspaceRequirement:
    """Return what a workspace must hold; raises MissingError for an unknown model."""
    if spec.accelerator is not None:
        accelerator_gib = spec.accelerator.memory / memory.GIB
        return WorkspaceRequirement(
            accelerator_gib=accelerator_gib,
            total_gib=0.0,
            accelerator_count=spec.accelerator.count,
            llm=None,
        )
    assert spec.fits is not None  # noqa: S101 - one of the two is required by the schema
    architecture = llm.find_model(spec.fits.model, spec.fits.place)
    if spec.fits.use != "inference":
        return WorkspaceRequirement(
            accelerator_gib=0.0,
            total_gib=_training_gib(architecture, spec.fits.use),
            accelerator_count=1,
            llm=architecture,
        )
    layout = ReplicaLayout(
        precision=architecture.precision, kv_precision="bf16", tp=1
    )
    model_bytes = memory.weight_bytes(architecture, layout) + memory.kv_bytes(
        architecture, layout, INFERENCE_TOKENS
    )
    memory_rules = startup.vllm_constants(SERVING_ENGINE.software_year)
    step_limits = startup.SMALL_STEP
    reserve_gib = (
        startup.activation_bytes(
            architecture, layout, SERVING_ENGINE.software_year, step_limits
        )
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
    return WorkspaceRequirement(
        accelerator_gib=0.0,
        total_gib=required_gib,
        accelerator_count=1,
        llm=architecture,
    )


def _training_gib(architecture: Llm, tuning_method: str) -> float:
    """GiB that training one sequence at a time takes in all, with activations computed again."""
    frozen_param_bytes = frozen_bytes(tuning_method)
    training_job = Job(
        llm=architecture,
        chip=accelerators()[REFERENCE_GPU],
        layout=ParallelLayout(recompute="full"),
        software=Software(),
        sequence_tokens=TUNING_TOKENS,
        global_batch=1.0,
        network_bytes_s=1.0,
        frozen_bytes=frozen_param_bytes,
        lora_rank=ADAPTER_RANK if frozen_param_bytes else 0,
    )
    return peak_gib(training_job)


def workspace_bill(
    spec: Workspace, offer: Offer, price_book: PriceBook
) -> Bill:
    """Return the bill when every machine runs in all scheduled hours: an upper bound."""
    machine_hours = paid_node_hours(spec, offer)
    disk_gb = Decimal(spec.disk) / BYTES_PER_GB
    monthly_usage = Usage(
        provider=offer.provider,
        peak_nodes=spec.users,
        node_hours=machine_hours,
        running_hours=scheduled_week(spec).running_hours,
        cache_gb=disk_gb,
        weights_gb=Decimal(0),
        sent_gb=Decimal(0),
        received_gb=Decimal(0),
        serves_traffic=False,
    )
    return sum_bill(
        [
            machine_line(offer, spec.users, machine_hours, pool="workspace"),
            *service_lines(monthly_usage, price_book),
        ],
        offer.usd_hour * spec.users,
        "month",
    )


def paid_node_hours(spec: Workspace, offer: Offer) -> Decimal:
    """Machine-hours of a month that are paid."""
    if offer.purchase in COMMITTED_PURCHASES:
        return HOURS_PER_MONTH * spec.users
    return scheduled_week(spec).running_hours * spec.users


def scheduled_week(spec: Workspace) -> Week:
    """The hours in which the machines may run."""
    return weekly_load("flat", spec.shutdown.schedule)
