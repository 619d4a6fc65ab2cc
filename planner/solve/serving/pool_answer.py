"""What an answer says of one fleet: its machines, how it was judged, and what to know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.facts.compiler import compile_time_s
from planner.facts.serving_engine import (
    DEFAULT_ENGINE,
    has_gap,
    spoken_name,
)
from planner.market.public_address import takes_public_address
from planner.perf.serving.engine import find_engine
from planner.perf.serving.margin import has_own_errors
from planner.solve.cause import because
from planner.solve.serving.bill import bought_bill
from planner.solve.serving.elastic import elastic_range
from planner.solve.serving.evidence import evidence_warnings
from planner.solve.serving.shared_answer import (
    checked,
    shared_warnings,
    told_share,
)
from planner.solve.serving.sizing import (
    machine_lead,
    machine_startup_s,
    run_window_s,
    sized_fleet,
    startup_time_s,
)
from planner.solve.serving.spot_promise import has_promise
from planner.solve.serving.spot_range import promise_at_both_ends
from planner.solve.solution import (
    PlanWarning,
    SimulationCheck,
    SizedPool,
    bought_offer,
)
from planner.solve.warning import (
    idle_network_warnings,
    moved_price_warnings,
    price_warnings,
)
from planner.spec.model import Inference
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.request_class import RequestClass
    from planner.solve.cause import Cause
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.solution import JudgedPool, SizedService
    from planner.spec.model import Batch


def simulation_check_of(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> SimulationCheck | None:
    """Return how the selection was judged, and how many groups that added."""
    return checked(requirement, selection.sizing, search.judge)


def serving_pool(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
    *,
    name: str = "",
    weight: int = 0,
    requests: RequestClass | None = None,
    judged: JudgedPool | None = None,
    services: tuple[SizedService, ...] = (),
) -> SizedPool:
    """Return the machines of a fleet, or of one pool of it that has a name of its own."""
    sizing = selection.sizing
    hourly_nodes = requirement.week.hourly_nodes(
        sizing.peak_groups, sizing.nodes_per_group, sizing.spares
    )
    role = requirement.role
    return SizedPool(
        name=name or role,
        **bought_offer(selection.bought, sizing.nodes, sizing.nodes_per_group),
        min_nodes=min(node_count for node_count in hourly_nodes if node_count),
        nodes_per_group=sizing.nodes_per_group,
        replicas=sizing.replicas_per_group * sizing.total_groups,
        role=role,
        layout=sizing.layout,
        max_batch=sizing.replica.max_batch,
        spares=sizing.spares,
        context_tokens=requirement.load.max_context_tokens,
        token_budget=sizing.replica.startup_memory.max_step_tokens,
        drafting=requirement.load.drafting,
        engine=requirement.load.engine,
        memory_share=told_share(sizing),
        startup_s=machine_startup_s(sizing),
        lead_minutes=machine_lead(requirement, sizing),
        elastic=elastic_range(requirement, sizing, search.judge),
        run_window_s=run_window_s(requirement, sizing),
        weight=weight,
        requests=requests,
        judged=judged,
        part=requirement.part,
        services=services,
    )


def serving_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
    *,
    is_undecided: bool,
) -> tuple[PlanWarning, ...]:
    """Return what to know of a fleet before paying for it."""
    plan_warnings = [
        PlanWarning(code="assumed-model", reason=note)
        for note in requirement.notes
    ]
    if is_undecided:
        plan_warnings.append(PlanWarning(code="edge", reason=because("edge")))
    if (
        requirement.confidence.correction is not None
        and selection.sizing.replica.correction is None
    ):
        calibration = requirement.confidence.correction
        reason = because(
            "other-calibration",
            model=calibration.model,
            accelerator=calibration.accelerator,
        )
        if calibration.engine != selection.sizing.replica.engine.kind:
            reason = because(
                "engine-calibration", engine=spoken_name(calibration.engine)
            )
        plan_warnings.append(PlanWarning(code="calibration", reason=reason))
    return (
        *plan_warnings,
        *_sleep_warnings(spec, selection),
        *_compile_warnings(selection),
        *_window_warnings(spec, requirement, selection),
        *shared_warnings(spec, selection.sizing),
        *_purchase_warnings(spec, selection),
        *_spot_warnings(spec, requirement, search, selection),
        *idle_network_warnings(
            selection.bill,
            requirement.week,
            _addressed_bill(requirement, search, selection),
        ),
        *evidence_warnings(selection.sizing.replica.node.accelerator),
        *price_warnings(
            selection.bought, selection.bill.unpriced_lines, spec.buy.budget
        ),
    )


def _addressed_bill(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> Bill | None:
    """Return the bill of a fleet with public addresses, None where it may not have them."""
    spans_nodes = selection.sizing.nodes_per_group > 1
    if (
        requirement.has_addresses
        or requirement.is_public
        or not requirement.has_own_network
        or not takes_public_address(
            selection.bought.instance, spans_nodes=spans_nodes
        )
    ):
        return None
    return bought_bill(
        replace(requirement, has_addresses=True),
        selection.sizing,
        selection.bought,
        search.price_book,
    )


def choice_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    layouts: tuple[ReplicaLayout, ...],
) -> Iterator[PlanWarning]:
    """Yield what the engine of a fleet is told that may be decided otherwise."""
    yield from _engine_warnings(spec, requirement)
    if is_small_cache_chosen(requirement, layouts):
        yield PlanWarning(
            code="small-cache",
            reason=because("small-cache"),
            place=spec.model.place,
        )
    yield from _draft_warnings(spec, requirement)


def is_small_cache_chosen(
    requirement: ServingRequirement, layouts: tuple[ReplicaLayout, ...]
) -> bool:
    """Whether the search, and neither the spec nor the engine, has chosen a cache of 8 bits."""
    return (
        len(requirement.kv_precisions) > 1
        and not has_gap(requirement.load.engine, "wide-cache")
        and any(layout.has_small_cache for layout in layouts)
    )


def _engine_warnings(
    spec: Inference | Batch, requirement: ServingRequirement
) -> Iterator[PlanWarning]:
    """Yield which engine serves, where it is not the one that is taken by itself."""
    engine = requirement.load.engine
    if engine == DEFAULT_ENGINE:
        return
    name = spoken_name(engine)
    reason = because("engine-margins", engine=name)
    # A batch has no latency, and the errors of throughput are those of all engines.
    if requirement.mode == "batch" or has_own_errors(find_engine(engine).kind):
        reason = because("engine", engine=name)
    yield PlanWarning(code="engine", reason=reason, place=spec.serving.place)


def _draft_warnings(
    spec: Inference | Batch, requirement: ServingRequirement
) -> Iterator[PlanWarning]:
    """Yield what speculative decoding assumes."""
    drafting = requirement.load.drafting
    if drafting is None:
        return
    reason = because(
        "draft",
        method=drafting.method,
        guesses=drafting.draft_tokens,
        acceptance_share=drafting.acceptance,
        told_by=drafting.task or "serving.acceptance",
    )
    yield PlanWarning(code="draft", reason=reason, place=spec.serving.place)


def _sleep_warnings(
    spec: Inference | Batch, selection: ServingCandidate
) -> Iterator[PlanWarning]:
    """Yield what to know of a service that may have no machine."""
    elastic = spec.elastic if isinstance(spec, Inference) else None
    if elastic is not None and not elastic.least:
        startup_s = startup_time_s(selection.sizing.replica)
        reason = because("asleep", startup_s=startup_s)
        yield PlanWarning(code="asleep", reason=reason, place=elastic.place)


def _compile_warnings(selection: ServingCandidate) -> Iterator[PlanWarning]:
    """Yield how long a new machine takes, where its engine compiles programs first."""
    sizing = selection.sizing
    accelerator = sizing.replica.node.accelerator
    compile_s = compile_time_s(accelerator.vendor)
    if compile_s:
        reason = because(
            "compiles",
            accelerator=accelerator.accelerator,
            compile_s=compile_s,
            startup_s=machine_startup_s(sizing),
        )
        yield PlanWarning(code="startup", reason=reason)


def _window_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    selection: ServingCandidate,
) -> Iterator[PlanWarning]:
    """Yield when the machines of a daily batch leave, where that is before the deadline."""
    window_s = run_window_s(requirement, selection.sizing)
    if 0 < window_s < int(requirement.deadline_s):
        reason = because(
            "window", window_s=window_s, deadline_s=requirement.deadline_s
        )
        yield PlanWarning(
            code="window", reason=reason, place=spec.shutdown.place
        )


def _purchase_warnings(
    spec: Inference | Batch, selection: ServingCandidate
) -> Iterator[PlanWarning]:
    """Yield what to know of the way in which machines are bought."""
    offer, sizing = selection.bought, selection.sizing
    reserved = offer.reservation
    if (
        reserved is not None
        and isinstance(spec, Inference)
        and spec.update != "recreate"
        and sizing.nodes == reserved.machines
    ):
        reason = because("reserved-roll", machines=reserved.machines)
        yield PlanWarning(code="roll", reason=reason, place=spec.buy.place)


def _spot_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> Iterator[PlanWarning]:
    """Yield which machines may be taken back, and what is promised all the same."""
    offer, sizing = selection.bought, selection.sizing
    if "spot" not in offer.purchases:
        return
    yield PlanWarning(
        code="spot",
        reason=_spot_reason(requirement, sizing, offer),
        place=spec.buy.place,
    )
    yield from moved_price_warnings(selection.offer, spec.buy.place)
    if has_promise(requirement, offer):
        ends = promise_at_both_ends(requirement, selection, search.price_book)
        yield PlanWarning(
            code="spot-promise", reason=ends, place=spec.buy.place
        )


def _spot_reason(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> Cause:
    """Return how many machines stay when all on spot are taken back, and what these can do."""
    if offer.mix is None:
        return because("spot")
    # The last way to buy is spot: it begins where the machines end that stay.
    *_, (base_nodes, _) = offer.mix.spans(sizing.nodes, sizing.nodes_per_group)
    if requirement.mode != "batch":
        return because("spot-base", nodes=sizing.nodes, base_nodes=base_nodes)
    alone = sized_fleet(
        requirement,
        sizing.replica,
        sizing.group,
        base_nodes // sizing.nodes_per_group,
    )
    return because(
        "spot-run",
        nodes=sizing.nodes,
        base_nodes=base_nodes,
        alone_s=alone.duration_hours * SECONDS_PER_HOUR,
    )
