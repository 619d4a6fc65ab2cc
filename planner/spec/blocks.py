"""The keys of a spec, with their types, defaults and documentation.

The reader, the JSON Schema and the reference page are generated from these tables.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from planner.spec import model, unit
from planner.spec.field import (
    MISSING,
    Block,
    Choice,
    Field,
    LabelTable,
    ListOf,
    Quantity,
    TextPattern,
)
from planner.spec.schedule import parse_schedule
from planner.spec.source import MappingNode, Node, ScalarNode

if TYPE_CHECKING:
    from planner.errors import Place
    from planner.spec.field import JsonSchema, ProblemReport

NAME_TEXT: Final = TextPattern(
    r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
    "a name of a-z, 0-9 and -, at most 40 characters",
    40,
)
GLOB_TEXT: Final = TextPattern(
    r"[A-Za-z0-9*?._-]+", "a name or a pattern with *"
)
FILE_TEXT: Final = TextPattern(
    r"(?!/)(?!.*\.\.)[A-Za-z0-9_./ -]+", "a path beside the spec, without .."
)
PRECISIONS: Final = ("auto", "bf16", "fp8", "int8", "int4", "fp4", "mxfp4")
PERCENTILES: Final = (50, 90, 95, 99)
METRICS: Final[dict[model.Metric, str]] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "time of a whole request",
}
_WEEKDAY: Final = "(mon|tue|wed|thu|fri|sat|sun)"
DAYS_PATTERN: Final = rf"(weekdays|weekends|daily|{_WEEKDAY}([-,]{_WEEKDAY})*)"
SCHEDULE_TEXT: Final = TextPattern(
    DAYS_PATTERN + r" \d{2}:\d{2}-\d{2}:\d{2}( [A-Za-z]+(/[A-Za-z_+-]+){0,2})?",
    "a schedule such as 'weekdays 07:00-20:00 Europe/Berlin'",
)


def _build_sla(
    place: Place, availability: Decimal | None, **limits: Decimal | None
) -> model.ServiceLevels:
    latency_limits = tuple(
        model.LatencyLimit(
            metric=metric, percentile=percentile, seconds=limit_s
        )
        for metric in METRICS
        for percentile in PERCENTILES
        if (limit_s := limits.get(f"{metric}_p{percentile}")) is not None
    )
    return model.ServiceLevels(
        place=place, limits=latency_limits, availability=availability
    )


def _build_lengths(
    place: Place,  # noqa: ARG001 - every block is built with its place
    mean: Decimal,
    p95: Decimal | None,
) -> model.TokenLengths:
    # Without a stated p95 the lengths are taken as exponential: p95 = mean * ln 20.
    return model.TokenLengths(
        mean=mean, p95=p95 if p95 is not None else mean * Decimal("2.9957")
    )


def _build_training(
    place: Place, global_batch: tuple[int, bool] | None, **train_values: Any
) -> model.TrainingMethod:
    sequence_tokens = train_values["sequence"]
    if global_batch is None:
        return model.TrainingMethod(place=place, **train_values)
    batch_size, counts_tokens = global_batch
    batch_sequences = (
        # A batch in tokens is rarely a whole number of sequences.
        _round_batch(batch_size / sequence_tokens)
        if counts_tokens
        else batch_size
    )
    return model.TrainingMethod(
        place=place, global_batch=batch_sequences, **train_values
    )


def _round_batch(exact_sequences: float) -> int:
    """Return the roundest number of sequences within 5 % of a number.

    It is a multiple of the largest power of two that has a multiple in that range: 4M tokens
    in sequences of 4,096 tokens become 1,024 sequences.
    """
    low_sequences = math.ceil(0.95 * exact_sequences)
    high_sequences = math.floor(1.05 * exact_sequences)
    # Small batches have no whole number within 5 %.
    if low_sequences > high_sequences:
        return max(1, round(exact_sequences))
    # Halve the step until one of its multiples lies in the range.
    rounding_step: int = 1 << high_sequences.bit_length()
    while (
        not (high_sequences // rounding_step) * rounding_step >= low_sequences
    ):
        rounding_step //= 2
    return max(
        1,
        min(
            (
                # The largest and the smallest multiple in the range.
                (high_sequences // rounding_step) * rounding_step,
                -(-low_sequences // rounding_step) * rounding_step,
            ),
            key=lambda candidate: abs(candidate - exact_sequences),
        ),
    )


def _build_fits(place: Place, model_: str, use: str) -> model.FitRequirement:
    return model.FitRequirement(place=place, model=model_, use=use)  # type: ignore[arg-type]


class _LengthsType:
    """Token lengths: one number, or a mapping of mean and p95."""

    block = Block(
        "tokens",
        _build_lengths,
        (
            Field(
                "mean",
                Quantity(
                    lambda t: Decimal(unit.parse_count(t)),
                    "1200",
                    minimum=1,
                    maximum=10**7,
                ),
                "mean length in tokens",
                required=True,
            ),
            Field(
                "p95",
                Quantity(
                    lambda t: Decimal(unit.parse_count(t)),
                    "4000",
                    minimum=1,
                    maximum=10**7,
                ),
                "95th percentile of the length",
            ),
        ),
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return a fixed length for a number, and a distribution for a mapping."""
        if not isinstance(node, ScalarNode):
            token_lengths = self.block.read(node, field_path, report)
            if (
                token_lengths is not MISSING
                # A p95 below the mean has no length distribution in the model.
                and token_lengths.p95 < token_lengths.mean
            ):
                return report.add(
                    node.place,
                    "range",
                    f"{field_path}: p95 is below the mean",
                    "write a p95 of at least the mean",
                )
            return token_lengths
        mean_tokens = self.block.fields[0].field_type.read(
            node, field_path, report
        )
        return (
            MISSING
            if mean_tokens is MISSING
            else model.TokenLengths(mean=mean_tokens, p95=mean_tokens)
        )

    def schema(self) -> JsonSchema:
        """Describe both forms."""
        return {
            "anyOf": [
                self.block.fields[0].field_type.schema(),
                self.block.schema(),
            ]
        }


class _GlobalBatchType:
    """Global batch of a step: 4M tokens, 512 sequences, or 512."""

    batch_text = TextPattern(
        r"[0-9.]+ ?[kKmMbB]?( ?(tokens|sequences))?",
        "a batch such as 4M tokens or 512",
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the count, and whether it counts tokens instead of sequences."""
        batch_text = self.batch_text.read(node, field_path, report)
        if batch_text is MISSING:
            return MISSING
        try:
            batch_size = unit.parse_count(batch_text.removesuffix("sequences"))
        except ValueError as count_error:
            return report.add(
                node.place,
                "value",
                f"{field_path}: {count_error}",
                "write 4M tokens, or 512",
            )
        if not 1 <= batch_size <= 10**10:
            return report.add(
                node.place,
                "range",
                f"{field_path} is {batch_size:,}",
                "write 1 to 10 billion",
            )
        # A plain number counts sequences.
        return batch_size, "tokens" in batch_text

    def schema(self) -> JsonSchema:
        """Describe the text form and the plain number."""
        return {
            "anyOf": [
                self.batch_text.schema(),
                {"type": "integer", "minimum": 1},
            ]
        }


class _ScheduleType:
    """Hours of the week in a known time zone."""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the text after a check of its days, times and zone."""
        schedule_text = SCHEDULE_TEXT.read(node, field_path, report)
        if schedule_text is MISSING:
            return MISSING
        try:
            # The pattern checks the form only; times may be out of range.
            zone_name = parse_schedule(schedule_text)[3]
            ZoneInfo(zone_name)
        except ValueError as time_error:
            return report.add(
                node.place,
                "value",
                f"{field_path}: {time_error}",
                "write times from 00:00 to 24:00",
            )
        except (ZoneInfoNotFoundError, OSError):
            return report.add(
                node.place,
                "value",
                f"{field_path}: no time zone is named '{zone_name}'",
                "write a zone such as Europe/Berlin or UTC",
            )
        return schedule_text

    def schema(self) -> JsonSchema:
        """Describe the form."""
        return SCHEDULE_TEXT.schema()


class _ProfileType:
    """Shape of the load over a week: a name, or 24 or 168 hourly weights."""

    shape_names = Choice(("flat", "business-hours", "diurnal"))
    hourly_weights = ListOf(Quantity(unit.parse_number, "0.4", maximum=10**6))

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return a name, or a tuple of weights."""
        if isinstance(node, ScalarNode):
            return self.shape_names.read(node, field_path, report)
        hourly_weights = self.hourly_weights.read(node, field_path, report)
        if hourly_weights is MISSING:
            return MISSING
        if len(hourly_weights) not in (24, 168) or not any(hourly_weights):
            return report.add(
                node.place,
                "length",
                f"{field_path} has {len(hourly_weights)} weights",
                "give 24 or 168 hourly weights, not all zero",
            )
        return hourly_weights

    def schema(self) -> JsonSchema:
        """Describe both forms."""
        return {
            "anyOf": [self.shape_names.schema(), self.hourly_weights.schema()]
        }


class _RenamedBlock:
    """A block with keys that cannot be argument names in Python.

    argument_names  argument of `build_object` by key, such as `for` to `use`
    """

    def __init__(self, block: Block, argument_names: dict[str, str]) -> None:
        self.block = block
        self.argument_names = argument_names

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Read the block, and build the object with the renamed arguments."""
        build_object = self.block.build_object
        renamed_block = Block(
            self.block.name,
            lambda **field_values: build_object(
                **{
                    self.argument_names.get(field_key, field_key): field_value
                    for field_key, field_value in field_values.items()
                }
            ),
            self.block.fields,
        )
        return renamed_block.read(node, field_path, report)

    def schema(self) -> JsonSchema:
        """Describe the block."""
        return self.block.schema()


MODEL: Final = Block(
    "model",
    model.ModelSpec,
    (
        Field(
            "name",
            TextPattern(r"[A-Za-z0-9][A-Za-z0-9._/-]*", "a model name"),
            "a known model; `tonnage models` lists them",
        ),
        Field(
            "params",
            Quantity(unit.parse_count, "70B", minimum=10**6, maximum=10**14),
            "only a size: a dense architecture is assumed, and said so",
        ),
        Field(
            "config", FILE_TEXT, "a Hugging Face config.json beside the spec"
        ),
        Field(
            "precision",
            ListOf(Choice(PRECISIONS), allows_single=True),
            (
                "allowed weight precisions; auto takes the released one, and fp8 where the "
                "accelerator has it"
            ),
            default=("auto",),
        ),
        Field(
            "kv_precision",
            Choice(("auto", "bf16", "fp8")),
            "precision of the KV cache; auto is bf16",
            default="auto",
        ),
        Field(
            "context",
            Quantity(unit.parse_context, "8k", minimum=16, maximum=2**24),
            (
                "longest sequence that must fit, in tokens (k is 1024); the default is what "
                "the traffic needs"
            ),
        ),
    ),
    doc="what is served",
    exclusive_groups=(("name", "params", "config"),),
)

SLA: Final = Block(
    "sla",
    _build_sla,
    (
        *(
            Field(
                f"{latency_metric}_p{percentile}",
                Quantity(
                    unit.parse_seconds,
                    "800ms",
                    minimum=Decimal("0.0001"),
                    maximum=Decimal(86400),
                ),
                f"{metric_meaning}, {percentile}th percentile, at peak",
            )
            for latency_metric, metric_meaning in METRICS.items()
            for percentile in PERCENTILES
        ),
        Field(
            "availability",
            Quantity(
                unit.parse_percent,
                "99.9%",
                minimum=Decimal("0.5"),
                maximum=Decimal("0.99999"),
            ),
            "share of time with enough replicas for the peak; also survives the loss of one node",
        ),
    ),
    doc="what is promised; the percentile is part of the name",
)

_TRAFFIC_FIELDS: Final = (
    Field(
        "requests_per_day",
        Quantity(unit.parse_count, "1M", minimum=1, maximum=10**12),
        "requests of a day, spread by `profile`",
    ),
    Field(
        "input_tokens",
        _LengthsType(),
        "length of a prompt: one number, or {mean, p95}",
    ),
    Field(
        "output_tokens",
        _LengthsType(),
        "length of an answer: one number, or {mean, p95}",
    ),
    Field(
        "prefix_hit",
        Quantity(unit.parse_percent, "30%", maximum=Decimal("0.99")),
        "share of prompt tokens found in the prefix cache",
        default=Decimal(0),
    ),
)
TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    (
        Field(
            "peak_rps",
            Quantity(
                unit.parse_number,
                "12",
                minimum=Decimal("0.0001"),
                maximum=10**7,
            ),
            "requests a second in the busiest minutes",
        ),
        Field(
            "concurrency",
            Quantity(unit.parse_count, "64", minimum=1, maximum=10**7),
            "requests in flight at once, each followed by the next (closed loop)",
        ),
        Field(
            "trace",
            FILE_TEXT,
            "a CSV beside the spec with timestamp, input_tokens, output_tokens",
        ),
        *_TRAFFIC_FIELDS,
        Field(
            "burstiness",
            Quantity(unit.parse_number, "1.5", maximum=20),
            "coefficient of variation of the times between arrivals; 1 is Poisson",
            default=Decimal(1),
        ),
        Field(
            "routing",
            Choice(("random", "round-robin", "least-loaded")),
            (
                "how your router spreads requests over replicas; the load balancer that is "
                "created spreads them at random"
            ),
            default="random",
        ),
        Field(
            "profile",
            _ProfileType(),
            "shape of a week: flat, business-hours, diurnal, or 24 or 168 hourly weights",
            default="flat",
        ),
    ),
    doc="how requests arrive",
    exclusive_groups=(
        ("peak_rps", "requests_per_day", "concurrency", "trace"),
    ),
)
BATCH_TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    (
        Field(
            "total_requests",
            Quantity(unit.parse_count, "2M", minimum=1, maximum=10**12),
            "requests of the whole run",
        ),
        *_TRAFFIC_FIELDS,
    ),
    doc="how much there is to do",
    exclusive_groups=(("requests_per_day", "total_requests"),),
)

DATA: Final = Block(
    "data",
    model.Dataset,
    (
        Field(
            "tokens",
            Quantity(unit.parse_count, "1T", minimum=1000, maximum=10**15),
            "tokens that are trained on, all passes together",
        ),
        Field(
            "samples",
            Quantity(unit.parse_count, "50k", minimum=1, maximum=10**12),
            "sequences instead of tokens, or pairs of them for dpo",
        ),
        Field(
            "location",
            TextPattern(
                r"(s3|gs|abfss?|https)://[A-Za-z0-9._~/@%+-]+",
                "an address such as s3://bucket/folder",
            ),
            "where the dataset lies",
            required=True,
        ),
        Field(
            "size",
            Quantity(unit.parse_bytes, "4TiB", minimum=1, maximum=10**17),
            "bytes of the dataset; the default is 4 for each token",
        ),
        Field(
            "storage",
            Choice(("auto", "object", "parallel")),
            (
                "where machines read and write: auto adds a parallel file system when "
                "objects are too slow and it costs less"
            ),
            default="auto",
        ),
    ),
    doc="what is trained on",
)
TRAINING_METHOD: Final = Block(
    "train",
    _build_training,
    (
        Field(
            "method",
            Choice(
                (
                    "pretrain",
                    "continued",
                    "finetune",
                    "lora",
                    "qlora",
                    "dpo",
                    "dpo-lora",
                )
            ),
            (
                "from nothing, from a checkpoint, all weights, adapters, adapters on 4-bit "
                "weights, or preferences with a reference model"
            ),
            required=True,
        ),
        Field(
            "sequence",
            Quantity(unit.parse_context, "8k", minimum=128, maximum=2**24),
            "tokens of a sequence (k is 1024)",
            default=8192,
        ),
        Field(
            "global_batch",
            _GlobalBatchType(),
            (
                "tokens or sequences of a step; the default is 4M tokens for pretraining, 64 "
                "sequences else"
            ),
        ),
        Field(
            "optimizer",
            Choice(
                ("adamw", "adamw-16bit", "adam8bit", "adafactor", "muon", "sgd")
            ),
            "optimizer",
            default="adamw",
        ),
        Field(
            "precision",
            ListOf(
                Choice(("auto", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")),
                allows_single=True,
            ),
            "allowed precisions of products; auto is bf16",
            default=("auto",),
        ),
        Field(
            "deadline",
            Quantity(
                unit.parse_seconds, "14d", minimum=600, maximum=730 * 86400
            ),
            "time that the run may take; without one the cheapest run within a year",
        ),
        Field(
            "budget",
            Quantity(unit.parse_number, "50000", minimum=1, maximum=10**12),
            (
                "USD that the whole run may cost at most; without a deadline the plan is "
                "then the fastest run within it"
            ),
        ),
        Field(
            "checkpoint",
            Quantity(unit.parse_seconds, "30m", minimum=60, maximum=7 * 86400),
            "time between checkpoints; the default loses least time",
        ),
        Field(
            "evaluation",
            Quantity(unit.parse_percent, "1%", maximum=Decimal("0.5")),
            "share of tokens that is evaluated on top",
            default=Decimal(0),
        ),
        Field(
            "rank",
            Quantity(unit.parse_count, "16", minimum=1, maximum=1024),
            "rank of the adapters of lora and qlora",
            default=16,
        ),
    ),
    doc="how it is trained",
)

PLACEMENT: Final = Block(
    "where",
    model.PlacementRule,
    (
        Field(
            "clouds",
            ListOf(Choice(("aws", "gcp", "azure")), allows_single=True),
            "clouds that may be used",
            default=("aws", "azure", "gcp"),
        ),
        Field(
            "regions",
            ListOf(GLOB_TEXT, allows_single=True),
            "regions that may be used, with * as wildcard; all when empty",
            default=(),
        ),
        Field(
            "accelerators",
            Block(
                "accelerators",
                model.AcceleratorRule,
                (
                    Field(
                        "allow",
                        ListOf(GLOB_TEXT, allows_single=True),
                        "only these accelerators",
                        default=(),
                    ),
                    Field(
                        "deny",
                        ListOf(GLOB_TEXT, allows_single=True),
                        "never these accelerators",
                        default=(),
                    ),
                ),
            ),
            "accelerators that may or may not be used",
            default=model.AcceleratorRule(),
        ),
    ),
    doc="where it may run",
)
PURCHASE: Final = Block(
    "buy",
    model.PurchaseRule,
    (
        Field(
            "spot",
            Choice(("auto", "never", "only")),
            (
                "auto uses spot where an interruption loses no promise: batch yes, services "
                "and workspaces no"
            ),
            default="auto",
        ),
        Field(
            "commit",
            ListOf(Choice(("none", "1y", "3y")), allows_single=True),
            "commitments that may be bought",
            default=("none",),
        ),
        Field(
            "budget",
            Quantity(
                unit.parse_spending,
                "60000/month",
                minimum=Decimal(1),
                maximum=10**10,
            ),
            "most that it may cost: infeasible above it",
        ),
    ),
    doc="how capacity may be bought",
)
SHUTDOWN: Final = Block(
    "shutdown",
    model.ShutdownRule,
    (
        Field(
            "idle",
            Quantity(
                unit.parse_seconds, "30m", minimum=300, maximum=30 * 86400
            ),
            "give the machine back after this long without GPU work",
        ),
        Field(
            "ttl",
            Quantity(
                unit.parse_seconds, "72h", minimum=600, maximum=120 * 86400
            ),
            "hard deadline after creation, even when busy",
        ),
        Field(
            "schedule",
            _ScheduleType(),
            "hours in which it runs; outside them it is given back",
        ),
    ),
    doc="when capacity is given back",
)

_SHARED_FIELDS: Final = (
    Field(
        "name",
        NAME_TEXT,
        "names the stack and every resource in it",
        required=True,
    ),
    Field(
        "labels",
        LabelTable(
            TextPattern(
                r"[a-z][a-z0-9_-]{0,30}", "a key of a-z, 0-9, _ and -", 31
            ),
            TextPattern(
                r"[A-Za-z0-9_.@ -]{0,63}", "letters, digits and . _ @ -", 63
            ),
        ),
        "become tags on every resource",
        default={},
    ),
    Field(
        "where", PLACEMENT, "where it may run", default=model.PlacementRule()
    ),
    Field(
        "buy",
        PURCHASE,
        "how capacity may be bought",
        default=model.PurchaseRule(),
    ),
    Field(
        "shutdown",
        SHUTDOWN,
        "when capacity is given back",
        default=model.ShutdownRule(),
    ),
    Field(
        "runtime",
        Choice(("vm", "kubernetes", "slurm")),
        "what runs the replicas; only vm is built yet",
        default="vm",
    ),
)
_HEADER_FIELDS: Final = (
    Field(
        "apiVersion",
        Choice(("tonnage/v1",)),
        "version of this format",
        required=True,
    ),
    Field(
        "kind",
        Choice(("Inference", "Batch", "Training", "Workspace")),
        "what sort of workload it is",
        required=True,
    ),
)
SPEC_KINDS: Final = {
    "Inference": Block(
        "Inference",
        model.Inference,
        (
            *_HEADER_FIELDS,
            *_SHARED_FIELDS,
            Field("model", MODEL, "what is served", required=True),
            Field("sla", SLA, "what is promised"),
            Field("traffic", TRAFFIC, "how requests arrive", required=True),
        ),
        doc="A service that answers requests within an SLA.",
    ),
    "Batch": Block(
        "Batch",
        model.Batch,
        (
            *_HEADER_FIELDS,
            *_SHARED_FIELDS,
            Field("model", MODEL, "what is run", required=True),
            Field(
                "traffic",
                BATCH_TRAFFIC,
                "how much there is to do",
                required=True,
            ),
            Field(
                "deadline",
                Quantity(
                    unit.parse_seconds, "12h", minimum=600, maximum=90 * 86400
                ),
                "time a run may take",
                required=True,
            ),
        ),
        doc="Inference without latency: so many requests before a deadline.",
    ),
    "Training": Block(
        "Training",
        model.Training,
        (
            *_HEADER_FIELDS,
            *_SHARED_FIELDS,
            Field("model", MODEL, "what is trained", required=True),
            Field("data", DATA, "what is trained on", required=True),
            Field("train", TRAINING_METHOD, "how it is trained", required=True),
        ),
        doc="A model that is trained on a dataset, perhaps before a deadline.",
    ),
    "Workspace": Block(
        "Workspace",
        model.Workspace,
        (
            *_HEADER_FIELDS,
            *_SHARED_FIELDS,
            Field(
                "fits",
                _RenamedBlock(
                    Block(
                        "fits",
                        _build_fits,
                        (
                            Field(
                                "model",
                                TextPattern(
                                    r"[A-Za-z0-9][A-Za-z0-9._/-]*",
                                    "a model name",
                                ),
                                "a known model",
                                required=True,
                            ),
                            Field(
                                "for",
                                Choice(("inference", "lora", "finetune")),
                                "what is done with it",
                                required=True,
                            ),
                        ),
                    ),
                    {"model": "model_", "for": "use"},
                ),
                "what the machine must be able to hold",
            ),
            Field(
                "accelerator",
                Block(
                    "accelerator",
                    model.WorkspaceGpus,
                    (
                        Field(
                            "memory",
                            Quantity(
                                unit.parse_bytes,
                                "24GiB",
                                minimum=2**30,
                                maximum=2**40,
                            ),
                            "memory of each accelerator",
                            required=True,
                        ),
                        Field(
                            "count",
                            Quantity(
                                unit.parse_count, "1", minimum=1, maximum=64
                            ),
                            "accelerators of a machine",
                            default=1,
                        ),
                    ),
                ),
                "the accelerators themselves",
            ),
            Field(
                "users",
                Quantity(unit.parse_count, "3", minimum=1, maximum=1000),
                "people, each with a machine",
                default=1,
            ),
            Field(
                "disk",
                Quantity(
                    unit.parse_bytes,
                    "200GiB",
                    minimum=20 * 2**30,
                    maximum=64 * 2**40,
                ),
                "disk of each machine",
                default=200 * 2**30,
            ),
        ),
        doc="An interactive machine for each of a few people.",
        exclusive_groups=(("fits", "accelerator"),),
    ),
}


def workload_kind(root_node: MappingNode) -> str:
    """Return the value of `kind`, or an empty text when there is none."""
    kind_node = root_node.nodes.get("kind")
    return (
        # The kind selects the table of keys before any field is read.
        re.sub(r"\s", "", kind_node.text)
        if isinstance(kind_node, ScalarNode)
        else ""
    )
