"""The machines of one pool, as a stack builds them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cost.bill_line import cache_disk_gb
from planner.cost.lifetime import release_time
from planner.perf.common import memory
from planner.solve.capacity import (
    capacity_changes,
    hourly_most,
    minute_nodes,
    most_nodes,
    opening_nodes,
    purchased_nodes,
)
from planner.spec.model import Inference, Workspace
from planner.units import (
    BYTES_PER_BILLED_GB,
    BYTES_PER_GIB,
    SECONDS_PER_HOUR,
)
from stacks.spec.rolling import RECREATE, work_of
from stacks.spec.service import fleet_services, quantizes_on_load
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.market.offer import Instance
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.drafting import Drafting
    from planner.solve.capacity import CapacityChange
    from planner.solve.solution import ElasticRange, SizedPool, Solution
    from planner.spec.block import CapacityBlock
    from planner.spec.model import Spec
    from stacks.spec.rolling import Work
    from stacks.spec.service import FleetService


class ScalingGroup(Struct, frozen=True, kw_only=True):
    """Nodes of a pool that the cloud keeps at a number: those that stay, or spot machines.

    `name` is that of the pool, with `-spot` for spot machines. Resources are named after it. Of an
    elastic group `least_nodes` run in each hour of the week whatever is asked, and `most_nodes` at
    most; of others there are no hours, and `nodes` at most.
    """

    name: str
    is_spot: bool
    nodes: int
    capacity_changes: tuple[CapacityChange, ...]
    least_nodes: tuple[int, ...] = ()
    most_nodes: int


class FleetSpec(Struct, frozen=True, kw_only=True):
    """The machines of one pool, as they are built.

    `data_disk_gb` is GB of the disk beside the boot disk, 0 without one, and `home_gb` GiB of that
    which each user of a workspace keeps when machines change. `spare_nodes` stand by for a
    training job. `loaded_bytes` are those that a node loads before it works. A batch that
    `runs_once` ends when everything is answered; others wait for more.

    `startup_s` is from the request of a node until it serves, 0 where nothing does; `recreates`
    says that old nodes go before new ones come. `reservation` is the id of what they are taken
    from, empty where nothing is reserved; of a capacity block `block` says more. `is_reserved`
    says that the stack makes the reservation that they are taken from. `flex_s` is for
    how many seconds machines are asked for that come all at once, 0 for others. `elastic` says
    when machines come and go by the load, None where the hours of the week alone decide.
    `stand_ins` are the machine types that are started where there is none of `instance`.

    `zones` are those that its nodes may be in: one when they must be close to each other or to
    their file system. `quantize_on_load` means that the checkpoint is in 16 bit and is made fp8
    when it is loaded. `token_budget` is the most tokens of one step of the serving engine.
    `drafting` is its speculative decoding, None without it. `engine` is its name, and
    `memory_share` the share of memory that it is told to fill.
    `weight` is that of its machines where a router shares requests among fleets, else 0.
    `body_limit` is the longest body of a request that its machines take, in bytes; 0 for any.
    `part` is what of a request its machines do, empty for all of it.
    `services` have engines on the same accelerators, and `profile` is the MIG profile of the
    slices of its own engine, empty without slices.
    """

    name: str
    instance: Instance
    zones: tuple[str, ...]
    role: str
    scaling_groups: tuple[ScalingGroup, ...]
    nodes_per_replica: int
    layout: ReplicaLayout | None
    max_batch: int
    context_tokens: int
    token_budget: int
    drafting: Drafting | None
    engine: str
    memory_share: float
    quantize_on_load: bool
    data_disk_gb: int
    home_gb: int
    spare_nodes: int
    loaded_bytes: int
    runs_once: bool
    startup_s: float = 0.0
    recreates: bool = False
    reservation: str = ""
    block: CapacityBlock | None = None
    is_reserved: bool = False
    flex_s: int = 0
    elastic: ElasticRange | None = None
    stand_ins: tuple[str, ...] = ()
    weight: int = 0
    body_limit: int = 0
    part: str = ""
    services: tuple[FleetService, ...] = ()
    profile: str = ""

    @property
    def work(self) -> Work:
        """What its machines do, as far as a roll of a new template minds."""
        return work_of(
            self.role, spans_nodes=self.spans_nodes, recreates=self.recreates
        )

    @property
    def nodes(self) -> int:
        """Nodes at the peak, however they are bought."""
        return sum(group.nodes for group in self.scaling_groups)

    @property
    def working_nodes(self) -> int:
        """Nodes of a training job that work at the same time; the others are spares."""
        return self.nodes - self.spare_nodes

    @property
    def is_training(self) -> bool:
        """Whether it trains, and so writes checkpoints."""
        return self.role == "train"

    @property
    def is_serving(self) -> bool:
        """Whether something listens for requests."""
        return self.role == "serve"

    @property
    def spans_nodes(self) -> bool:
        """Whether nodes must be placed close to each other: a replica spans several."""
        return self.nodes_per_replica > 1

    @property
    def is_placed(self) -> bool:
        """Whether the stack places its nodes close together.

        Those that are reserved, or come all at once, have their places.
        """
        return self.spans_nodes and not (self.reservation or self.flex_s)

    @property
    def start_limit_s(self) -> int:
        """Seconds from the boot of a node until it must work.

        limit = start_limit_s + bytes to load / load_bytes_s
        """
        load_s = self.loaded_bytes / float(release_time("load_bytes_s"))
        return int(release_time("start_limit_s")) + int(load_s)

    @property
    def fabric_attached(self) -> bool:
        """Whether the interfaces of the fast fabric are attached."""
        return self.instance.attaches_fabric(spans_nodes=self.spans_nodes)


def reservation_resource(fleet: FleetSpec) -> str:
    """The name of the resource that keeps machines for a fleet."""
    return f"{fleet.name}-reservation"


def derive_fleet(spec: Spec, solution: Solution, pool: SizedPool) -> FleetSpec:
    """Reduce a pool of a solution to what is built. Raises SpecError when that is impossible."""
    training_run = solution.training_run
    is_training = pool.role == "train"
    shares_files = (
        is_training
        and training_run is not None
        and training_run.storage.file_system is not None
    )
    # A disk that is kept is in one zone, as a file system and a reservation are.
    needs_one_zone = (
        pool.nodes_per_group > 1
        or shares_files
        or isinstance(spec, Workspace)
        or spec.buy.reserve
        # Caches are handed over within a zone.
        or bool(pool.part)
    )
    return FleetSpec(
        name=pool.name,
        instance=pool.instance,
        zones=pool.zones[:1] if needs_one_zone else pool.zones,
        role=pool.role,
        scaling_groups=_scaling_groups(spec, solution, pool),
        nodes_per_replica=pool.nodes_per_group,
        layout=pool.layout,
        max_batch=pool.max_batch,
        context_tokens=pool.context_tokens,
        token_budget=pool.token_budget,
        drafting=pool.drafting,
        engine=pool.engine,
        memory_share=pool.memory_share,
        quantize_on_load=_quantizes_on_load(solution, pool),
        data_disk_gb=_data_disk_gb(solution, pool),
        home_gb=(
            math.ceil(spec.disk / BYTES_PER_GIB)
            if isinstance(spec, Workspace)
            else 0
        ),
        spare_nodes=pool.spares.count if is_training else 0,
        loaded_bytes=_loaded_bytes(solution, pool),
        runs_once=pool.role == "batch" and pool.run_window_s == 0,
        startup_s=pool.startup_s,
        recreates=isinstance(spec, Inference) and spec.update == RECREATE,
        reservation=next(
            (part.reservation for part in pool.purchases if part.reservation),
            "",
        ),
        block=spec.buy.block,
        is_reserved=spec.buy.reserve,
        flex_s=_flex_s(solution) if spec.buy.flex_start else 0,
        elastic=pool.elastic,
        stand_ins=tuple(other.instance_type for other in pool.stand_ins),
        weight=pool.weight,
        body_limit=pool.requests.limit_bytes if pool.requests else 0,
        part=pool.part,
        services=fleet_services(pool),
        profile=pool.services[0].part.profile if pool.services else "",
    )


def _flex_s(solution: Solution) -> int:
    """Return for how long machines of a training are asked for, whole hours in seconds.

    hours = those that 90 % of the runs keep * flex_room, at most the longest that there are: what
    is asked for longer comes later.
    """
    run = solution.training_run
    hours = run.hours_p50_p90[1] if run is not None else math.inf
    longest_s = int(release_time("flex_limit_s"))
    asked_s = (
        math.ceil(min(hours * float(release_time("flex_room")), 1e6))
        * SECONDS_PER_HOUR
    )
    return int(min(longest_s, asked_s))


def _scaling_groups(
    spec: Spec, solution: Solution, pool: SizedPool
) -> tuple[ScalingGroup, ...]:
    """One group for the machines that stay, and one for spot machines, where there are some.

    A commitment is a matter of the bill: machines that are committed and machines on demand are
    the same to a cloud.
    """
    week, schedule = pool.week or solution.week, spec.shutdown.schedule
    wanted_nodes = minute_nodes(week, pool, schedule)
    least_nodes: tuple[int, ...] = ()
    if pool.elastic is not None:
        least_nodes = minute_nodes(
            week, pool, schedule, pool.elastic.least_share
        )
        # Within its hours the machines follow the load by themselves.
        wanted_nodes = opening_nodes(wanted_nodes)
    scaling_groups = []
    for is_spot in (False, True):
        nodes = sum(
            part.nodes
            for part in pool.purchases
            if (part.purchase == "spot") == is_spot
        )
        if nodes == 0:
            continue
        if pool.role != "train" and nodes % pool.nodes_per_group:
            raise stack_error(
                f"{nodes} nodes of pool {pool.name} are bought in one way, and a replica takes "
                f"{pool.nodes_per_group}",
                "buy whole replicas in one way",
            )
        scaling_groups.append(
            ScalingGroup(
                name=f"{pool.name}-spot" if is_spot else pool.name,
                is_spot=is_spot,
                nodes=nodes,
                capacity_changes=capacity_changes(
                    wanted_nodes, pool.purchases, of_spot=is_spot
                ),
                least_nodes=hourly_most(
                    purchased_nodes(
                        least_nodes, pool.purchases, of_spot=is_spot
                    )
                ),
                most_nodes=most_nodes(nodes, pool.elastic.most_share)
                if pool.elastic is not None
                else nodes,
            )
        )
    return tuple(scaling_groups)


def _data_disk_gb(solution: Solution, pool: SizedPool) -> int:
    """GB of the disk of a node beside its boot disk; none when local NVMe does."""
    if pool.role == "train" and solution.training_run is not None:
        return solution.training_run.data_disk_gb
    if pool.layout is None or solution.llm is None:
        return 0
    return int(
        cache_disk_gb(
            pool.instance.nvme_gb,
            Decimal(
                memory.checkpoint_bytes(solution.llm, pool.layout)
                + _beside_bytes(pool)
            )
            / BYTES_PER_BILLED_GB,
        )
    )


def _loaded_bytes(solution: Solution, pool: SizedPool) -> int:
    """Bytes that a node loads before it works: the weights, or a checkpoint of the job."""
    if solution.training_run is not None:
        return int(solution.training_run.checkpoint_bytes)
    if pool.layout is None or solution.llm is None:
        return 0
    return int(
        memory.checkpoint_bytes(solution.llm, pool.layout)
    ) + _beside_bytes(pool)


def _beside_bytes(pool: SizedPool) -> int:
    """Bytes of the weights of services that share the machines of a pool with its own."""
    return sum(service.weights_bytes for service in fleet_services(pool))


def _quantizes_on_load(solution: Solution, pool: SizedPool) -> bool:
    """Whether the server makes fp8 weights from a 16-bit checkpoint when it loads it."""
    if pool.layout is None or solution.llm is None or pool.role == "train":
        return False
    return quantizes_on_load(solution.llm, pool.layout)
