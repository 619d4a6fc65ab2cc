"""What a stack is built from: a solution and a spec, reduced to the facts of one fleet."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.cost.bill_line import cache_disk_gb
from planner.errors import Problem, SpecError
from planner.facts import table
from planner.facts.cloud import cloud_of_address
from planner.perf.common import memory
from planner.solve.serving.bill import BYTES_PER_GB
from planner.spec.model import Training, Workspace
from planner.spec.schedule import parse_schedule
from planner.units import HOURS_PER_WEEK

if TYPE_CHECKING:
    from planner.cost.file_system import FileSystem
    from planner.cost.weekly_load import Week
    from planner.market.offer import Instance
    from planner.perf.common.layout import ReplicaLayout
    from planner.solve.solution import SizedPool, Solution, TrainingRun
    from planner.spec.model import Spec

SERVING_PORT: Final = 8000
MINUTES_PER_WEEK: Final = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """From a time of these days on (Monday is 0), so many nodes; in the fleet's time zone."""

    weekdays: tuple[int, ...]
    minute_of_day: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """One fleet in one region. Seconds and GB; `idle_s` and `ttl_s` are None when not asked for.

    `quantize_on_load` means that the checkpoint is in 16 bit and is made fp8 when it is loaded.
    `training_run` is how a training job runs; its data lie at `dataset_uri` and, when it has a
    parallel file system, in `file_system`.
    """

    name: str
    labels: dict[str, str]
    provider: str
    region: str
    zones: tuple[str, ...]
    instance: Instance
    purchase: str
    nodes: int
    nodes_per_replica: int
    role: str
    model_name: str
    layout: ReplicaLayout | None
    max_batch: int
    context_tokens: int
    quantize_on_load: bool
    data_disk_gb: int
    idle_s: int | None
    ttl_s: int | None
    timezone: str
    capacity_changes: tuple[CapacityChange, ...]
    training_run: TrainingRun | None = None
    spare_nodes: int = 0
    dataset_uri: str = ""
    file_system: FileSystem | None = None

    @property
    def working_nodes(self) -> int:
        """Nodes of a training job that work at the same time; the others are spares."""
        return self.nodes - self.spare_nodes

    @property
    def dataset_linked(self) -> bool:
        """Whether the cloud brings the dataset into its file system by itself."""
        return (
            self.file_system is not None
            and cloud_of_address(self.dataset_uri) == self.provider
        )

    @property
    def dataset_path(self) -> str:
        """Where the job finds its data: in the file system, or at their address."""
        return "/data/dataset" if self.dataset_linked else self.dataset_uri

    @property
    def checkpoint_dir(self) -> str:
        """The folder of the checkpoints: shared, or one of each node."""
        return (
            "/models/checkpoints"
            if self.file_system is None
            else "/data/checkpoints"
        )

    @property
    def is_training(self) -> bool:
        """Whether it trains, and so writes checkpoints."""
        return self.role == "train"

    @property
    def is_spot(self) -> bool:
        """Whether machines can be taken back."""
        return self.purchase == "spot"

    @property
    def is_serving(self) -> bool:
        """Whether something listens for requests."""
        return self.role == "serve"

    @property
    def spans_nodes(self) -> bool:
        """Whether nodes must be placed close to each other: a replica spans several."""
        return self.nodes_per_replica > 1

    @property
    def single_zone(self) -> bool:
        """Whether all nodes are in one zone: that of each other, or of their file system."""
        return self.spans_nodes or self.file_system is not None

    @property
    def fabric_attached(self) -> bool:
        """Whether the interfaces of the fast fabric are attached.

        Always where accelerators reach it directly; on other types when a replica spans nodes.
        """
        fabric_kind = self.instance.fabric
        direct_fabric = self.instance.gpudirect_rdma or fabric_kind in (
            "tcpx",
            "tcpxo",
        )
        return fabric_kind != "none" and (direct_fabric or self.spans_nodes)

    @property
    def tags(self) -> dict[str, str]:
        """Tags of every resource: the labels of the spec, and whose it is."""
        return {
            **self.labels,
            "tonnage-stack": self.name,
            "managed-by": "tonnage",
        }

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that make global names unlikely to collide."""
        digest_seed = f"{self.name}/{self.provider}/{self.region}/{sorted(self.labels.items())}"
        return hashlib.sha256(digest_seed.encode()).hexdigest()[:8]

    @property
    def short_name(self) -> str:
        """A name of at most 20 characters for places that allow few."""
        return f"{self.name[:11].rstrip('-')}-{self.digest}"


def derive_stack(spec: Spec, solution: Solution, stack_name: str) -> StackSpec:
    """Reduce a solution to the site of its pool, under the name of the stack."""
    pool = solution.pools[0]
    instance = pool.offer.instance
    offer = pool.offer
    shutdown = spec.shutdown
    schedule = shutdown.schedule
    return StackSpec(
        name=stack_name,
        labels=spec.labels,
        provider=offer.provider,
        region=offer.region,
        zones=offer.zones,
        instance=instance,
        purchase=offer.purchase,
        nodes=pool.nodes,
        nodes_per_replica=pool.nodes_per_group,
        role=pool.role,
        model_name=solution.llm.model if solution.llm else "",
        layout=pool.layout,
        max_batch=pool.max_batch,
        context_tokens=pool.context_tokens,
        quantize_on_load=_quantizes_on_load(solution, pool),
        data_disk_gb=_data_disk_gb(spec, solution, pool),
        idle_s=int(shutdown.idle) if shutdown.idle else None,
        ttl_s=int(shutdown.ttl) if shutdown.ttl else None,
        timezone=parse_schedule(schedule)[3] if schedule else "UTC",
        capacity_changes=weekly_changes(solution.week, pool, schedule),
        spare_nodes=pool.spare_groups if pool.role == "train" else 0,
        dataset_uri=spec.data.location if isinstance(spec, Training) else "",
        file_system=solution.training_run.storage.file_system
        if solution.training_run
        else None,
        training_run=solution.training_run,
    )


def _data_disk_gb(spec: Spec, solution: Solution, pool: SizedPool) -> int:
    """GB of the disk of a node beside its boot disk; none when local NVMe does."""
    if isinstance(spec, Workspace):
        return int(spec.disk / BYTES_PER_GB)
    if solution.training_run is not None:
        return solution.training_run.boot_disk_gb
    if pool.layout is None or solution.llm is None:
        return 0
    return int(
        cache_disk_gb(
            pool.offer.instance.nvme_gb,
            Decimal(memory.checkpoint_bytes(solution.llm, pool.layout))
            / BYTES_PER_GB,
        )
    )


def _quantizes_on_load(solution: Solution, pool: SizedPool) -> bool:
    """Whether the server makes fp8 weights from a 16-bit checkpoint when it loads it."""
    if pool.layout is None or solution.llm is None or pool.role == "train":
        return False
    return pool.layout.precision == "fp8" and solution.llm.precision == "bf16"


def weekly_changes(
    week: Week, pool: SizedPool, schedule: str | None
) -> tuple[CapacityChange, ...]:
    """Return when the number of nodes changes in a week; nothing when it never does.

    Committed machines are paid for anyway. A daily batch runs from midnight to its deadline.
    """
    if pool.offer.purchase.startswith("reserved"):
        return ()
    if pool.role == "batch":
        return _daily_changes(pool) if pool.run_window_s else ()
    replica_groups = pool.nodes // pool.nodes_per_group - pool.spare_groups
    hourly_nodes = week.hourly_nodes(
        replica_groups, pool.nodes_per_group, pool.spare_groups
    )
    if pool.role == "train":
        hourly_nodes = (pool.nodes,) * HOURS_PER_WEEK
    open_minutes = _open_by_minute(schedule)
    minute_nodes = [
        max(hourly_nodes[minute // 60 % HOURS_PER_WEEK], pool.nodes_per_group)
        if open_minutes[minute]
        else 0
        for minute in range(MINUTES_PER_WEEK)
    ]
    change_days: dict[tuple[int, int], list[int]] = {}
    for minute, node_count in enumerate(minute_nodes):
        if node_count != minute_nodes[minute - 1]:
            change_days.setdefault((minute % 1440, node_count), []).append(
                minute // 1440
            )
    return tuple(
        CapacityChange(tuple(weekdays), minute, node_count)
        for (minute, node_count), weekdays in sorted(change_days.items())
    )


def _daily_changes(pool: SizedPool) -> tuple[CapacityChange, ...]:
    """Every day from midnight, until the deadline of the run."""
    weekdays = tuple(range(7))
    return (
        CapacityChange(weekdays, 0, pool.nodes),
        CapacityChange(weekdays, min(1439, pool.run_window_s // 60), 0),
    )


def _open_by_minute(schedule: str | None) -> list[bool]:
    if schedule is None:
        return [True] * MINUTES_PER_WEEK
    weekdays, start_minute, end_minute, _ = parse_schedule(schedule)
    open_minutes = [False] * MINUTES_PER_WEEK
    duration_minutes = (end_minute - start_minute) % 1440 or 1440
    for weekday in weekdays:
        for minute in range(
            weekday * 1440 + start_minute,
            weekday * 1440 + start_minute + duration_minutes,
        ):
            open_minutes[minute % MINUTES_PER_WEEK] = True
    return open_minutes


@cache
def lookup_table(
    file_name: str, key_column: str, value_column: str
) -> dict[str, str]:
    """Return two columns of a table of stacks/data as key to value."""
    header = table.data_text("stacks", file_name).partition("\n")[0]
    columns = dict.fromkeys(header.split(","), table.any_text)
    return {
        table_row[key_column]: table_row[value_column]
        for table_row in table.load_rows("stacks", file_name, columns)
    }


def unsupported_reason(instance: Instance) -> str | None:
    """Say why no stack can be built yet for a machine type, or nothing."""
    reasons = lookup_table("unsupported.csv", "value", "reason")
    if instance.fraction < 1:
        return reasons["shared"]
    return reasons.get(instance.accelerator) or reasons.get(
        instance.instance_type
    )


def stack_error(message: str, next_step: str) -> SpecError:
    """The error of a stack that cannot be built as asked."""
    return SpecError(
        Problem(code="stack", message=message, next_step=next_step)
    )
