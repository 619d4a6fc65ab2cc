"""A spec as values: what the user asked for, in base units, with the place of each block.

Times are seconds, sizes bytes, money USD a month, shares fractions of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from planner.errors import Place

Method: TypeAlias = Literal[
    "pretrain", "continued", "finetune", "lora", "qlora", "dpo", "dpo-lora"
]
Metric: TypeAlias = Literal["ttft", "tpot", "e2e"]
Runtime: TypeAlias = Literal["vm", "kubernetes", "slurm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which model: by name, by number of parameters, or by a config.json beside the spec."""

    place: Place
    name: str | None = None
    params: int | None = None
    config: str | None = None
    precision: tuple[str, ...] = ("auto",)
    kv_precision: str = "auto"
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimit:
    """One latency limit: metric ttft, tpot or e2e, percentile, seconds."""

    metric: Metric
    percentile: int
    seconds: Decimal

    @property
    def key(self) -> str:
        """Its key in the spec, such as ttft_p95."""
        return f"{self.metric}_p{self.percentile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevels:
    """What the service promises; empty when nothing is promised."""

    place: Place
    limits: tuple[LatencyLimit, ...] = ()
    availability: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A length distribution by its mean and 95th percentile."""

    mean: Decimal
    p95: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """How requests arrive. Exactly one of the first five says how many."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRule:
    """Accelerators that may or may not be used, by glob pattern."""

    place: Place | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRule:
    """Where it may run."""

    place: Place | None = None
    clouds: tuple[str, ...] = ("aws", "azure", "gcp")
    regions: tuple[str, ...] = ()
    accelerators: AcceleratorRule = field(default_factory=AcceleratorRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseRule:
    """How capacity may be bought, and the most that it may cost a month."""

    place: Place | None = None
    spot: Literal["auto", "never", "only"] = "auto"
    commit: tuple[str, ...] = ("none",)
    budget: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRule:
    """When capacity is given back."""

    place: Place | None = None
    idle: Decimal | None = None
    ttl: Decimal | None = None
    schedule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequirement:
    """What a workspace must be able to hold."""

    place: Place
    model: str
    use: Literal["inference", "lora", "finetune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceGpus:
    """The accelerators of a workspace: memory of each in bytes, and how many."""

    place: Place
    memory: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadBase:
    """What all kinds share."""

    place: Place
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    where: PlacementRule = field(default_factory=PlacementRule)
    buy: PurchaseRule = field(default_factory=PurchaseRule)
    shutdown: ShutdownRule = field(default_factory=ShutdownRule)
    runtime: Runtime = "vm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference(WorkloadBase):
    """A service that answers requests within an SLA."""

    model: ModelSpec
    traffic: Traffic
    sla: ServiceLevels | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(WorkloadBase):
    """Inference without latency: so many requests before a deadline."""

    model: ModelSpec
    traffic: Traffic
    deadline: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What is trained on: so many tokens or samples, where it lies, how large it is in bytes."""

    place: Place
    location: str
    tokens: int | None = None
    samples: int | None = None
    size: int | None = None
    storage: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMethod:
    """How it is trained. `global_batch` is sequences of a step; no `checkpoint` means the best."""

    place: Place
    method: Method
    sequence: int = 8192
    global_batch: int | None = None
    optimizer: str = "adamw"
    precision: tuple[str, ...] = ("auto",)
    deadline: Decimal | None = None
    budget: Decimal | None = None
    checkpoint: Decimal | None = None
    evaluation: Decimal = Decimal(0)
    rank: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(WorkloadBase):
    """A model that is trained on a dataset, perhaps before a deadline."""

    model: ModelSpec
    data: Dataset
    train: TrainingMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(WorkloadBase):
    """An interactive machine for each of a few people."""

    fits: FitRequirement | None = None
    accelerator: WorkspaceGpus | None = None
    users: int = 1
    disk: int = 200 * 2**30


Spec: TypeAlias = Inference | Batch | Training | Workspace
