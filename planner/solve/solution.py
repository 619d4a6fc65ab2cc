"""The answer to a spec: what to buy, what it will do, what it costs and why not less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cost.storage import FileSystem
    from planner.cost.week import Week
    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.perf.correction import Correction
    from planner.perf.layout import Layout
    from planner.perf.load import Routing
    from planner.perf.train.search import Laid
    from planner.solve.bill import Bill
    from planner.solve.offer import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines of one kind. `span` nodes hold one replica when a node is too small.

    `least` is the number of nodes in the quietest running hour, `spare` the groups of them that
    availability adds, `context` the longest sequence in tokens, `window`
    the seconds of a daily batch run, 0 for everything else.
    """

    offer: Offer
    nodes: int
    least: int
    span: int
    replicas: int
    role: Literal["serve", "batch", "train", "workspace"]
    layout: Layout | None
    max_batch: int
    spare: int
    context: int
    window: int


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted number with its 90 % band and what it rests on."""

    value: float
    low: float
    high: float
    basis: Literal["measured", "calibrated", "physics", "spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A constraint: its slack, and what moving it to `relax_to` would save a month.

    In an infeasible solution `relax_to` is the nearest value with which a fleet exists, and
    `usd_month` what that fleet costs.
    """

    constraint: str
    slack: float | None
    relax_to: str
    saves_usd_month: Decimal | None
    usd_month: Decimal | None
    fleet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A simulation of the fleet: how many requests and seeds, and each percentile with its band.

    `requests_of` says where they are from, drawn or a trace, `routing` how they were spread. Keys
    and units are those of the predicted numbers; bands are Monte Carlo's, 90 %.
    """

    requests: int
    seeds: int
    added: int
    requests_of: Literal["trace", "drawn"]
    routing: Routing
    found: dict[str, tuple[float, float, float]]
    passed: bool = True


@dataclass(frozen=True, slots=True)
class Safety:
    """With which confidence limits are met, what that costs a month, and the fleet without it."""

    confidence: float
    usd_month: Decimal
    fleet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another fleet, and what stopped it from being chosen."""

    offer: Offer
    nodes: int
    usd_month: Decimal
    rejected_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Something to know before paying."""

    code: str
    message: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running the same job: what it is, what the run costs, and when it ends.

    Hours; nothing when it would never end.
    """

    name: str
    usd: Decimal | None
    hours: float | None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where data and checkpoints lie: `files` is a parallel file system, or objects do.

    Bytes/s that the job reads and that storage gives; seconds to write a checkpoint.
    """

    files: FileSystem | None
    wanted: float
    given: float
    written: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a training job runs. Hours, bytes and USD of the whole run.

    `usd` and `hours` are (half of the runs, 90 % of them) within, each at the speed that holds as
    often; `disk` is GB of a machine without NVMe; `ways` compare purchase options and what the
    fabric is worth. `layouts` are the best ones, the chosen first.
    """

    method: str
    tokens: float
    steps: int
    sequence: int
    batch: int
    interval: float
    save: float
    checkpoint: float
    stops: float
    spares: int
    disk: int
    storage: Storage
    hours: tuple[float, float]
    usd: tuple[Decimal, Decimal]
    layouts: tuple[Laid, ...]
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The whole answer. Without pools it is infeasible, and `binding` says what would do."""

    status: Literal["optimal", "feasible", "infeasible"]
    pools: tuple[Pool, ...]
    predicted: dict[str, Predicted]
    binding: tuple[Binding, ...]
    alternatives: tuple[Alternative, ...]
    bill: Bill | None
    warnings: tuple[Warn, ...]
    week: Week
    llm: Llm | None
    funnel: tuple[tuple[str, int], ...]
    considered: int
    safety: Safety | None = None
    verified: Verified | None = None
    run: Run | None = None
    learned: Correction | None = None
