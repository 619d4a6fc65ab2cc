"""The document of a portfolio from the plans of its workloads and what they pay together."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct

from planner.plan.amount import CostAmount, add_amounts
from planner.plan.bill import owned_cost
from planner.plan.diff import total_amount
from planner.plan.number import plain_money, rounded
from planner.plan.portfolio_document import (
    PortfolioDocument,
    PortfolioFleet,
    PortfolioMove,
    PortfolioPlace,
    PortfolioPool,
    PortfolioQuota,
    PortfolioShare,
    PortfolioTotal,
    PortfolioWorkload,
    QuotaChoice,
)
from planner.plan.token_cost import at_total
from planner.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planner.plan.portfolio_document import LeftOut, PlanStatus
    from planner.plan.types import Plan
    from planner.workload.joint_purchase import SharedPlace
    from planner.workload.one_fleet import OneFleet
    from planner.workload.portfolio import Portfolio, SharedBill
    from planner.workload.quota_share import QuotaNeed, SharedChoice
    from planner.workload.sharing import AcceleratorPlace

NO_GAP = Decimal(0)


class PlannedMove(Struct, frozen=True, kw_only=True):
    """A service that has other machines than alone, for the sake of all.

    alone       its plan alone
    place       where its machines are
    dearer_usd  how much more it would cost there alone, USD a month
    """

    alone: Plan
    place: AcceleratorPlace
    dearer_usd: Decimal


class JointMoves(Struct, frozen=True, kw_only=True):
    """What was compared of services on other machines, and which of them have these.

    moved     by the name of a service
    compared  fleets that were planned on other machines
    are_all   whether these are all that may save
    usd       what all of them save by it, USD a month
    """

    moved: Mapping[str, PlannedMove]
    compared: int
    are_all: bool
    usd: Decimal


NOT_MOVED: Final = JointMoves(
    moved={}, compared=0, are_all=False, usd=Decimal(0)
)


def portfolio_document(
    plans: Sequence[Plan],
    portfolio: Portfolio,
    *,
    chosen: SharedChoice | None,
    remedy: Callable[[QuotaNeed], str],
    one_fleets: Sequence[OneFleet] = (),
    moves: JointMoves,
) -> PortfolioDocument:
    """Return the document of workloads that buy together; equal inputs give equal bytes.

    `one_fleets` are groups of them that would cost less on the same accelerators, `moves` are
    those that have other machines than alone.

    `chosen` says how their fleets fit into the quotas of an account, None where nobody asked it,
    and `remedy` how one of these is raised.
    """
    bill_of = {bill.name: bill for bill in portfolio.bills}
    workloads = tuple(
        _workload(
            plan,
            bill_of.get(plan.workload.name),
            moves.moved.get(plan.workload.name),
        )
        for plan in plans
    )
    status, gap_usd = _proof(plans, chosen)
    return PortfolioDocument(
        tool_version=VERSION,
        catalog=plans[0].catalog,
        status=status,
        gap_usd=gap_usd,
        total=_total(workloads),
        workloads=workloads,
        places=tuple(map(_place, portfolio.places)),
        owned=tuple(map(owned_cost, portfolio.owned)),
        quotas=_quota_choice(chosen, remedy),
        one_fleets=tuple(map(_one_fleet, one_fleets)) or UNSET,
        compared=moves.compared,
        are_all_compared=moves.are_all,
        moves_save_usd=plain_money(moves.usd),
    )


def _move(move: PlannedMove) -> PortfolioMove:
    place = move.place
    return PortfolioMove(
        provider=place.provider,
        region=place.region,
        accelerator=place.accelerator,
        alone=_fleet(move.alone),
        dearer_usd=plain_money(move.dearer_usd),
        where=f"where: {{clouds: [{place.provider}], regions: [{place.region}], accelerators: "
        f"{{allow: [{place.accelerator}]}}}}",
    )


def _fleet(plan: Plan) -> tuple[PortfolioPool, ...]:
    return tuple(
        PortfolioPool(
            provider=pool.provider,
            region=pool.region,
            instance_type=pool.instance_type,
            accelerator=pool.accelerator,
            nodes=pool.nodes,
            purchases=pool.purchases,
        )
        for pool in plan.solution.pools
    )


def _one_fleet(group: OneFleet) -> PortfolioFleet:
    return PortfolioFleet(
        workloads=group.names,
        provider=group.fleet.provider,
        region=group.fleet.region,
        instance_type=group.fleet.instance_type,
        nodes=group.fleet.nodes,
        apart_usd=plain_money(group.apart_usd),
        usd=plain_money(group.usd),
        saved_usd=plain_money(group.saved_usd),
    )


def _workload(
    plan: Plan, bill: SharedBill | None, move: PlannedMove | None
) -> PortfolioWorkload:
    """Return what a plan pays alone and together; without a shared bill it is left out."""
    tokens = plan.cost.tokens
    alone = plan if move is None else move.alone
    return PortfolioWorkload(
        path=plan.spec.path,
        name=plan.workload.name,
        kind=plan.workload.kind,
        status=plan.solution.status,
        fleet=_fleet(plan),
        move=UNSET if move is None else _move(move),
        period=plan.cost.period,
        alone=total_amount(alone) if alone.is_feasible else None,
        together=None
        if bill is None
        else CostAmount(
            usd=plain_money(bill.shared_usd),
            is_complete=not plan.cost.is_partial,
        ),
        saved_usd=None
        if bill is None
        else plain_money(bill.alone_usd - bill.shared_usd),
        unpriced=plan.cost.unpriced,
        tokens=None
        if bill is None or tokens is None
        else at_total(tokens, bill.shared_usd),
        left_out=_left_out(plan) if bill is None else None,
    )


def _left_out(plan: Plan) -> LeftOut:
    """Return why a workload without a shared bill has none."""
    if not plan.is_feasible:
        return "no_fleet"
    return "ends" if plan.workload.kind == "inference" else "no_service"


def _total(workloads: Sequence[PortfolioWorkload]) -> PortfolioTotal:
    shared = [workload for workload in workloads if not workload.left_out]
    return PortfolioTotal(
        alone=add_amounts(
            workload.alone for workload in shared if workload.alone is not None
        ),
        together=add_amounts(
            workload.together
            for workload in shared
            if workload.together is not None
        ),
        saved_usd=sum(
            (
                workload.saved_usd
                for workload in shared
                if workload.saved_usd is not None
            ),
            Decimal(0),
        ),
    )


def _place(place: SharedPlace) -> PortfolioPlace:
    provider, instance_type, region = place.place
    return PortfolioPlace(
        provider=provider,
        region=region,
        instance_type=instance_type,
        shares=tuple(
            PortfolioShare(workload=name, saved_usd=plain_money(saved_usd))
            for name, saved_usd in zip(
                place.members, place.saved_parts, strict=True
            )
        ),
        peak_nodes=place.peak_nodes,
        owned_nodes=place.owned,
        committed_nodes=place.committed,
        on_demand_nodes=place.on_demand,
        purchase=place.purchase or None,
        alone_usd=plain_money(place.alone_usd),
        together_usd=plain_money(place.shared_usd),
        saved_usd=plain_money(place.alone_usd - place.shared_usd),
    )


def _proof(
    plans: Sequence[Plan], chosen: SharedChoice | None
) -> tuple[PlanStatus, Decimal | None]:
    """Return whether the fleets are proved the cheapest, and what others may cost less, USD."""
    statuses = {plan.solution.status for plan in plans}
    gap_usd = chosen.gap_usd if chosen is not None else NO_GAP
    if "infeasible" in statuses:
        return "infeasible", None
    if "feasible" in statuses:
        return "feasible", None
    return (
        ("feasible", plain_money(gap_usd)) if gap_usd else ("optimal", NO_GAP)
    )


def _quota_choice(
    chosen: SharedChoice | None, remedy: Callable[[QuotaNeed], str]
) -> QuotaChoice | None:
    if chosen is None or chosen.usd is None or chosen.bound_usd is None:
        return None
    return QuotaChoice(
        usd=plain_money(chosen.usd),
        usd_unbound=plain_money(chosen.usd_alone),
        bound_usd=plain_money(chosen.bound_usd),
        short=tuple(quota_entry(need, remedy(need)) for need in chosen.needs),
    )


def quota_entry(need: QuotaNeed, next_step: str) -> PortfolioQuota:
    """Return a quota that fleets exceed together, with how it is raised."""
    return PortfolioQuota(
        provider=need.key.cloud,
        region=need.key.region,
        purchase=need.key.purchase,
        quota=need.key.quota,
        needed=rounded(need.units),
        left=rounded(need.limit),
        next_step=next_step,
    )
