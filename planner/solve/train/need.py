"""From a Training spec to what must be solved: the job, the work, and the time for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.errors import Problem, SpecError
from planner.perf.constant import constant
from planner.perf.train.job import Job, Software, Spread
from planner.perf.train.states import frozen_bytes
from planner.solve.need import model

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.perf.train.job import Reference
    from planner.solve.offer import Instance
    from planner.spec.model import Training

PRETRAIN_TOKENS: Final = 4_000_000  # of a step, where none is stated
SMALL_BATCH: Final = (
    64  # sequences of a step of fine-tuning, where none is stated
)
TOKEN_BYTES: Final = 4  # of a stored token
FORWARD: Final = 3  # passes of a trained token for one of evaluation
REFERENCES: Final[dict[str, Reference]] = {"dpo": "copy", "dpo-lora": "base"}
PAIR: Final = 2  # sequences of a preference
YEAR: Final = 365 * 86_400.0
SCHEMES: Final = {"s3": "aws", "gs": "gcp", "abfs": "azure", "abfss": "azure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainNeed:
    """What a training spec asks: tokens, batch in sequences, seconds, bytes.

    `budget` is that of the run, `monthly` that of a month, in USD; `home` is the cloud that holds
    the data, where that is known. `confidence` is that with which the deadline is to hold; `notes`
    say what was assumed.
    """

    llm: Llm
    method: str
    tokens: float
    sequence: int
    batch: int
    optimizer: str
    precisions: tuple[str, ...]
    rank: int
    deadline: float | None
    budget: Decimal | None
    monthly: Decimal | None
    checkpoint: float | None
    evaluation: float
    data_bytes: float
    home: str | None
    storage: str
    confidence: float
    notes: tuple[str, ...]
    place: Place | None

    @property
    def work(self) -> float:
        """Tokens that are trained, and evaluated ones by what they cost of it."""
        return self.tokens * (1 + self.evaluation / FORWARD)

    @property
    def steps(self) -> float:
        """Steps of the optimizer, evaluation counted by its work."""
        return self.work / (self.batch * self.sequence)

    @property
    def limit(self) -> float:
        """Seconds that a run may take at most."""
        return self.deadline or YEAR

    def job(self, instance: Instance, precision: str, network: float) -> Job:
        """The job on a kind of machine, not laid out yet."""
        frozen = frozen_bytes(self.method)
        return Job(
            llm=self.llm,
            chip=instance.chip,
            spread=Spread(),
            software=Software(kernels="te", precision=precision),
            sequence=self.sequence,
            batch=float(self.batch),
            network=network,
            optimizer=self.optimizer,
            frozen=frozen,
            rank=self.rank if frozen else 0,
            reference=REFERENCES.get(self.method, "none"),
        )


def home(location: str) -> str | None:
    """The cloud whose objects an address names."""
    return SCHEMES.get(location.partition("://")[0])


def train_need(
    spec: Training, read: Callable[[str], bytes], confidence: float
) -> TrainNeed:
    """Return what a spec needs; raises SpecError or MissingError when it contradicts itself."""
    llm, train, data = model(spec.model, read), spec.train, spec.data
    notes = [llm.assumed] if llm.assumed else []
    if train.method == "pretrain":
        batch = train.global_batch or max(1, PRETRAIN_TOKENS // train.sequence)
    else:
        batch = train.global_batch or SMALL_BATCH
    if train.sequence > llm.max_context > 0 and train.method != "pretrain":
        message = (
            f"sequence {train.sequence:,} is longer than {llm.model} takes"
        )
        step = f"set train.sequence to at most {llm.max_context}"
        problem = Problem(
            code="sequence", message=message, place=train.place, next_step=step
        )
        raise SpecError(problem)
    length = train.sequence * (PAIR if train.method in REFERENCES else 1)
    tokens = float(data.tokens or (data.samples or 0) * length)
    if not tokens:
        each = constant("chinchilla")
        tokens = each * llm.active
        notes.append(
            f"tokens are not stated: {tokens:,.0f}, {each:g} for each parameter"
        )
    precisions = dict.fromkeys(
        "bf16" if name == "auto" else name for name in train.precision
    )
    return TrainNeed(
        llm=llm,
        method=train.method,
        tokens=tokens,
        sequence=train.sequence,
        batch=batch,
        optimizer=train.optimizer,
        precisions=tuple(precisions),
        rank=train.rank,
        deadline=float(train.deadline) if train.deadline else None,
        budget=train.budget,
        monthly=spec.buy.budget,
        checkpoint=float(train.checkpoint) if train.checkpoint else None,
        evaluation=float(train.evaluation),
        data_bytes=float(data.size or TOKEN_BYTES * tokens),
        home=home(data.location),
        storage=data.storage,
        confidence=confidence,
        notes=tuple(notes),
        place=train.place,
    )
