"""From a Training spec to what must be solved: the job, the work, and the time for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.errors import Problem, SpecError
from planner.perf.common.constant import constant
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.model_states import frozen_bytes
from planner.solve.serving.requirement import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.market.offer import Instance
    from planner.perf.training.job import Reference
    from planner.spec.model import Training

PRETRAIN_TOKENS: Final = 4_000_000  # of a step, where none is stated
SMALL_BATCH: Final = (
    64  # sequences of a step of fine-tuning, where none is stated
)
TOKEN_BYTES: Final = 4  # of a stored token
TRAIN_TO_FORWARD: Final = 3  # passes of a trained token for one of evaluation
REFERENCE_MODELS: Final[dict[str, Reference]] = {
    "dpo": "copy",
    "dpo-lora": "base",
}
PAIR_SEQUENCES: Final = 2  # sequences of a preference
YEAR_S: Final = 365 * 86_400.0
CLOUD_BY_SCHEME: Final = {
    "s3": "aws",
    "gs": "gcp",
    "abfs": "azure",
    "abfss": "azure",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequirement:
    """What a training spec asks: tokens, batch in sequences, seconds, bytes.

    `budget_usd` is that of the run, `monthly_budget_usd` that of a month, in USD; `data_cloud` is the cloud that holds
    the data, where that is known. `confidence` is that with which the deadline is to hold; `assumptions`
    say what was assumed.
    """

    llm: Llm
    method: str
    tokens: float
    sequence: int
    global_batch: int
    optimizer: str
    precisions: tuple[str, ...]
    lora_rank: int
    deadline_s: float | None
    budget_usd: Decimal | None
    monthly_budget_usd: Decimal | None
    checkpoint_interval_s: float | None
    evaluation_share: float
    data_bytes: float
    data_cloud: str | None
    storage_kind: str
    confidence: float
    assumptions: tuple[str, ...]
    place: Place | None

    @property
    def work_tokens(self) -> float:
        """Tokens that are trained, and evaluated ones by what they cost of it."""
        return self.tokens * (1 + self.evaluation_share / TRAIN_TO_FORWARD)

    @property
    def optimizer_steps(self) -> float:
        """Steps of the optimizer, evaluation counted by its work."""
        return self.work_tokens / (self.global_batch * self.sequence)

    @property
    def time_limit_s(self) -> float:
        """Seconds that a run may take at most."""
        return self.deadline_s or YEAR_S

    def build_job(
        self, instance: Instance, precision: str, network_bytes_per_s: float
    ) -> Job:
        """The job on a kind of machine, not laid out yet."""
        frozen_param_bytes = frozen_bytes(self.method)
        return Job(
            llm=self.llm,
            chip=instance.chip,
            layout=ParallelLayout(),
            software=Software(kernels="te", precision=precision),
            sequence_tokens=self.sequence,
            global_batch=float(self.global_batch),
            network_bytes_s=network_bytes_per_s,
            optimizer=self.optimizer,
            frozen_bytes=frozen_param_bytes,
            lora_rank=self.lora_rank if frozen_param_bytes else 0,
            reference=REFERENCE_MODELS.get(self.method, "none"),
        )


def cloud_of_address(location: str) -> str | None:
    """The cloud whose objects an address names."""
    return CLOUD_BY_SCHEME.get(location.partition("://")[0])


def training_requirement(
    spec: Training, read_file: Callable[[str], bytes], confidence: float
) -> TrainingRequirement:
    """Return what a spec needs; raises SpecError or MissingError when it contradicts itself."""
    language_model = resolve_model(spec.model, read_file)
    train_section = spec.train
    data_section = spec.data
    assumptions = (
        [language_model.assumption] if language_model.assumption else []
    )
    if train_section.method == "pretrain":
        global_batch = train_section.global_batch or max(
            1, PRETRAIN_TOKENS // train_section.sequence
        )
    else:
        global_batch = train_section.global_batch or SMALL_BATCH
    if (
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
    sample_tokens = train_section.sequence * (
        PAIR_SEQUENCES if train_section.method in REFERENCE_MODELS else 1
    )
    training_tokens = float(
        data_section.tokens or (data_section.samples or 0) * sample_tokens
    )
    if not training_tokens:
        tokens_per_param = constant("chinchilla")
        training_tokens = tokens_per_param * language_model.active_params
        assumptions.append(
            f"tokens are not stated: {training_tokens:,.0f}, {tokens_per_param:g} for "
            "each parameter"
        )
    precisions = dict.fromkeys(
        "bf16" if precision == "auto" else precision
        for precision in train_section.precision
    )
    return TrainingRequirement(
        llm=language_model,
        method=train_section.method,
        tokens=training_tokens,
        sequence=train_section.sequence,
        global_batch=global_batch,
        optimizer=train_section.optimizer,
        precisions=tuple(precisions),
        lora_rank=train_section.rank,
        deadline_s=float(train_section.deadline)
        if train_section.deadline
        else None,
        budget_usd=train_section.budget,
        monthly_budget_usd=spec.buy.budget,
        checkpoint_interval_s=float(train_section.checkpoint)
        if train_section.checkpoint
        else None,
        evaluation_share=float(train_section.evaluation),
        data_bytes=float(data_section.size or TOKEN_BYTES * training_tokens),
        data_cloud=cloud_of_address(data_section.location),
        storage_kind=data_section.storage,
        confidence=confidence,
        assumptions=tuple(assumptions),
        place=train_section.place,
    )
