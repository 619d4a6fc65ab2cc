"""The values of a spec in base units, with the position of each block.

Times are seconds, sizes bytes, shares fractions of one. `PurchaseRule.budget` is USD a month,
`TrainingMethod.budget` USD of the run.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from planner.facts.cloud import clouds
from planner.facts.serving_engine import DEFAULT_ENGINE, table_name
from planner.spec.block import (
    CapacityBlock,  # noqa: TC001 - msgspec reads the annotations
)

if TYPE_CHECKING:
    from planner.errors import Place

Method: TypeAlias = Literal[
    "pretrain", "continued", "finetune", "lora", "qlora", "dpo", "dpo-lora"
]
Metric: TypeAlias = Literal["ttft", "tpot", "e2e"]
Runtime: TypeAlias = Literal["vm", "kubernetes", "slurm"]
# Of a stack that says nothing of its network.
OWN_RANGE: Final = "10.42.0.0/16"
# Weights that somebody brings to the bucket of the stack.
BUCKET_WEIGHTS: Final = "bucket"
SECRET_SCHEME: Final = "secret://"  # noqa: S105 - a scheme


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model by name, by parameter count, or by a config.json beside the spec.

    precision     allowed precisions of the weights
    kv_precision  precision of the KV cache
    context       longest sequence that must fit, tokens
    weights       where machines get them: bucket, an address, or hf with or without a repository
    token         address of the secret that the hub asks for
    """

    place: Place
    name: str | None = None
    params: int | None = None
    config: str | None = None
    precision: tuple[str, ...] = ("auto",)
    kv_precision: str = "auto"
    context: int | None = None
    weights: str = BUCKET_WEIGHTS
    token: str | None = None


class LatencyLimit(Struct, frozen=True, kw_only=True):
    """A latency limit: metric ttft, tpot or e2e, percentile, and limit in seconds."""

    metric: Metric
    percentile: int
    seconds: Decimal

    @property
    def key(self) -> str:
        """Key of the limit in the spec, such as ttft_p95."""
        return f"{self.metric}_p{self.percentile}"


class ServiceLevels(Struct, frozen=True, kw_only=True):
    """Service levels that must be met.

    limits        latency limits at peak load
    availability  share of the time in which enough replicas are up for the load
    survives      what may fail at once at the peak: a node or a zone
    """

    place: Place
    limits: tuple[LatencyLimit, ...] = ()
    availability: Decimal | None = None
    survives: Literal["node", "zone"] | None = None


class TokenLengths(Struct, frozen=True, kw_only=True):
    """Distribution of lengths in tokens, by its mean and 95th percentile."""

    mean: Decimal
    p95: Decimal


class Traffic(Struct, frozen=True, kw_only=True):
    """Arrival of requests; exactly one of the first five below is set.

    peak_rps          requests/s in the busiest minutes
    requests_per_day  requests of a day
    total_requests    requests of a whole batch run
    concurrency       requests in flight, closed loop
    trace             path of a CSV file with timestamps and lengths
    burstiness        coefficient of variation of the times between arrivals; 1 is Poisson
    profile           shape of a week by name, or hourly weights
    prefix_hit        share of prompt tokens in the prefix cache
    routing           how requests are assigned to replicas
    """

    place: Place
    peak_rps: Decimal | None = None
    requests_per_day: int | None = None
    total_requests: int | None = None
    concurrency: int | None = None
    trace: str | None = None
    input_tokens: TokenLengths | None = None
    output_tokens: TokenLengths | None = None
    burstiness: Decimal = Decimal(1)
    profile: str | tuple[Decimal, ...] = "flat"
    prefix_hit: Decimal = Decimal(0)
    routing: Literal["random", "round-robin", "least-loaded"] = "random"


EngineName: TypeAlias = Literal["vllm", "sglang", "tensorrt-llm"]
# What guesses tokens, or nothing.
GuessMethod: TypeAlias = Literal["off", "ngram", "eagle3", "mtp"]


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How the serving engine is started.

    engine        what serves the model; auto is vLLM, also where another one would cost less, and
                  any is the one that costs least
    pools         whether the machines that compute prompts also answer, or two pools do that
                  where they cost less
    token_budget  most tokens of one step, prompts and answers together; None is the default of
                  the engine for the accelerator
    speculation   what guesses tokens that a step then checks; auto is what costs least of off and
                  the published methods
    acceptance    chance that a guess is right if all before it were; None is what is published
    classes       whether requests of other lengths may have machines of their own
    beside        files of the services that have an engine on the same accelerators
    """

    place: Place | None = None
    engine: Literal["auto", "any"] | EngineName = "auto"
    pools: Literal["together", "auto"] = "together"
    token_budget: int | None = None
    speculation: Literal["auto"] | GuessMethod = "off"
    acceptance: Decimal | None = None
    classes: Literal["none", "auto"] = "none"
    beside: tuple[str, ...] | None = None

    @property
    def engine_name(self) -> str:
        """The engine that serves, by its name in perf/data/engines.csv.

        Where it is left open that is the one which is taken by itself.
        """
        if self.engine in ("auto", "any"):
            return DEFAULT_ENGINE
        return table_name(self.engine)


class AcceleratorRule(Struct, frozen=True, kw_only=True):
    """Accelerators that are allowed or denied, by glob pattern."""

    place: Place | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class PlacementRule(Struct, frozen=True, kw_only=True):
    """Clouds, regions, zones and accelerators that may be used.

    on_premises  file with machines of one's own, which a plan is compared with
    """

    place: Place | None = None
    clouds: tuple[str, ...] = field(default_factory=lambda: tuple(clouds()))
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    on_premises: str | None = None
    accelerators: AcceleratorRule = field(default_factory=AcceleratorRule)


class PurchaseRule(Struct, frozen=True, kw_only=True):
    """Purchase options that may be used, and the budget.

    commit  allowed commitments, as words of the terms of the market; none is on demand
    budget  maximum cost, USD a month
    horizon  time in which a move has to save more than it costs, seconds
    fallback  how much dearer a fleet may be that is bought where the cheapest cannot be had;
              0.2 is 20 %
    reservations  capacity that is reserved, which machines are taken from alone
    block  a capacity block, which they are taken from alone
    flex_start  whether they come all at once, when their cloud has them
    on_demand_base  share of the machines that are bought on demand; others on spot. auto for as
        many as the promise of availability of a service needs
    machine_types  how many machine types one service may have at once
    owned  file with the machines that are paid for already
    reserve  whether the stack makes a reservation for them, which is paid for in every hour
    """

    place: Place | None = None
    spot: Literal["auto", "never", "only"] = "auto"
    commit: tuple[str, ...] = ("none",)
    budget: Decimal | None = None
    horizon: Decimal = Decimal(2_592_000)
    fallback: Decimal | None = None
    reservations: tuple[str, ...] | None = None
    block: CapacityBlock | None = None
    flex_start: bool = False
    reserve: bool = False
    owned: str | None = None
    on_demand_base: Decimal | Literal["auto"] | None = None
    machine_types: int = 1


class ShutdownRule(Struct, frozen=True, kw_only=True):
    """When capacity is released.

    idle      time without GPU work, seconds
    ttl       time after creation, seconds, also when busy
    schedule  hours of the week in which machines run
    """

    place: Place | None = None
    idle: Decimal | None = None
    ttl: Decimal | None = None
    schedule: str | None = None


class FitRequirement(Struct, frozen=True, kw_only=True):
    """A model that a workspace must fit in memory, and its use."""

    place: Place
    model: str
    use: Literal["inference", "lora", "finetune"]


class WorkspaceGpus(Struct, frozen=True, kw_only=True):
    """The accelerators of a workspace: memory of each in bytes, and their count."""

    place: Place
    memory: int
    count: int = 1


class NetworkRule(Struct, frozen=True, kw_only=True):
    """The network of a stack, and who reaches it from others.

    id          of a network that there is already; none: the stack has its own
    subnets     of that network, each as NAME@PLACE
    range       addresses of the nodes
    peer_cidrs  ranges of addresses in networks that are joined to it
    private_endpoints  whether machines reach services of their cloud by endpoints in it
    public_addresses   whether machines go out by addresses of their own instead of a NAT
    """

    place: Place | None = None
    id: str | None = None
    subnets: tuple[str, ...] = ()
    range: str | None = None
    peer_cidrs: tuple[str, ...] = ()
    private_endpoints: bool = False
    public_addresses: bool = False


class EncryptionRule(Struct, frozen=True, kw_only=True):
    """How data at rest are encrypted.

    key             of the customer
    store_key       of the storage account of Azure, which takes no disk encryption set
    store_identity  with which that account uses its key
    """

    place: Place
    key: str
    store_key: str | None = None
    store_identity: str | None = None


class UsageRule(Struct, frozen=True, kw_only=True):
    """What a workload uses, where its owner knows better than what is assumed.

    container_image_gb      pulled once for each start of a machine, GB
    cross_region_gb         to or from another region in the period of the bill, GB
    log_gb_per_node_hour    lines that a machine tells in an hour, GB
    node_starts_per_month   starts of a machine that runs all month
    overlap_hours           in which both fleets are paid when a service moves
    prompt_bytes_per_token  text of a prompt token, B
    stream_bytes_per_token  an event of a stream of tokens, B
    """

    place: Place | None = None
    container_image_gb: Decimal | None = None
    cross_region_gb: Decimal | None = None
    log_gb_per_node_hour: Decimal | None = None
    node_starts_per_month: Decimal | None = None
    overlap_hours: Decimal | None = None
    prompt_bytes_per_token: Decimal | None = None
    stream_bytes_per_token: Decimal | None = None

    @property
    def stated(self) -> dict[str, Decimal]:
        """What is stated, by the names of data/usage.csv."""
        return {
            name: value
            for name, value in asdict(self).items()
            if isinstance(value, Decimal)
        }


class WorkloadBase(Struct, frozen=True, kw_only=True):
    """Fields that all kinds of workloads share.

    notify  addresses of who is told of trouble and cost
    protect  whether its data are kept whatever is allowed; set once a spec is loaded
    waivers  findings of the security check that are accepted, as RULE until DATE: reason
    """

    place: Place
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    where: PlacementRule = field(default_factory=PlacementRule)
    buy: PurchaseRule = field(default_factory=PurchaseRule)
    shutdown: ShutdownRule = field(default_factory=ShutdownRule)
    notify: tuple[str, ...] = ()
    protect: bool | None = None
    network: NetworkRule | None = None
    encryption: EncryptionRule | None = None
    usage: UsageRule | None = None
    waivers: tuple[str, ...] | None = None
    runtime: Runtime = "vm"

    @property
    def stated_usage(self) -> dict[str, Decimal]:
        """What is stated of its use, by the names of the usage table."""
        return self.usage.stated if self.usage is not None else {}


class EndpointRule(Struct, frozen=True, kw_only=True):
    """How clients reach a service.

    public       whether they come from the internet
    host         name that they call
    share        accounts whose networks may reach it by a private link
    certificate  with which HTTPS ends at the balancer, or a secret with that of the machines
    api_key      secret with the key that they send
    """

    place: Place | None = None
    public: bool = False
    host: str | None = None
    certificate: str | None = None
    share: tuple[str, ...] = ()
    api_key: str | None = None


class ElasticRule(Struct, frozen=True, kw_only=True):
    """How far the machines of a service follow what is asked of them.

    least  machines that run whatever is asked, as a share of those planned for an hour
    most   machines that run at most, as a multiple of those planned for the peak
    """

    place: Place
    least: Decimal = Decimal(1)
    most: Decimal = Decimal(1)


class Inference(WorkloadBase, frozen=True, kw_only=True):
    """A service that answers requests within an SLA.

    update  whether new machines answer before old ones go; they do where it is left out
    """

    model: ModelSpec
    traffic: Traffic
    sla: ServiceLevels | None = None
    serving: EngineSettings = field(default_factory=EngineSettings)
    endpoint: EndpointRule | None = None
    elastic: ElasticRule | None = None
    update: Literal["rolling", "recreate", "blue-green"] | None = None


class Batch(WorkloadBase, frozen=True, kw_only=True):
    """Inference without latency limits: a number of requests before a deadline.

    deadline  time that one run may take, seconds; a spec that leaves it out has one after loading
    """

    model: ModelSpec
    traffic: Traffic
    deadline: Decimal | None = None
    serving: EngineSettings = field(default_factory=EngineSettings)


class Dataset(Struct, frozen=True, kw_only=True):
    """The dataset of a training job.

    location  address in object storage
    tokens    trained tokens over all passes
    samples   sequences, or pairs of them for dpo, instead of tokens
    form      tokens, text or images
    image_tokens  tokens of a sequence for each image
    image_pixels  pixels of an image as it is stored
    size      bytes
    storage   auto, object or parallel
    """

    place: Place
    location: str
    tokens: int | None = None
    samples: int | None = None
    form: Literal["tokens", "text", "images"] = "tokens"
    image_tokens: int | None = None
    image_pixels: int | None = None
    size: int | None = None
    storage: str = "auto"


class TrainingMethod(Struct, frozen=True, kw_only=True):
    """How a model is trained.

    sequence      tokens in a sequence
    global_batch  sequences in an optimizer step
    framework     whose kernels and launch, `auto` by method
    precision     allowed precisions of matrix products
    expert_precision  precision of the products of routed experts, `auto` that of the others
    deadline      maximum duration, seconds
    budget        maximum cost of the run, USD
    prefer        what is minimized within the limits: cost, or time up to the knee
    checkpoint    time between checkpoints, seconds; `None` is the optimum
    keep_last     newest checkpoints that are kept
    keep_every    span of which the newest checkpoint is kept too, seconds
    evaluation    evaluated tokens for each trained token
    rank          rank of LoRA adapters
    """

    place: Place
    method: Method
    sequence: int = 8192
    global_batch: int | None = None
    optimizer: str = "adamw"
    framework: str = "auto"
    precision: tuple[str, ...] = ("auto",)
    expert_precision: str = "auto"
    deadline: Decimal | None = None
    budget: Decimal | None = None
    prefer: Literal["cost", "time"] = "cost"
    checkpoint: Decimal | None = None
    keep_last: int = 3
    keep_every: Decimal = Decimal(86_400)
    evaluation: Decimal = Decimal(0)
    rank: int = 16


class Training(WorkloadBase, frozen=True, kw_only=True):
    """A model that is trained on a dataset, with or without a deadline."""

    model: ModelSpec
    data: Dataset
    train: TrainingMethod


class Workspace(WorkloadBase, frozen=True, kw_only=True):
    """An interactive machine for each of a few people.

    fits         model that must fit; exclusive with `accelerator`
    accelerator  memory and count of the accelerators
    users        people, each with a machine
    disk         disk of each machine, bytes
    """

    fits: FitRequirement | None = None
    accelerator: WorkspaceGpus | None = None
    users: int = 1
    disk: int = 200 * 2**30


Spec: TypeAlias = Inference | Batch | Training | Workspace
