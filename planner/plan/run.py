"""The parts of a plan that only a training job has."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Literal

from msgspec import Meta

from planner.plan.part import DocumentPart, Number
from planner.plan.pool import FleetRef  # noqa: TC001 - msgspec reads the annotations


class StorageSpeed(DocumentPart, frozen=True, kw_only=True):
    """Where data and checkpoints lie, and how fast that is."""

    kind: Annotated[
        Literal["object", "parallel"],
        Meta(description="object storage, or a parallel file system"),
    ]
    gib: Annotated[
        int | None, Meta(description="capacity of a parallel file system")
    ] = None
    mb_s_tib: Annotated[
        int | None, Meta(description="MB/s that each TiB of it brings")
    ] = None
    wanted_mb_s: Annotated[Number, Meta(description="what the job reads")]
    given_mb_s: Annotated[Number, Meta(description="what storage gives")]
    checkpoint_write_s: Annotated[
        Number, Meta(description="seconds to write one checkpoint")
    ]
    checkpoint_load_s: Annotated[
        Number, Meta(description="seconds to load one after a stop")
    ]


class LoaderSpeed(DocumentPart, frozen=True, kw_only=True):
    """How host cores feed a job that tokenizes or decodes while it trains."""

    form: Annotated[str, Meta(description="text or images")]
    cores: Annotated[
        Number, Meta(description="cores of a machine that loaders have")
    ]
    workers: Annotated[
        int, Meta(description="processes of each rank that loads data")
    ]
    wanted_s: Annotated[
        Number,
        Meta(description="tokens or images a machine trains on in a second"),
    ]
    given_s: Annotated[
        Number, Meta(description="of these that its cores prepare in a second")
    ]


class CheckpointRule(DocumentPart, frozen=True, kw_only=True):
    """Which checkpoints the machines keep, and what is left of them in the end."""

    last: Annotated[int, Meta(description="newest checkpoints that are kept")]
    every_s: Annotated[
        Number, Meta(description="seconds of which the newest is kept too")
    ]
    left: Annotated[int, Meta(description="checkpoints when the run ends")]
    left_gb: Annotated[Number, Meta(description="GB of these")]
    left_usd_month: Annotated[
        Decimal | None,
        Meta(description="of these until they are deleted; not in the bill"),
    ]


class BilledTime(DocumentPart, frozen=True, kw_only=True):
    """What one machine is billed for in the mean run, in the order of events. Hours."""

    start: Annotated[Number, Meta(description="boot, weights and data")]
    steps: Annotated[Number, Meta(description="training")]
    lost: Annotated[
        Number, Meta(description="to checkpoints, failures and restarts")
    ]
    closing: Annotated[Number, Meta(description="the last checkpoint")]
    release: Annotated[
        Number,
        Meta(description="until the machine is given back, the job being done"),
    ]
    total: Annotated[Number, Meta(description="their sum")]


class TrainingLayout(DocumentPart, frozen=True, kw_only=True):
    """A layout of a training job with its step time and memory."""

    tp: Annotated[int, Meta(description="tensor parallel")]
    pp: Annotated[int, Meta(description="pipeline parallel")]
    vpp: Annotated[int, Meta(description="chunks of a pipeline stage")]
    cp: Annotated[int, Meta(description="context parallel")]
    ep: Annotated[int, Meta(description="expert parallel")]
    dp: Annotated[int, Meta(description="data parallel")]
    sharding: Annotated[
        str, Meta(description="none, zero1, zero2 or zero3 (FSDP)")
    ]
    shard: Annotated[
        int | None, Meta(description="ranks that share states; none is all")
    ]
    micro_batch: Annotated[Number, Meta(description="sequences")]
    recompute: Annotated[str, Meta(description="none, layer or full")]
    recomputed_layers: Annotated[
        int, Meta(description="layers of a chunk that are recomputed")
    ]
    precision: Annotated[str, Meta(description="of products")]
    step_time_s: Annotated[Number, Meta(description="seconds of a step")]
    peak_gib: Annotated[
        Number, Meta(description="GiB of the fullest accelerator")
    ]
    limit: Annotated[str, Meta(description="what costs most time")]


class RunScenario(DocumentPart, frozen=True, kw_only=True):
    """Another way to run the same job; without a price it would never end."""

    way: Annotated[str, Meta(description="name of the way to run")]
    usd: Annotated[Decimal | None, Meta(description="of the run")]
    hours_p90: Annotated[
        Number | None, Meta(description="90 % of the runs end within")
    ]
    remark: Annotated[str, Meta(description="what to know about it")]


class CurvePoint(DocumentPart, frozen=True, kw_only=True):
    """A point of time against cost: the cheapest cluster that is as fast."""

    fleet: Annotated[FleetRef, Meta(description="machines, with spares")]
    purchase: Annotated[str, Meta(description="how they are bought")]
    accelerators: Annotated[int, Meta(description="accelerators at work")]
    hours: Annotated[
        Number, Meta(description="holds with the confidence of the plan")
    ]
    usd: Annotated[Decimal, Meta(description="of the run, expected")]
    mfu: Annotated[Number, Meta(description="share of the 16-bit peak")]
    chosen: Annotated[bool, Meta(description="whether the plan is this one")]
    knee: Annotated[
        bool,
        Meta(description="whether cost times time is least here"),
    ]
    violates: Annotated[
        str | None, Meta(description="key of a limit that it exceeds")
    ] = None


class BaseRun(DocumentPart, frozen=True, kw_only=True):
    """How a job goes on while its machines on spot are away."""

    nodes: Annotated[int, Meta(description="nodes that are on demand")]
    speed: Annotated[
        Number, Meta(description="of them alone, as a share of all machines")
    ]
    layout: Annotated[TrainingLayout, Meta(description="of the job on them")]


class Run(DocumentPart, frozen=True, kw_only=True):
    """How a training job runs: the whole of it."""

    method: Annotated[str, Meta(description="training method")]
    tokens: Annotated[Number, Meta(description="tokens that are trained")]
    steps: Annotated[int, Meta(description="optimizer steps")]
    sequence: Annotated[int, Meta(description="tokens of a sequence")]
    global_batch: Annotated[int, Meta(description="sequences of a step")]
    checkpoint_interval_s: Annotated[
        Number, Meta(description="seconds from one checkpoint to the next")
    ]
    checkpoint_blocks_s: Annotated[
        Number, Meta(description="seconds that each one stops the job")
    ]
    checkpoint_gb: Annotated[Number, Meta(description="GB of one checkpoint")]
    checkpoints: Annotated[
        CheckpointRule, Meta(description="which of them are kept")
    ]
    billed_hours: Annotated[
        BilledTime, Meta(description="the life of one machine")
    ]
    stops: Annotated[Number, Meta(description="expected interruptions")]
    spares: Annotated[int, Meta(description="nodes that wait for a failure")]
    base: Annotated[
        BaseRun | None,
        Meta(description="the job while spot is away; nothing without a mix"),
    ] = None
    hours_p50: Annotated[
        Number, Meta(description="half of 1,000 simulated runs end within")
    ]
    hours_p90: Annotated[Number, Meta(description="90 % of them end within")]
    usd_p50: Annotated[
        Decimal, Meta(description="half of the runs cost at most")
    ]
    usd_p90: Annotated[Decimal, Meta(description="90 % of them cost at most")]
    storage: Annotated[
        StorageSpeed, Meta(description="where data and checkpoints lie")
    ]
    loader: Annotated[
        LoaderSpeed | None,
        Meta(description="how cores feed it; nothing where data are packed"),
    ] = None
    layouts: Annotated[
        tuple[TrainingLayout, ...],
        Meta(description="the best layouts, the chosen one first"),
    ]
    ways: Annotated[
        tuple[RunScenario, ...],
        Meta(description="other ways to run on the same machines"),
    ]
    curve: Annotated[
        tuple[CurvePoint, ...],
        Meta(description="what time costs, the slowest cluster first"),
    ]


class Launch(DocumentPart, frozen=True, kw_only=True):
    """How a training job is started, also on a cluster of one's own."""

    world_size: Annotated[int, Meta(description="ranks")]
    nodes: Annotated[int, Meta(description="nodes that work")]
    ranks_per_node: Annotated[int, Meta(description="one for each accelerator")]
    environment: Annotated[
        dict[str, str], Meta(description="variables of NCCL on the fabric")
    ]
    arguments: Annotated[tuple[str, ...], Meta(description="of the trainer")]
    slurm: Annotated[str, Meta(description="a batch script")]
