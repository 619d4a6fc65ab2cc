"""The nearest changes of a serving spec that nothing meets, each planned."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner import figures
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.market.public_address import ADDRESS_KEY
from planner.solve.cause import ANY_VALUE, because
from planner.solve.serving.requirement import other_precisions
from planner.solve.serving.sizing import FleetSizing
from planner.solve.solution import BindingLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from planner.market.offer import Offer
    from planner.solve.cause import Cause
    from planner.solve.serving.fleet_finder import FleetFinder
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.settings import TaskRunner
    from planner.spec.model import LatencyLimit

# Factors above the idle quantile at which a limit is tried.
IDLE_SLACKS: Final = (1.05, 1.15, 1.3, 1.6, 2.0)


def relaxations(
    requirement: ServingRequirement,
    finder: FleetFinder,
    budget_usd: Decimal | None,
    run_all: TaskRunner,
) -> tuple[BindingLimit, ...]:
    """Return each single change with which a fleet exists, the cheapest first.

    With `budget_usd`, in USD of the period, the limits can be met and only the budget cannot.
    Then `buy.budget` states a budget that is enough; other changes must keep the budget.
    """
    tasks: list[Callable[[], list[BindingLimit]]] = [
        partial(_loosened_limit, requirement, finder, limit, budget_usd)
        for limit in requirement.limits
    ]
    # Cost of the unchanged requirement: the budget that is enough.
    if budget_usd is not None:
        tasks.append(
            partial(_relaxation, "buy.budget", None, finder, requirement)
        )
    tasks += [
        partial(
            _relaxation, constraint, relax_to, finder, relaxed, skipped_rule
        )
        for constraint, relax_to, relaxed, skipped_rule in _without_one_rule(
            requirement, finder
        )
    ]
    relaxed_bindings = list(itertools.chain.from_iterable(run_all(tasks)))
    if budget_usd is not None:
        relaxed_bindings = [
            relaxed_binding
            for relaxed_binding in relaxed_bindings
            # A larger budget is itself the change.
            if relaxed_binding.constraint == "buy.budget"
            or _within_budget(relaxed_binding, budget_usd)
        ]
    return tuple(
        sorted(
            relaxed_bindings,
            key=lambda relaxed_binding: (
                relaxed_binding.usd or 0,
                relaxed_binding.constraint,
            ),
        )
    )


def _without_one_rule(
    requirement: ServingRequirement, finder: FleetFinder
) -> Iterator[tuple[str, Cause, ServingRequirement, str]]:
    """Yield each rule that can be dropped, with what is then asked for.

    The last is the rule on offers that is not applied, if any.
    """
    if requirement.availability is not None:
        yield (
            "sla.availability",
            ANY_VALUE,
            replace(requirement, availability=None),
            "",
        )
    if requirement.survives is not None:
        yield (
            "sla.survives",
            ANY_VALUE,
            replace(requirement, survives=None),
            "",
        )
    for constraint in (
        "where.clouds",
        "where.regions",
        "where.accelerators",
        "buy",
    ):
        if finder.is_bound_by(constraint):
            yield constraint, ANY_VALUE, requirement, constraint
    if requirement.has_addresses:
        yield (
            ADDRESS_KEY,
            because("told", told="false"),
            replace(requirement, has_addresses=False),
            ADDRESS_KEY,
        )
    if requirement.load.engine != DEFAULT_ENGINE:
        yield (
            "serving.engine",
            because("told", told=DEFAULT_ENGINE),
            replace(
                requirement,
                load=replace(requirement.load, engine=DEFAULT_ENGINE),
            ),
            "",
        )
    # Fewer bytes per weight: less memory and shorter steps.
    for precision in other_precisions(requirement):
        yield (
            "model.precision",
            because("also-precision", precision=precision),
            replace(
                requirement, precisions=(*requirement.precisions, precision)
            ),
            "",
        )


def _within_budget(binding: BindingLimit, budget_usd: Decimal) -> bool:
    return binding.usd is not None and binding.usd <= budget_usd


def _loosened_limit(
    requirement: ServingRequirement,
    finder: FleetFinder,
    limit: LatencyLimit,
    budget_usd: Decimal | None,
) -> list[BindingLimit]:
    """Return the fleet for a looser limit, an empty list when none exists.

    Without a budget the limit moves to its nearest reachable value. With a budget it moves to
    what the cheapest fleet without it reaches.
    """
    unlimited = finder.cheapest(requirement.without_limit(limit.key))
    # Another constraint alone makes the requirement infeasible.
    if unlimited is None:
        return []
    if budget_usd is not None:
        limit_values = [finder.looser_seconds(requirement, limit, unlimited)]
    else:
        limit_values = _reachable_limits(
            requirement, finder.search, finder.offer_filter.cheapest(), limit
        )
    for seconds in limit_values:
        relaxed = _relaxation(
            limit.key,
            because("seconds-at-least", value_s=float(seconds)),
            finder,
            requirement.with_limit(limit.key, seconds),
        )
        if relaxed:
            return relaxed
    return []


def _relaxation(
    constraint: str,
    relax_to: Cause | None,
    finder: FleetFinder,
    requirement: ServingRequirement,
    skipped_rule: str = "",
) -> list[BindingLimit]:
    fleet = finder.cheapest(requirement, skipped_rule)
    if fleet is None:
        return []
    return [
        BindingLimit(
            constraint=constraint,
            slack=None,
            # Without a value it is a budget: its value is the cost.
            relax_to=relax_to
            or because("usd-month-at-least", value_usd=fleet.bill.monthly_usd),
            saves_usd=None,
            usd=fleet.bill.total,
            fleet=fleet.summary,
            unpriced=fleet.bill.unpriced_lines,
        )
    ]


def _reachable_limits(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    limit: LatencyLimit,
) -> list[Decimal]:
    """Return values of a limit that some layout may meet, the tightest first, in seconds.

    value = slack * min over layouts of the idle quantile, rounded up as it is printed
    All other limits still apply. Only layouts on one node are tried. Load only adds delay, so
    above the idle quantile a finite fleet exists; how far above, the simulation decides.
    """
    fastest_s = math.inf
    relaxed_requirement = requirement.without_limit(limit.key)
    for offer in offers:
        for replica, group in search.one_node_replicas(
            relaxed_requirement, offer
        ):
            # Weights and one sequence do not fit.
            if not replica.max_batch:
                continue
            idle_s = replica.idle_quantile(limit.metric, limit.percentile)
            # Sized without this limit: the layout must meet all the others.
            if idle_s < fastest_s and isinstance(
                search.size_layout(relaxed_requirement, replica, group),
                FleetSizing,
            ):
                fastest_s = idle_s
    if fastest_s == math.inf:
        return []
    return [figures.printed_seconds(slack * fastest_s) for slack in IDLE_SLACKS]
