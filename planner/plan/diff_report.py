"""Build the document of a difference from the plans of its two sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.plan.amount import (
    NOTHING,
    CostAmount,
    CostDelta,
    add_amounts,
    add_deltas,
    cost_delta,
)
from planner.plan.diff import compare_plans, plan_changes, total_amount
from planner.plan.diff_document import (
    CatalogEffect,
    DiffDocument,
    MetricChange,
    OriginPart,
    PeriodTotal,
    SideProblem,
    SideRef,
    SpecDiff,
    SpecSide,
)
from planner.plan.threshold import judge_thresholds
from planner.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from planner.errors import TonnageError
    from planner.plan.diff_document import Origin, SpecState
    from planner.plan.part import Period
    from planner.plan.threshold import Threshold
    from planner.plan.types import CatalogRef, Plan
    from planner.spec.change import KeyChange

PERIODS: tuple[Period, ...] = ("month", "run", "life")
ORIGINS: tuple[Origin, ...] = ("spec", "price", "model")


class FoundSide(Struct, frozen=True, kw_only=True):
    """What was found of a spec on one side.

    path   file of the spec
    name   in the spec; None where it could not be read
    plan   None for a spec that is invalid
    error  why there is no plan
    """

    path: str
    name: str | None = None
    plan: Plan | None = None
    error: TonnageError | None = None

    @property
    def feasible_plan(self) -> Plan | None:
        """The plan, where something meets the spec."""
        if self.plan is None or not self.plan.is_feasible:
            return None
        return self.plan


class PlannedStep(Struct, frozen=True):
    """A plan between the two sides, and in what it differs from the one before it."""

    origin: Origin
    plan: Plan


class EarlierPlan(Struct, frozen=True):
    """A plan of the old side by a catalog of the past, and by the one that is in use."""

    path: str
    earlier: Plan
    now: Plan


class ComparedSpec(Struct, frozen=True, kw_only=True):
    """All that the difference of one spec is made of.

    steps  plans from the old side to the new one; the last one is that of the new side
    """

    state: SpecState
    before: FoundSide | None
    after: FoundSide | None
    keys: tuple[KeyChange, ...] = ()
    files: tuple[str, ...] = ()
    steps: tuple[PlannedStep, ...] = ()


class _Contribution(Struct, frozen=True):
    """What a spec adds to the total of a period."""

    period: Period
    before: CostAmount
    after: CostAmount
    delta: CostDelta
    parts: tuple[OriginPart, ...]


def spec_diff(compared: ComparedSpec) -> SpecDiff:
    """Return the difference of one spec."""
    before, after = compared.before, compared.after
    old_plan = before.feasible_plan if before is not None else None
    new_plan = after.feasible_plan if after is not None else None
    last = after or before
    assert last is not None  # noqa: S101 - a spec is on one side at least
    has_both = old_plan is not None and new_plan is not None
    return SpecDiff(
        path=last.path,
        name=last.name or last.path,
        state=compared.state,
        before=_side_entry(before),
        after=_side_entry(after),
        delta=_delta(compared),
        keys=compared.keys,
        files=compared.files,
        # Beside a side that is wrong nothing has been added or removed.
        changes=(
            plan_changes(old_plan, new_plan)
            if has_both or compared.state in ("added", "removed")
            else ()
        ),
        metrics=(
            tuple(_metric_changes(old_plan, new_plan))
            if new_plan is not None
            else ()
        ),
        binding=(
            after.plan.solution.binding
            if after is not None and after.plan is not None
            else ()
        ),
        differs=(
            _differences(old_plan, new_plan)
            if old_plan is not None and new_plan is not None
            else ()
        ),
        parts=_parts(old_plan, new_plan, compared.steps),
    )


def diff_document(
    sides: tuple[SideRef, SideRef],
    compared: Sequence[ComparedSpec],
    *,
    catalog: CatalogRef | None,
    unplanned: Iterable[str] = (),
    earlier: Iterable[EarlierPlan] = (),
    thresholds: Iterable[Threshold] = (),
) -> DiffDocument:
    """Return the document of a difference: the specs, their totals, and what judges them."""
    specs = tuple(map(spec_diff, compared))
    contributions = [
        contribution for spec in specs for contribution in _contributions(spec)
    ]
    totals = tuple(
        _total(period, contributions)
        for period in PERIODS
        if any(entry.period == period for entry in contributions)
    )
    return DiffDocument(
        tool_version=VERSION,
        before=sides[0],
        after=sides[1],
        catalog=catalog,
        specs=specs,
        unplanned=tuple(unplanned),
        left_out=tuple(spec.path for spec in specs if _is_left_out(spec)),
        totals=totals,
        catalog_effects=tuple(_catalog_effects(tuple(earlier))),
        thresholds=judge_thresholds(thresholds, totals),
    )


def plans_document(
    names: tuple[str, str],
    plans: tuple[Plan, Plan],
    *,
    keys: tuple[KeyChange, ...] = (),
    thresholds: Iterable[Threshold] = (),
) -> DiffDocument:
    """Return the document of the difference of two plans, with the files that they are from.

    `keys` are those that their specs say differently.
    """
    before, after = (
        FoundSide(path=name, name=plan.workload.name, plan=plan)
        for name, plan in zip(names, plans, strict=True)
    )
    compared = ComparedSpec(
        state="changed", before=before, after=after, keys=keys
    )
    is_one_catalog = plans[0].catalog == plans[1].catalog
    return diff_document(
        (SideRef(name=names[0]), SideRef(name=names[1])),
        (compared,),
        catalog=plans[0].catalog if is_one_catalog else None,
        thresholds=thresholds,
    )


def _side_entry(side: FoundSide | None) -> SpecSide | None:
    if side is None:
        return None
    if side.plan is None:
        return SpecSide(
            status="invalid",
            path=side.path,
            name=side.name,
            problems=tuple(_problems(side)),
        )
    solution = side.plan.solution
    if side.feasible_plan is None:
        return SpecSide(
            status="infeasible",
            path=side.path,
            name=side.name,
            period=side.plan.cost.period,
        )
    tokens = side.plan.cost.tokens
    safety, verified = solution.safety, solution.verified
    return SpecSide(
        status="planned",
        path=side.path,
        name=side.name,
        period=side.plan.cost.period,
        cost=total_amount(side.plan),
        usd_per_million_tokens=tokens.usd_per_million if tokens else None,
        usd_per_million_output=(
            tokens.usd_per_million_output if tokens else None
        ),
        confidence=safety.confidence if safety else None,
        verdict=verified.verdict if verified else None,
    )


def _problems(side: FoundSide) -> Iterator[SideProblem]:
    for problem in side.error.problems if side.error is not None else ():
        place = problem.place
        yield SideProblem(
            code=problem.code,
            message=problem.message,
            next_step=problem.next_step,
            path=place.path if place is not None else side.path,
            line=place.line if place is not None else 0,
            column=place.column if place is not None else 0,
        )


def _known_cost(
    side: FoundSide | None, *, is_old: bool
) -> tuple[Period | None, CostAmount] | None:
    """Return period and cost of a side; None where it has no cost.

    A side that is not there costs nothing. Neither does an old one that nothing could meet: there
    was nothing to build.
    """
    if side is None:
        return None, NOTHING
    if side.plan is None:
        return None
    if side.feasible_plan is None:
        return (None, NOTHING) if is_old else None
    return side.plan.cost.period, total_amount(side.plan)


def _delta(compared: ComparedSpec) -> CostDelta | None:
    old = _known_cost(compared.before, is_old=True)
    new = _known_cost(compared.after, is_old=False)
    if old is None or new is None:
        return None
    old_plan = compared.before and compared.before.feasible_plan
    new_plan = compared.after and compared.after.feasible_plan
    if old_plan and new_plan:
        return compare_plans(old_plan, new_plan).delta
    return cost_delta(old[1], new[1])


def _metric_changes(
    before: Plan | None, after: Plan | None
) -> Iterator[MetricChange]:
    old = before.solution if before is not None else None
    new = after.solution if after is not None else None
    names = {*(old.predicted if old else ()), *(new.predicted if new else ())}
    for name in sorted(names):
        change = MetricChange(
            name=name,
            before=old.predicted.get(name) if old else None,
            after=new.predicted.get(name) if new else None,
            limit_before=old.limits.get(name) if old else None,
            limit_after=new.limits.get(name) if new else None,
        )
        has_limit = change.limit_before or change.limit_after
        if has_limit or change.before != change.after:
            yield change


def _differences(before: Plan, after: Plan) -> tuple[Origin, ...]:
    """Return in what two plans differ of what they were made from."""
    old, new = before.inputs, after.inputs
    is_different: dict[Origin, bool] = {
        "spec": before.spec.normalized != after.spec.normalized
        or old.files != new.files
        or old.confidence != new.confidence,
        "price": before.catalog.sha256 != after.catalog.sha256
        or old.prices_sha256 != new.prices_sha256,
        "model": before.tool_version != after.tool_version
        or old.calibration_sha256 != new.calibration_sha256,
    }
    return tuple(origin for origin in ORIGINS if is_different[origin])


def _parts(
    before: Plan | None, after: Plan | None, steps: tuple[PlannedStep, ...]
) -> tuple[OriginPart, ...]:
    """Divide the difference of two plans by what it is due to, step by step.

    The parts add up to the difference. Without plans in between, only a difference in one thing
    alone can be told.
    """
    if before is None or after is None:
        return ()
    origins = _differences(before, after)
    if not steps and len(origins) == 1:
        steps = (PlannedStep(origins[0], after),)
    plans = [before, *(step.plan for step in steps)]
    if not all(
        plan.is_feasible and plan.cost.period == before.cost.period
        for plan in plans
    ):
        return ()
    parts = []
    for step, earlier in zip(steps, plans, strict=False):
        delta = compare_plans(earlier, step.plan).delta
        assert delta is not None  # noqa: S101 - they are of one period
        parts.append(
            OriginPart(
                origin=step.origin, period=before.cost.period, delta=delta
            )
        )
    return tuple(parts)


def _is_left_out(spec: SpecDiff) -> bool:
    """Whether a side of a spec has no cost, so that it is in no total."""
    before, after = spec.before, spec.after
    return (before is not None and before.status == "invalid") or (
        after is not None and after.status != "planned"
    )


def _contributions(spec: SpecDiff) -> Iterator[_Contribution]:
    """Yield what a spec adds to the totals: two periods where its cost is for another one now."""
    if _is_left_out(spec):
        return
    old_cost, old_period = _side_cost(spec.before)
    new_cost, new_period = _side_cost(spec.after)
    if old_period and new_period and old_period != new_period:
        gone, come = (
            cost_delta(old_cost, NOTHING),
            cost_delta(NOTHING, new_cost),
        )
        yield _Contribution(old_period, old_cost, NOTHING, gone, ())
        yield _Contribution(new_period, NOTHING, new_cost, come, ())
        return
    period = new_period or old_period
    if period is not None and spec.delta is not None:
        parts = spec.parts or (
            OriginPart(origin="spec", period=period, delta=spec.delta),
        )
        yield _Contribution(period, old_cost, new_cost, spec.delta, parts)


def _side_cost(
    side: SpecSide | None,
) -> tuple[CostAmount, Period | None]:
    if side is None or side.cost is None:
        return NOTHING, None
    return side.cost, side.period


def _total(
    period: Period, contributions: Iterable[_Contribution]
) -> PeriodTotal:
    entries = [entry for entry in contributions if entry.period == period]
    before = add_amounts(entry.before for entry in entries)
    parts = [part for entry in entries for part in entry.parts]
    origins = {part.origin for part in parts}
    return PeriodTotal(
        period=period,
        before=before,
        after=add_amounts(entry.after for entry in entries),
        delta=add_deltas((entry.delta for entry in entries), before),
        # Specs alone need no division.
        parts=()
        if origins <= {"spec"}
        else tuple(
            OriginPart(
                origin=origin,
                period=period,
                delta=add_deltas(
                    (part.delta for part in parts if part.origin == origin),
                    before,
                ),
            )
            for origin in ORIGINS
            if origin in origins
        ),
    )


def _catalog_effects(
    pairs: tuple[EarlierPlan, ...],
) -> Iterator[CatalogEffect]:
    """Yield what catalogs of the past make different, for each of them and each period."""
    groups: dict[tuple[str, Period, tuple[Origin, ...]], list[EarlierPlan]] = {}
    for pair in pairs:
        origins = _differences(pair.earlier, pair.now)
        is_comparable = (
            pair.earlier.is_feasible
            and pair.now.is_feasible
            and pair.earlier.cost.period == pair.now.cost.period
        )
        # Its spec has changed since: then it says nothing of prices.
        if not origins or "spec" in origins or not is_comparable:
            continue
        key = (pair.earlier.catalog.sha256, pair.now.cost.period, origins)
        groups.setdefault(key, []).append(pair)
    for (_, period, origins), group in sorted(groups.items()):
        deltas = [
            delta
            for pair in group
            if (delta := compare_plans(pair.earlier, pair.now).delta)
        ]
        before = add_amounts(total_amount(pair.earlier) for pair in group)
        yield CatalogEffect(
            period=period,
            since=group[0].earlier.catalog,
            origins=origins,
            paths=tuple(pair.path for pair in group),
            delta=add_deltas(deltas, before),
        )
