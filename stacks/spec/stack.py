"""What all fleets of a stack share."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import ENDPOINT_KIND
from planner.cost.lifetime import release_time
from planner.facts.cloud import cloud_of_address, clouds
from planner.facts.private_endpoint import LOGS
from planner.facts.receiver import read_receiver
from planner.facts.serving_engine import has_gap
from planner.spec.certificate import certificate_of, machine_certificate
from planner.spec.encryption import StoreKey, customer_key, store_key
from planner.spec.model import OWN_RANGE, Batch, Inference, Training
from planner.spec.network import (
    endpoint_needs,
    given_network,
    has_public_addresses,
    network_range,
)
from planner.spec.schedule import parse_schedule
from planner.units import HOURS_PER_DAY, SECONDS_PER_MINUTE
from stacks.spec.fleet import derive_fleet
from stacks.spec.table import stack_error
from stacks.spec.upload import bucket_place, hub_weights, secret_name

if TYPE_CHECKING:
    from planner.cost.file_system import FileSystem
    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.facts.private_endpoint import EndpointNeed
    from planner.facts.receiver import Receiver
    from planner.perf.serving.load import Routing
    from planner.solve.solution import SizedPool, Solution, TrainingRun
    from planner.spec.model import Spec
    from planner.spec.network import GivenNetwork
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.upload import BucketPlace, HubWeights

SERVING_PORT: Final = 8000
# Where the encryption of clients ends: at a balancer, or at the proxies of the machines.
HTTPS_PORT: Final = 443
# Of JupyterLab on a machine of a workspace.
NOTEBOOK_PORT: Final = 8888
# Of the engine behind a router, inside the stack.
ROUTED_PORT: Final = 8001
# End of the range of the nodes in a network of one range for all zones.
NODE_END: Final = "0.0/20"
# Range of what translates the addresses of clients of a private link.
LINK_END: Final = "254.0/24"
# The output that says what these clients connect to.
LINK_OUTPUT: Final = "private_link"
# The output that names the group of all resources, where a cloud has one.
GROUP_OUTPUT: Final = "resource_group"
# Outputs of a workspace there: what people connect through, and the handle of the group.
BASTION_OUTPUT: Final = "bastion"
GROUP_ID_OUTPUT: Final = "resource_group_id"
# Days for which checkpoints stay after a run.
LEFT_DAYS: Final = 30


# Folder of the results of a benchmark, which only the machines of one write.
BENCH_FOLDER: Final = "bench"
# Folders of the bucket that nodes write; all others they only read.
WRITTEN_FOLDERS: Final = (
    "alive",
    "batch",
    "broken",
    "checkpoints",
    "groups",
    "lived",
    "released",
    "routes",
)
# Of what belongs to a stack, to one of its pools, and to one of their scaling groups.
STACK_TAG: Final = "tonnage-stack"
MANAGED_TAG: Final = "managed-by"
MANAGER: Final = "tonnage"
POOL_TAG: Final = "tonnage-pool"
GROUP_TAG: Final = "tonnage-group"
# Of the disks that a workspace keeps.
HOME_TAG: Final = "tonnage-home"


def range_word(cidr: str) -> str:
    """Return a range of addresses as a part of a name: 10.20.0.0/16 is 10-20-0-0-16."""
    return cidr.replace(".", "-").replace("/", "-")


class StackSpec(Struct, frozen=True, kw_only=True):
    """Fleets in one region of one cloud. Seconds; `idle_s` and `ttl_s` are None when absent.

    `planned_usd` is the bill of a month or of the run, rounded up. `receivers` are told of trouble
    and of a higher cost. Weights are in the bucket of the stack, on the hub, or in a place that
    there is already. `awaits_machines` says that an apply waits until they have come, so that
    another zone may be tried, or another fleet bought, where they do not.

    `training_run` is how a training job runs; its data lie at `dataset_uri` and, when it has a
    parallel file system, in `file_system`. Its checkpoints expire in the bucket when
    `expires_checkpoints`; those of a protected stack never do.

    Clients in `peer_cidrs` may send requests, with the key that the secret `api_key` holds, and
    over HTTPS where there is a `certificate` of the balancer, or one of the machines, which the
    secret `machine_certificate` holds with its key. With `is_public` so may everybody on the
    internet who has the key, and through private links the networks of `linked_accounts`.
    `given_network` is one that there is already: the nodes are in subnets of it, whose addresses
    are `network_range`. With `has_addresses` each machine goes out by a public address of its own,
    and there is no NAT. `survives_zone` says that nothing of the stack may be in one zone alone.
    Machines reach services of their cloud by private endpoints as far as `endpoint_needs` says.

    Data at rest are encrypted with `customer_key`, empty where the keys of the cloud do; on Azure
    it is of disks, and `store_key` of the storage account.

    `benchmark` is what its machines measure before they end, None for all other stacks.

    `generation` is part of the names of scaling groups where each new template of their machines
    gets a fleet beside the old one, and empty elsewhere.
    """

    name: str
    labels: dict[str, str]
    receivers: tuple[Receiver, ...]
    provider: str
    region: str
    fleets: tuple[FleetSpec, ...]
    planned_usd: int
    model_name: str
    hub_weights: HubWeights | None
    weights_place: BucketPlace | None
    routing: Routing
    idle_s: int | None
    ttl_s: int | None
    timezone: str
    awaits_machines: bool = False
    training_run: TrainingRun | None = None
    expires_checkpoints: bool = False
    dataset_uri: str = ""
    file_system: FileSystem | None = None
    network_range: str = OWN_RANGE
    given_network: GivenNetwork | None = None
    has_addresses: bool = False
    peer_cidrs: tuple[str, ...] = ()
    api_key: str = ""
    certificate: str = ""
    machine_certificate: str = ""
    is_public: bool = False
    linked_accounts: tuple[str, ...] = ()
    customer_key: str = ""
    store_key: StoreKey | None = None
    survives_zone: bool = False
    endpoint_needs: frozenset[EndpointNeed] = frozenset()
    generation: str = ""
    benchmark: BenchmarkSweep | None = None

    @property
    def written_folders(self) -> tuple[str, ...]:
        """Folders of the bucket that nodes write."""
        if self.benchmark is None:
            return WRITTEN_FOLDERS
        return (*WRITTEN_FOLDERS, BENCH_FOLDER)

    def node_role(self, fleet: FleetSpec) -> str:
        """What the program of a node does: that of its fleet, or a benchmark with its engine."""
        return fleet.role if self.benchmark is None else "bench"

    @property
    def scaling_groups(self) -> tuple[tuple[FleetSpec, ScalingGroup], ...]:
        """Every scaling group, with the fleet that it belongs to."""
        return tuple(
            (fleet, group)
            for fleet in self.fleets
            for group in fleet.scaling_groups
        )

    @property
    def client_port(self) -> int:
        """The port that clients call."""
        is_encrypted = self.certificate or self.machine_certificate
        return HTTPS_PORT if is_encrypted else SERVING_PORT

    @property
    def machine_port(self) -> int:
        """The port of the machines that a balancer turns to; it asks for their health at 8000."""
        return HTTPS_PORT if self.machine_certificate else SERVING_PORT

    @property
    def secrets(self) -> dict[str, str]:
        """The secrets that machines read: what each is for, and its name."""
        token = self.hub_weights.token if self.hub_weights else ""
        names = {
            "token": token,
            "api-key": self.api_key,
            "certificate": self.machine_certificate,
        }
        return {part: name for part, name in names.items() if name}

    @property
    def node_range(self) -> str:
        """The addresses that nodes have, which those of other things in the network are not."""
        if self.given_network is not None:
            return self.network_range
        return self.addresses(NODE_END)

    def addresses(self, end: str) -> str:
        """Return a part of the network by its end: 16.0/22 is 10.42.16.0/22, 0.4 is 10.42.0.4."""
        first, second, *_ = self.network_range.split(".")
        return f"{first}.{second}.{end}"

    @property
    def is_serving(self) -> bool:
        """Whether something listens for requests."""
        return any(fleet.is_serving for fleet in self.fleets)

    @property
    def job_fleet(self) -> FleetSpec | None:
        """The fleet that trains; nothing without a training job."""
        return next((fleet for fleet in self.fleets if fleet.is_training), None)

    @property
    def is_training(self) -> bool:
        """Whether it trains, and so writes checkpoints."""
        return self.job_fleet is not None

    @property
    def is_elastic(self) -> bool:
        """Whether machines come and go by the load."""
        return any(fleet.elastic is not None for fleet in self.fleets)

    @property
    def checks_keys(self) -> bool:
        """Whether the proxy asks clients for their key, because an engine does not."""
        return bool(self.api_key) and any(
            has_gap(fleet.engine, "key") for fleet in self.fleets
        )

    @property
    def has_router(self) -> bool:
        """Whether a proxy of a machine takes the requests: to encrypt, to route or to sift them.

        A balancer alone spreads them at random and evenly, and an engine answers more than the
        public is to ask, or asks nobody for a key.
        """
        replicas = sum(
            group.most_nodes // fleet.nodes_per_replica
            for fleet, group in self.scaling_groups
        )
        # Pools that differ, and several services on a machine, take a proxy that tells them apart.
        is_shared = any(
            fleet.weight or fleet.body_limit or fleet.part or fleet.services
            for fleet in self.fleets
        )
        is_routed = is_shared or (self.routing != "random" and replicas > 1)
        return (
            bool(self.machine_certificate)
            or self.is_public
            or self.checks_keys
            or is_routed
        )

    @property
    def homes(self) -> dict[str, FleetSpec]:
        """The disks that users of a workspace keep, by name, each with its fleet."""
        return {
            f"{fleet.name}-home-{number}": fleet
            for fleet in self.fleets
            if fleet.home_gb
            for number in range(fleet.nodes)
        }

    @property
    def spans_nodes(self) -> bool:
        """Whether a replica of some fleet spans several nodes."""
        return any(fleet.spans_nodes for fleet in self.fleets)

    @property
    def changes_capacity(self) -> bool:
        """Whether the number of nodes changes by the hours of the week."""
        return any(group.capacity_changes for _, group in self.scaling_groups)

    @property
    def has_block(self) -> bool:
        """Whether machines come and go with a capacity block."""
        return any(fleet.block for fleet in self.fleets)

    @property
    def dataset_linked(self) -> bool:
        """Whether the cloud brings the dataset into its file system by itself."""
        return (
            self.file_system is not None
            and cloud_of_address(self.dataset_uri) == self.provider
        )

    @property
    def dataset_place(self) -> BucketPlace | None:
        """The folder of the dataset; none where it is not in a bucket of this cloud."""
        if cloud_of_address(self.dataset_uri) != self.provider:
            return None
        return bucket_place(self.dataset_uri)

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
    def checkpoint_expiry_days(self) -> int:
        """Days after which the bucket deletes a checkpoint: a month after the end of the run.

        Until then the machines alone decide which are kept. The run ends within the hours that
        90 % of the simulated runs keep.
        """
        if self.training_run is None:
            return LEFT_DAYS
        run_days = self.training_run.hours_p50_p90[1] / HOURS_PER_DAY
        return math.ceil(run_days) + LEFT_DAYS

    @property
    def tags(self) -> dict[str, str]:
        """Tags of every resource: the labels of the spec, and whose it is."""
        return {
            **self.labels,
            STACK_TAG: self.name,
            MANAGED_TAG: MANAGER,
        }

    def fleet_tags(self, fleet: FleetSpec) -> dict[str, str]:
        """Tags of what belongs to one fleet."""
        return {**self.tags, POOL_TAG: fleet.name}

    def node_tags(
        self, fleet: FleetSpec, group: ScalingGroup
    ) -> dict[str, str]:
        """Tags of the machines of a scaling group."""
        return {**self.fleet_tags(fleet), GROUP_TAG: group.name}

    def group_name(self, group: ScalingGroup) -> str:
        """The name of a scaling group in its cloud."""
        suffix = f"-{self.generation}" if self.generation else ""
        return f"{self.name}-{group.name}{suffix}"

    def group_pattern(self, group: ScalingGroup) -> str:
        """What the names of a group match in all generations, with ? for any character."""
        unnamed = replace(self, generation="?" * len(self.generation))
        return unnamed.group_name(group)

    def outside_idle_s(self, fleet: FleetSpec) -> int | None:
        """Seconds without work after which machines are given back from outside.

        limit = start limit + 2 * idle limit: the agent of a machine comes first.
        """
        if not self.idle_s:
            return None
        return fleet.start_limit_s + 2 * self.idle_s

    @property
    def silent_minutes(self) -> int:
        """Minutes without an agent after which machines are given back from outside."""
        return int(release_time("silent_limit_s")) // SECONDS_PER_MINUTE

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that make global names unlikely to collide.

        They follow from the place alone: no label and no price gives a bucket another name.
        """
        digest_seed = f"{self.name}/{self.provider}/{self.region}"
        return hashlib.sha256(digest_seed.encode()).hexdigest()[:8]

    @property
    def short_name(self) -> str:
        """A name of at most 20 characters for places that allow few."""
        return f"{self.name[:11].rstrip('-')}-{self.digest}"


def _endpoint_needs(spec: Spec, solution: Solution) -> frozenset[EndpointNeed]:
    """Return what is reached by private endpoints: what the spec asks for, or what is cheaper."""
    run = solution.training_run
    has_files = run is not None and run.storage.file_system is not None
    needs = endpoint_needs(spec, has_files=has_files)
    lines = solution.bill.lines if solution.bill else ()
    pays = any(line.kind == ENDPOINT_KIND for line in lines)
    return needs or (LOGS if pays else frozenset())


def _place(solution: Solution) -> tuple[str, str]:
    """Return the cloud and the region of a solution. Raises SpecError where these are several."""
    regions = {(pool.instance.provider, pool.region) for pool in solution.pools}
    if len(regions) != 1:
        region_names = ", ".join(" ".join(place) for place in sorted(regions))
        raise stack_error(
            f"a stack is in one region; its pools are in {region_names or 'none'}",
            "plan a stack for each region",
        )
    [place] = regions
    return place


def _may_move(pool: SizedPool, fleet: FleetSpec) -> bool:
    """Whether a fleet is in one zone, and may be in another one that has its machines."""
    spread = clouds()[fleet.instance.provider].spread_zones
    return len(pool.zones) > 1 and min(len(fleet.zones), spread) == 1


def derive_stack(spec: Spec, solution: Solution, stack_name: str) -> StackSpec:
    """Reduce a solution to what is built, under the name of the stack.

    Raises SpecError when its pools are not in one region, when several train, or when one of them
    cannot be built.
    """
    if sum(pool.role == "train" for pool in solution.pools) > 1:
        raise stack_error(
            "a stack runs one training job, and several of its pools train",
            "plan a stack for each job",
        )
    shutdown = spec.shutdown
    schedule = shutdown.schedule
    certificate = certificate_of(spec)
    endpoint = spec.endpoint if isinstance(spec, Inference) else None
    training_run = solution.training_run
    provider, region = _place(solution)
    fleets = tuple(
        derive_fleet(spec, solution, pool) for pool in solution.pools
    )
    return StackSpec(
        name=stack_name,
        labels=spec.labels,
        receivers=tuple(map(read_receiver, spec.notify)),
        provider=provider,
        region=region,
        fleets=fleets,
        planned_usd=math.ceil(solution.bill.total) if solution.bill else 0,
        model_name=solution.llm.model if solution.llm else "",
        hub_weights=(
            hub_weights(spec.model)
            if isinstance(spec, Inference | Batch)
            else None
        ),
        weights_place=(
            bucket_place(spec.model.weights)
            if isinstance(spec, Inference | Batch)
            else None
        ),
        routing=(
            spec.traffic.routing if isinstance(spec, Inference) else "random"
        ),
        idle_s=int(shutdown.idle) if shutdown.idle else None,
        ttl_s=int(shutdown.ttl) if shutdown.ttl else None,
        timezone=parse_schedule(schedule)[3] if schedule else "UTC",
        awaits_machines=(
            spec.buy.fallback is not None
            or any(
                _may_move(pool, fleet)
                for pool, fleet in zip(solution.pools, fleets, strict=True)
            )
        ),
        training_run=training_run,
        expires_checkpoints=isinstance(spec, Training) and not spec.protect,
        dataset_uri=spec.data.location if isinstance(spec, Training) else "",
        file_system=training_run.storage.file_system if training_run else None,
        network_range=network_range(spec.network),
        given_network=given_network(spec.network),
        has_addresses=has_public_addresses(spec.network),
        api_key=(secret_name(endpoint.api_key) if endpoint is not None else ""),
        certificate=certificate.id if certificate else "",
        machine_certificate=machine_certificate(spec),
        is_public=endpoint is not None and endpoint.public,
        customer_key=key.id if (key := customer_key(spec)) else "",
        store_key=store_key(spec),
        linked_accounts=(
            tuple(dict.fromkeys(endpoint.share)) if endpoint is not None else ()
        ),
        survives_zone=(
            isinstance(spec, Inference)
            and spec.sla is not None
            and spec.sla.survives == "zone"
        ),
        endpoint_needs=_endpoint_needs(spec, solution),
        peer_cidrs=(
            tuple(dict.fromkeys(spec.network.peer_cidrs))
            if spec.network
            else ()
        ),
    )
