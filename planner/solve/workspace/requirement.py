"""What a workspace needs of a machine, and the bill of its machines."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill import Bill, sum_bill
from planner.cost.bill_line import Usage, service_lines
from planner.cost.lifetime import (
    bill_period,
    committed_hours,
    life_hours,
    standing_hours,
    standing_lifetime,
)
from planner.cost.weekly_load import (
    NO_SPARES,
    Week,
    weekly_load,
    weekly_starts,
)
from planner.facts import llm
from planner.facts.accelerator import accelerators
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.market.capacity import fleet_limit
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.common import memory
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving import memory as startup
from planner.perf.serving.engine import find_engine
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.memory import peak_gib
from planner.perf.training.model_states import frozen_bytes
from planner.solve.capacity import PoolNodes
from planner.solve.cause import because
from planner.solve.cloud_rule import exceeded_limit
from planner.spec.network import (
    endpoint_needs,
    given_network,
    has_public_addresses,
)
from planner.units import BYTES_PER_GIB, HOURS_PER_WEEK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.cost.service_price import PriceBook
    from planner.facts.llm import Llm
    from planner.market.offer import Instance, Offer
    from planner.solve.cause import Cause
    from planner.spec.model import Workspace

REFERENCE_GPU: Final = "h100-sxm"  # what a job takes does not depend on it
ADAPTER_RANK: Final = 16  # of adapters
# Tokens of a sequence that is trained on interactively.
TUNING_TOKENS: Final = 2048
# Tokens of context that an interactive model must hold.
INFERENCE_TOKENS: Final = 8192


class WorkspaceRequirement(Struct, frozen=True, kw_only=True):
    """Accelerators and memory that one machine needs.

    `accelerator_gib`  marketed memory of each accelerator, GiB; 0 for any
    `total_gib`  usable memory of all accelerators together, GiB; 0 for any
    `accelerator_count`  accelerators at least
    `llm`  the model to work with, None when the spec names accelerators
    """

    accelerator_gib: float
    total_gib: float
    accelerator_count: int
    llm: Llm | None

    def shortfall(self, instance: Instance) -> Cause | None:
        """Return what a machine type lacks, None when it is enough."""
        node = instance.node
        usable_gib = node.memory_gib
        if instance.accelerators < self.accelerator_count:
            return because(
                "accelerators",
                accelerators=instance.accelerators,
                needed=self.accelerator_count,
            )
        # Marketed and usable memory differ by up to 7 %: a "24 GB" GPU reports 22.35 GiB.
        if instance.memory_gib_each < self.accelerator_gib * 0.93:
            return because(
                "memory-each",
                memory_gib=instance.memory_gib_each,
                needed_gib=self.accelerator_gib,
            )
        # A model may be divided over all accelerators of a machine.
        if usable_gib * instance.accelerators < self.total_gib:
            return because(
                "memory-total",
                memory_gib=usable_gib * instance.accelerators,
                needed_gib=self.total_gib,
            )
        return None


def workspace_requirement(spec: Workspace) -> WorkspaceRequirement:
    """Return what a workspace needs; raise MissingError for an unknown model.

    inference: (weights + KV cache of 8192 tokens + reserve) / memory share of vLLM
    reserve  = peak activation + buffers + driver + graphs, as vLLM reserves at start-up
    training:  peak memory of the fine-tuning method
    """
    if spec.accelerator is not None:
        accelerator_gib = spec.accelerator.memory / BYTES_PER_GIB
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
    # Weights and the KV cache of one interactive sequence.
    model_bytes = memory.weight_bytes(architecture, layout) + memory.kv_bytes(
        architecture, layout, INFERENCE_TOKENS
    )
    software_year = find_engine(DEFAULT_ENGINE).software_year
    memory_rules = startup.vllm_constants(software_year)
    # Small-card defaults of vLLM: the smallest activation peak.
    step_limits = startup.SMALL_STEP
    reserve_gib = (
        startup.activation_bytes(
            architecture, layout, software_year, step_limits
        )
        / BYTES_PER_GIB
    )
    reserve_gib += (
        # Buffers, driver context and CUDA graphs: data/vllm_memory.csv.
        memory_rules["buffers_gib"]
        + memory_rules["non_torch_gib"]
        + memory_rules["graph_gib"]
    )
    # vLLM uses a share of the memory: weights + KV + reserve <= share * M.
    required_gib = (model_bytes / BYTES_PER_GIB + reserve_gib) / memory_rules[
        "share"
    ]
    return WorkspaceRequirement(
        accelerator_gib=0.0,
        total_gib=required_gib,
        accelerator_count=1,
        llm=architecture,
    )


def _training_gib(architecture: Llm, tuning_method: str) -> float:
    """Return the GiB that fine-tuning takes with one sequence of 2048 tokens a step.

    All states on one accelerator, activations fully recomputed, adapters of rank 16.
    """
    frozen_param_bytes = frozen_bytes(tuning_method)
    training_job = Job(
        llm=architecture,
        chip=accelerators()[REFERENCE_GPU],
        # Full recomputation keeps the fewest activations.
        layout=ParallelLayout(recompute="full"),
        software=Software(),
        sequence_tokens=TUNING_TOKENS,
        global_batch=1.0,
        # Any value: memory does not depend on the network.
        network_bytes_s=1.0,
        frozen_bytes=frozen_param_bytes,
        # Frozen weights are trained through adapters.
        lora_rank=ADAPTER_RANK if frozen_param_bytes else 0,
    )
    return peak_gib(training_job)


def workspace_shortfall(
    spec: Workspace, requirement: WorkspaceRequirement, offer: Offer
) -> Cause | None:
    """Return what the machines of an offer lack, or what their cloud refuses, if anything."""
    shortfall = requirement.shortfall(offer.instance)
    if shortfall is not None:
        return shortfall
    most_machines = fleet_limit(offer)
    if most_machines is not None and spec.users > most_machines:
        return because("capacity", "buy.reservations", machines=most_machines)
    pool = PoolNodes(
        role="workspace",
        nodes=spec.users,
        nodes_per_group=1,
        spares=NO_SPARES,
        run_window_s=0,
    )
    exceeded = exceeded_limit(offer, pool, scheduled_week(spec), spec.shutdown)
    return None if exceeded is None else exceeded.reason


def workspace_bill(
    spec: Workspace, offer: Offer, price_book: PriceBook
) -> Bill:
    """Return the bill with every machine on in all scheduled hours of its life.

    It is that of the time to live, without one that of a month. Bill >= cost: an idle shutdown
    only shortens the paid hours.
    """
    life = standing_lifetime(spec.shutdown)
    machine_hours = paid_node_hours(spec, offer)
    usage = Usage(
        provider=offer.provider,
        node_hours=machine_hours,
        # Idle shutdown is not predicted: every scheduled hour is paid.
        cache_gb=Decimal(0),
        has_people=True,
        has_own_network=given_network(spec.network) is None,
        has_machine_addresses=has_public_addresses(spec.network),
        spot_hours=machine_hours if offer.purchase == "spot" else Decimal(0),
        # The disks that are kept are in one zone.
        endpoint_needs=endpoint_needs(spec),
        scheduled_starts=spec.users
        * weekly_starts(scheduled_week(spec).hourly_nodes(1, 1))
        * life_hours(life)
        / HOURS_PER_WEEK,
        # Clouds call a GiB of a disk a GB.
        kept_gb=spec.users * Decimal(spec.disk) / BYTES_PER_GIB,
        stored_gb_months=Decimal(0),
        sent_gb=Decimal(0),
        received_gb=Decimal(0),
        serves_traffic=False,
        network_hours=life_hours(life),
    )
    return sum_bill(
        [
            machine_line(offer, spec.users, machine_hours, pool="workspace"),
            *service_lines(usage, price_book),
        ],
        offer.usd_hour * spec.users,
        bill_period(spec.shutdown, is_one_job=False),
        life,
        surcharges=price_book.surcharges,
    )


def cheapest_bill(
    spec: Workspace, offers: Iterable[Offer], price_book: PriceBook
) -> tuple[Offer, Bill]:
    """Return the offer whose bill is the lowest, and that bill.

    An hour of a commitment is cheap, and all hours of the month are paid.
    """
    return min(
        ((offer, workspace_bill(spec, offer, price_book)) for offer in offers),
        key=lambda pair: (pair[1].total, pair[0].key),
    )


def paid_node_hours(spec: Workspace, offer: Offer) -> Decimal:
    """Return the machine-hours that are paid in the period of the bill.

    commitment: 730 * users, or all hours of a longer life
    otherwise:  scheduled hours * users, of a month or of the time to live
    """
    if offer.purchase in COMMITTED_PURCHASES:
        life = standing_lifetime(spec.shutdown)
        return committed_hours(life) * spec.users
    # One machine in every hour of the week; the schedule closes some.
    return standing_hours((1,) * HOURS_PER_WEEK, spec.shutdown) * spec.users


def scheduled_week(spec: Workspace) -> Week:
    """Return the week of hours in which the machines may run."""
    return weekly_load("flat", spec.shutdown.schedule)
