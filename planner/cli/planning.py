"""From a spec to its plan: the facts, the solution, the stack that stands, and the document."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cli.compose import (
    LastCatalog,
    open_engine,
    own_live_catalog,
    readable_stacks,
    solve_settings,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.cli.shared_quota import PlanUse
    from planner.market.offer import Catalog
    from planner.plan.change import LiveInputs
    from planner.plan.pool import OfferRef
    from planner.plan.quota_shortfall import QuotaShortfall
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan, PlanInputs
    from planner.solve.settings import Memory, SolveSettings
    from planner.solve.solution import Solution
    from planner.spec.model import NetworkRule, Spec
    from stacks.engine.protocol import StackEngine


class UsedPlan(Struct, frozen=True):
    """A plan as it leaves its process, with what its fleet adds to quotas, if that is known.

    `together_usd` is its part of what services pay together a month, where they do.
    """

    plan: Plan
    use: PlanUse | None = None
    together_usd: Decimal | None = None


class FoundPlan(Struct, frozen=True):
    """The plan of a spec, the solution that it was made of, and what that was found with.

    What each wish of the spec costs may still be to plan.
    """

    plan: Plan
    solution: Solution
    spec: Spec
    settings: SolveSettings

    def explained(self) -> Plan:
        """Return the plan with what each wish of the spec costs."""
        from planner.plan.document import with_reasons

        return with_reasons(self.plan, self.solution.explained())

    def used(self, plan: Plan) -> UsedPlan:
        """Return its plan, or the explained one, with what its fleet adds to quotas."""
        if plan.inputs.live is None:
            return UsedPlan(plan)
        from planner.cli.shared_quota import plan_use

        return UsedPlan(plan, plan_use(self))


def make_plan(
    spec_file: SpecFile, catalog: Catalog, options: PlanningOptions
) -> Plan:
    """Return the whole plan of a spec."""
    return find_plan(spec_file, catalog, options).explained()


def find_plan(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    memory: Memory | None = None,
    *,
    known: LiveInputs | None = None,
) -> FoundPlan:
    """Return the plan of a spec, with what it does to the stack that stands.

    `known` is what the account may have as far as it was asked before.
    """
    from planner.cli.blame import at_overrides
    from planner.cli.live import live_inputs
    from planner.plan.status import standing_offers
    from planner.spec.network import chosen_range

    stack_status = None
    own_range = chosen_range(spec_file.spec.network, ())
    # Without a stack no engine is opened, so no account is needed.
    if options.uses_stack_state:
        stack_name = options.stack or spec_file.spec.name
        engine = open_engine(options)
        stack_status = engine.stack_status(stack_name)
        own_range = standing_range(
            engine, stack_name, spec_file.spec.network, stack_status
        )
    with at_overrides(spec_file, catalog):
        found_plan = derive_plan(
            spec_file,
            catalog,
            options,
            memory,
            state_sha256=stack_status.state_sha256 if stack_status else None,
            standing=standing_offers(stack_status),
            own_range=own_range,
            live=live_inputs(spec_file, catalog, options, stack_status, known),
        )
    if stack_status is None or not found_plan.solution.is_built:
        return found_plan
    plan = _with_changes(found_plan.plan, stack_status, options)
    return replace(found_plan, plan=plan)


def standing_range(
    engine: StackEngine,
    stack_name: str,
    network: NetworkRule | None,
    stack_status: StackStatus | None,
) -> str:
    """Return the addresses of a stack's own network: those that it has, or that nobody has.

    Raises SpecError for a peer that has some of those that the stack has.
    """
    from planner.spec.network import (
        chosen_range,
        leaves_range_open,
        refuse_inner_peers,
    )

    facts = stack_status.facts if stack_status is not None else None
    # In a network that somebody else has made, it had no addresses of its own.
    if (
        leaves_range_open(network)
        and facts is not None
        and not (facts.spec.get("network") or {}).get("id")
    ):
        refuse_inner_peers(network, facts.network_range)
        return facts.network_range
    return chosen_range(network, taken_ranges(engine, stack_name))


def taken_ranges(engine: StackEngine, stack_name: str) -> list[str]:
    """Return the addresses of all other stacks of an engine."""
    return [
        status.facts.network_range
        for status in readable_stacks(engine)
        if status.stack != stack_name and status.facts is not None
    ]


def derive_plan(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    memory: Memory | None = None,
    *,
    state_sha256: str | None = None,
    standing: tuple[OfferRef, ...] = (),
    own_range: str,
    live: LiveInputs | None = None,
) -> FoundPlan:
    """Return the plan of a spec; without pools where it is infeasible.

    `standing` is what was bought for the stack that stands: a plan leaves it when that pays.
    `own_range` has the addresses of a network of its own, where the spec leaves them open.
    `live` is what the account may have, where it was asked.
    """
    from planner.plan.document import PlannedStack, SpecSource, assemble
    from planner.spec.network import with_range
    from planner.workload.chance import likely_zones_first
    from planner.workload.solver import find
    from planner.workload.standing import stay_in_zones, stay_or_move
    from stacks.build import planned_stack, with_planned_fallbacks

    digests: dict[str, str] = {}
    last = memory.get(LastCatalog, LastCatalog) if memory else LastCatalog()
    settings = solve_settings(
        spec_file,
        last.own_live(catalog, options, live),
        options,
        memory,
        digests,
    )
    solution, staying = stay_or_move(
        spec_file.spec,
        settings,
        find(spec_file.spec, settings),
        [offer.key for offer in standing],
    )
    solution = stay_in_zones(
        likely_zones_first(solution, live.facts) if live else solution,
        {(offer.provider, offer.region, offer.zone) for offer in standing},
    )
    stack = PlannedStack(
        name=options.stack or spec_file.spec.name, state_sha256=state_sha256
    )
    placed_spec = with_range(spec_file.spec, own_range)
    # An infeasible plan creates nothing, and neither does one at a cloud that only rents out.
    if solution.is_built:
        stack = planned_stack(placed_spec, solution, stack)
    plan = assemble(
        spec_file.spec,
        solution,
        settings.catalog,
        source=SpecSource(spec_file.path, spec_file.sha256),
        stack=stack,
        inputs=replace(
            plan_inputs(stack.graph.provider, options, digests, standing),
            network_range=own_range,
            live=live,
        ),
        staying=staying,
        quota_shortfalls=_shortfalls(
            spec_file, catalog, options, live, settings.memory
        ),
    )
    plan = with_planned_fallbacks(plan, placed_spec, settings, solution)
    return FoundPlan(plan, solution, spec_file.spec, settings)


def _shortfalls(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    live: LiveInputs | None,
    memory: Memory,
) -> tuple[QuotaShortfall, ...]:
    """Return the quotas that keep an account from a cheaper fleet, which is planned without."""
    if live is None or not options.tells_shortfalls:
        return ()
    from planner.plan.quota_shortfall import quota_shortfalls, without_quotas
    from planner.workload.solver import find

    free = replace(live, facts=without_quotas(live.facts))
    settings = solve_settings(
        spec_file, own_live_catalog(catalog, options, free), options, memory
    )
    return quota_shortfalls(
        find(spec_file.spec, settings), live.facts, live.standing_counts
    )


def plan_inputs(
    provider: str,
    options: PlanningOptions,
    digests: dict[str, str],
    standing: tuple[OfferRef, ...],
) -> PlanInputs:
    """Return what a plan was made from beside its spec and the catalog."""
    from planner.plan.types import PlanInputs
    from stacks.graph import plugin_versions

    calibration = options.calibration
    return PlanInputs(
        files=digests,
        standing=standing,
        calibration=calibration,
        calibration_sha256=(
            hashlib.sha256(options.read_own(calibration)).hexdigest()
            if calibration
            else None
        ),
        prices=options.prices,
        prices_sha256=(
            hashlib.sha256(options.read_own(options.prices)).hexdigest()
            if options.prices
            else None
        ),
        alternatives=options.alternatives,
        confidence=options.confidence,
        stops_after_months=options.stops_after,
        plugins=plugin_versions(provider),
    )


def _with_changes(
    plan: Plan, stack_status: StackStatus, options: PlanningOptions
) -> Plan:
    """Return a plan with what it does to the stack that stands."""
    from planner.plan.document import with_changes
    from stacks.engine.impact import changes_of

    steps = open_engine(options).preview(plan)
    return with_changes(plan, changes_of(plan, steps, stack_status))
