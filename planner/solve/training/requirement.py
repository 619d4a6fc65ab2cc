"""Derive the job, its work and its limits from a Training spec."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.lifetime import release_time
from planner.errors import Problem, SpecError
from planner.facts.cloud import cloud_of_address
from planner.perf.common.constant import constant
from planner.perf.reliability.retention import Retention
from planner.perf.training.framework import framework_of
from planner.perf.training.job import Job, ParallelLayout
from planner.perf.training.loader import MILLION, LoaderWork, loaders
from planner.perf.training.measured import is_unseen_software
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.model_states import frozen_bytes, reference_model
from planner.solve.cause import because
from planner.solve.cloud_rule import max_group_nodes
from planner.solve.serving.requirement import resolve_model
from planner.solve.warning import assumed_architecture
from planner.spec.network import (
    endpoint_needs,
    given_network,
    has_public_addresses,
)
from planner.spec.training_blocks import round_batch
from planner.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.facts.private_endpoint import EndpointNeed
    from planner.market.offer import Instance
    from planner.perf.training.correction import TrainingCorrection
    from planner.perf.training.framework import Framework
    from planner.solve.cause import Cause
    from planner.spec.block import CapacityBlock
    from planner.spec.model import (
        Dataset,
        ShutdownRule,
        Training,
        TrainingMethod,
    )

PRETRAIN_TOKENS: Final = 4_000_000  # of a step, where none is stated
# Sequences of a step of fine-tuning, where none is stated.
SMALL_BATCH: Final = 64
TRAIN_TO_FORWARD: Final = 3  # passes of a trained token for one of evaluation
PAIR_SEQUENCES: Final = 2  # sequences of a preference
YEAR_S: Final = 365.0 * SECONDS_PER_DAY


class TrainingRequirement(Struct, frozen=True, kw_only=True):
    """What a training spec requires.

    llm                    model architecture
    method                 training method of the spec
    tokens                 trained tokens over all passes
    sequence               tokens in a sequence
    global_batch           sequences in an optimizer step
    optimizer              optimizer by its name in the spec
    framework              whose kernels and launch
    precisions             allowed precisions of matrix products
    expert_precision       precision of experts, nothing where it is that of other products
    lora_rank              rank of the adapters
    deadline_s             maximum duration, seconds
    shutdown               when machines are given back
    budget_usd             maximum cost of the run, USD
    prefers_time           whether time is worth money, up to the knee of their curve
    monthly_budget_usd     maximum cost in a month, USD
    checkpoint_interval_s  time between checkpoints, seconds; `None` is the optimum
    retention              checkpoints that are kept
    evaluation_share       evaluated tokens for each trained token
    data_bytes             size of the dataset, bytes
    loader_work            what host cores do so that the job is fed
    data_cloud             cloud that stores the dataset, when known
    storage_kind           auto, object or parallel
    spot_by_name           whether the spec asks for spot, and not only allows it
    confidence             probability with which the deadline holds
    has_own_network        whether the network is that of the stack
    has_addresses          whether machines go out by public addresses of their own
    endpoint_needs         what machines reach by private endpoints, beside a file system
    assumptions            values that the spec leaves open
    place                  position of the block `train` in the spec
    block_s                time of a capacity block in which machines work, seconds
    correction             what runs of one's own taught about the step time
    flex_s                 time for which machines stay that come by flex start, seconds
    """

    llm: Llm
    method: str
    tokens: float
    sequence: int
    global_batch: int
    optimizer: str
    framework: Framework
    precisions: tuple[str, ...]
    expert_precision: str
    lora_rank: int
    deadline_s: float | None
    shutdown: ShutdownRule
    budget_usd: Decimal | None
    prefers_time: bool
    monthly_budget_usd: Decimal | None
    checkpoint_interval_s: float | None
    retention: Retention
    evaluation_share: float
    data_bytes: float
    loader_work: LoaderWork
    data_cloud: str | None
    storage_kind: str
    spot_by_name: bool
    confidence: float
    assumptions: tuple[Cause, ...]
    place: Place | None
    has_own_network: bool = True
    has_addresses: bool = False
    endpoint_needs: frozenset[EndpointNeed] = frozenset()
    block_s: float | None = None
    flex_s: float | None = None
    correction: TrainingCorrection | None = None

    @property
    def loaded_bytes(self) -> float:
        """Weights that every machine loads before the first step, 16 bit; 0 for pretraining."""
        if self.method == "pretrain":
            return 0.0
        return BYTES_16BIT * self.llm.params

    def joined_nodes(self, instance: Instance) -> int | None:
        """Return the most machines of a type that one job spans, None without a limit."""
        return max_group_nodes(
            instance, spans_nodes=True, has_addresses=self.has_addresses
        )

    @property
    def work_tokens(self) -> float:
        """Trained tokens, plus evaluated tokens by their share of the work.

        `tokens * (1 + evaluation_share / 3)`: a forward pass is a third of a training step.
        """
        # Training takes three passes for each one of evaluation.
        return self.tokens * (1 + self.evaluation_share / TRAIN_TO_FORWARD)

    @property
    def training_steps(self) -> int:
        """Optimizer steps of training alone: evaluation takes none."""
        return math.ceil(self.tokens / (self.global_batch * self.sequence))

    @property
    def optimizer_steps(self) -> float:
        """Optimizer steps, with evaluation counted as steps of the same work.

        `work_tokens / (global_batch * sequence)`.
        """
        return self.work_tokens / (self.global_batch * self.sequence)

    @property
    def ttl_s(self) -> float | None:
        """Time after which the machines are given back, also at work, seconds."""
        return _optional_seconds(self.shutdown.ttl)

    @property
    def time_limit_s(self) -> float:
        """Maximum duration of the run, seconds: that of its shortest limit."""
        return min(self.time_limits_s.values())

    @property
    def time_limits_s(self) -> dict[str, float]:
        """What limits the duration of the run by its key in the spec, seconds; at most a year."""
        return {
            "train.deadline": self.deadline_s or YEAR_S,
            "shutdown.ttl": self.ttl_s or math.inf,
            "buy.block": self.block_s or math.inf,
            "buy.flex_start": self.flex_s or math.inf,
        }

    @property
    def time_limit_key(self) -> str:
        """Key of the shortest limit of the duration in the spec."""
        # Of equal limits the last one.
        limits_s = self.time_limits_s
        return min(reversed(limits_s), key=lambda key: limits_s[key])

    def broken_time_limits(self, duration_s: float) -> list[str]:
        """Return the keys of the limits that a run of `duration_s` seconds exceeds."""
        return [
            limit_key
            for limit_key, limit_s in self.time_limits_s.items()
            if duration_s > limit_s
        ]

    def build_job(
        self, instance: Instance, precision: str, network_bytes_per_s: float
    ) -> Job:
        """Return the job on a machine type, without a parallel layout.

        `network_bytes_per_s` is the bandwidth of one accelerator between machines, bytes/s.
        """
        frozen_param_bytes = frozen_bytes(self.method)
        return Job(
            llm=self.llm,
            chip=instance.chip,
            layout=ParallelLayout(),
            software=self.framework.software(
                precision,
                self.expert_precision,
                is_unseen=is_unseen_software(
                    self.framework.trainer, self.framework.kernels, self.llm
                ),
            ),
            sequence_tokens=self.sequence,
            global_batch=float(self.global_batch),
            network_bytes_s=network_bytes_per_s,
            optimizer=self.framework.optimizer(self.optimizer),
            frozen_bytes=frozen_param_bytes,
            # Only methods with frozen weights train adapters.
            lora_rank=self.lora_rank if frozen_param_bytes else 0,
            reference=reference_model(self.method),
        )


def training_requirement(
    spec: Training, read_file: Callable[[str], bytes], confidence: float
) -> TrainingRequirement:
    """Return the requirement of a spec.

    Raises MissingError for an unknown model, and SpecError when the sequence is longer than
    the model supports.
    """
    language_model = resolve_model(spec.model, read_file)
    train_section = spec.train
    data_section = spec.data
    _check_sequence(train_section, language_model)
    stated_tokens = _stated_tokens(spec)
    training_tokens = stated_tokens or _optimal_tokens(language_model)
    assumptions = [*assumed_architecture(language_model)]
    if not stated_tokens:
        assumptions.append(_token_assumption(training_tokens))
    assumptions += _image_assumptions(data_section)
    loader_work = _loader_work(spec, training_tokens)
    return TrainingRequirement(
        llm=language_model,
        method=train_section.method,
        tokens=training_tokens,
        sequence=train_section.sequence,
        global_batch=_global_batch(train_section),
        optimizer=train_section.optimizer,
        framework=framework_of(train_section.framework, train_section.method),
        precisions=_resolved_precisions(train_section.precision),
        expert_precision=_expert_precision(train_section, language_model),
        lora_rank=train_section.rank,
        deadline_s=_optional_seconds(train_section.deadline),
        shutdown=spec.shutdown,
        has_own_network=given_network(spec.network) is None,
        has_addresses=has_public_addresses(spec.network),
        endpoint_needs=endpoint_needs(spec),
        budget_usd=train_section.budget,
        prefers_time=train_section.prefer == "time",
        monthly_budget_usd=spec.buy.budget,
        checkpoint_interval_s=_optional_seconds(train_section.checkpoint),
        retention=Retention(
            keep_last=train_section.keep_last,
            keep_every_s=float(train_section.keep_every),
        ),
        evaluation_share=float(train_section.evaluation),
        data_bytes=loader_work.read_bytes,
        loader_work=loader_work,
        data_cloud=cloud_of_address(data_section.location),
        storage_kind=data_section.storage,
        spot_by_name=spec.buy.spot == "only"
        or spec.buy.on_demand_base is not None,
        confidence=confidence,
        assumptions=tuple(assumptions),
        place=train_section.place,
        block_s=_block_s(spec.buy.block),
        flex_s=float(release_time("flex_limit_s"))
        if spec.buy.flex_start
        else None,
    )


def _block_s(block: CapacityBlock | None) -> float | None:
    """Return for how long machines of a block work: they save and go before it ends, seconds."""
    if block is None:
        return None
    return max(1.0, block.duration_s - float(release_time("block_end_s")))


def _check_sequence(train_section: TrainingMethod, language_model: Llm) -> None:
    """Raise SpecError when the sequence is longer than the model supports."""
    if (
        # Pretraining sets the context; other methods keep that of the model.
        train_section.sequence > language_model.max_context > 0
        and train_section.method != "pretrain"
    ):
        message = (
            f"sequence {train_section.sequence:,} is longer than "
            f"{language_model.model} takes"
        )
        next_step = (
            f"set train.sequence to at most {language_model.max_context}"
        )
        problem = Problem(
            code="sequence",
            message=message,
            place=train_section.place,
            next_step=next_step,
        )
        raise SpecError(problem)


def _stated_tokens(spec: Training) -> float:
    """Return the tokens of the dataset, stated or by samples; 0 without either."""
    # A sample of preference tuning is a chosen and a rejected sequence.
    sample_tokens = spec.train.sequence * (
        1 if reference_model(spec.train.method) == "none" else PAIR_SEQUENCES
    )
    return float(spec.data.tokens or (spec.data.samples or 0) * sample_tokens)


def _loader_work(spec: Training, training_tokens: float) -> LoaderWork:
    """Return what host cores prepare: each sample of each pass, and those of evaluation."""
    dataset = spec.data
    loader = loaders()[dataset.form]
    trained_samples = training_tokens
    # A unit of text is a token, a unit of an image a pixel.
    sample_units = 1.0
    if dataset.form == "images":
        trained_samples /= dataset.image_tokens or 1
        sample_units = _image_pixels(dataset)
    trained_bytes = trained_samples * sample_units * loader.unit_bytes
    samples = trained_samples * (1 + float(spec.train.evaluation))
    return LoaderWork(
        loader=loader,
        units=samples * sample_units,
        samples=samples,
        # An unstated size is that of what is trained on, once.
        read_bytes=float(dataset.size or trained_bytes),
    )


def _image_pixels(dataset: Dataset) -> float:
    return dataset.image_pixels or constant("train_image_pixels") * MILLION


def _image_assumptions(dataset: Dataset) -> list[Cause]:
    if dataset.form != "images":
        return []
    image_encoder = because(
        "image-encoder", image_tokens=dataset.image_tokens or 1
    )
    if dataset.image_pixels:
        return [image_encoder]
    return [
        image_encoder,
        because("assumed-pixels", pixels=_image_pixels(dataset)),
    ]


def _optimal_tokens(language_model: Llm) -> float:
    """Return the compute-optimal tokens of a model (Chinchilla).

    `chinchilla * active_params`.
    """
    return constant("chinchilla") * language_model.active_params


def _token_assumption(training_tokens: float) -> Cause:
    return because(
        "assumed-tokens",
        tokens=training_tokens,
        tokens_per_parameter=constant("chinchilla"),
    )


def _global_batch(train_section: TrainingMethod) -> int:
    """Return the sequences in an optimizer step, stated or usual for the method."""
    if train_section.method == "pretrain":
        # Rounded as if it were stated, so that it divides well: 512 of 8k tokens, not 488.
        return train_section.global_batch or round_batch(
            PRETRAIN_TOKENS / train_section.sequence
        )
    return train_section.global_batch or SMALL_BATCH


def _resolved_precisions(precision_names: tuple[str, ...]) -> tuple[str, ...]:
    # Unique precisions in the order of the spec; auto is bf16.
    precisions = dict.fromkeys(
        "bf16" if precision == "auto" else precision
        for precision in precision_names
    )
    return tuple(precisions)


def _expert_precision(
    train_section: TrainingMethod, language_model: Llm
) -> str:
    """Return the stated precision of experts, or nothing.

    Raises SpecError when the model has no experts.
    """
    if train_section.expert_precision == "auto":
        return ""
    if not language_model.experts:
        problem = Problem(
            code="experts",
            message=f"{language_model.model} has no experts: train.expert_precision "
            "is of nothing",
            place=train_section.place,
            next_step="remove train.expert_precision",
        )
        raise SpecError(problem)
    return train_section.expert_precision


def _optional_seconds(duration_s: Decimal | None) -> float | None:
    return float(duration_s) if duration_s else None
