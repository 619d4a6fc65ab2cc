"""Questions about a solution: why not that machine, and what would more traffic cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import MissingError, Problem
from planner.solve.explain import fleet, reason
from planner.solve.offer import grouped
from planner.solve.rule import Market, rules
from planner.solve.search import Search
from planner.solve.train.need import train_need
from planner.solve.train.search import TrainSearch
from planner.solve.workspace import bill, room
from planner.spec.model import Training, Workspace

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.solve.answer import Solver
    from planner.solve.offer import Offer
    from planner.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Answer:
    """What a machine type could do: the fleet, USD a month, and why it is not chosen."""

    fleet: str
    usd_month: Decimal | None
    why: str


def why_not(spec: Spec, solver: Solver, pattern: str) -> list[Answer]:
    """Say for every machine type that matches what keeps it from being chosen.

    First the rules that exclude it, then what it lacks or misses, then its price. Raises
    MissingError when no machine type matches.
    """
    asked = [o for o in solver.catalog.offers if _matches(o, pattern)]
    if not asked:
        step = "run: tonnage offers --limit 1000"
        message = f"no machine type matches '{pattern}'"
        raise MissingError(
            Problem(code="offer", message=message, next_step=step)
        )
    kinds = sorted({(o.provider, o.instance.instance_type) for o in asked})
    return [
        _answer(spec, solver, [o for o in asked if _kind(o) == kind])
        for kind in kinds
    ]


def what_if(spec: Spec, solver: Solver, factor: float) -> Answer:
    """Return the fleet for so many times the traffic (or the people of a workspace)."""
    offers = Market(solver.catalog.kinds, rules(spec, solver.built)).best()
    if isinstance(spec, Training):
        return _longer(spec, solver, factor)
    if isinstance(spec, Workspace):
        users = max(1, round(spec.users * factor))
        solution = solver.solve(replace(spec, users=users))
        cost = solution.bill.usd_month if solution.bill else None
        return Answer(
            f"{users} users", cost, "" if cost is not None else "infeasible"
        )
    wanted = solver.need(spec).scaled(factor)
    found = Search(solver.catalog.book).solve(wanted, offers).found
    if not found:
        return Answer("", None, "infeasible")
    return Answer(fleet(found[0]), found[0].bill.usd_month, "")


def _longer(spec: Training, solver: Solver, factor: float) -> Answer:
    """The cluster for so many times the tokens, or the pairs."""
    tokens = (
        train_need(spec, solver.read, solver.trust.confidence).tokens * factor
    )
    solution = solver.solve(
        replace(spec, data=replace(spec.data, tokens=round(tokens)))
    )
    if solution.bill is None:
        return Answer("", None, "infeasible")
    pool = solution.pools[0]
    fleet = f"{pool.offer.provider} {pool.offer.instance.instance_type} x {pool.nodes}"
    return Answer(fleet, solution.bill.usd_month, "")


def _answer(spec: Spec, solver: Solver, offers: list[Offer]) -> Answer:
    market = Market(grouped(offers), rules(spec, solver.built))
    left = market.best()
    name = f"{offers[0].provider} {offers[0].instance.instance_type}"
    if not left:
        broken = min((market.breaks(o) for o in offers), key=len)
        unbuilt = solver.built(offers[0].instance)
        return Answer(
            name, None, unbuilt or "excluded by " + ", ".join(sorted(broken))
        )
    if isinstance(spec, Training):
        return _trained(spec, solver, name, left)
    if isinstance(spec, Workspace):
        lack = room(spec).lacks(left[0].instance)
        best = min(left, key=lambda o: (o.usd_hour, o.key))
        cost = bill(spec, best, solver.catalog.book).usd_month
        return Answer(
            f"{name} x {spec.users}", None if lack else cost, lack or "price"
        )
    result = Search(solver.catalog.book).solve(solver.need(spec), left)
    if result.found:
        return Answer(
            fleet(result.found[0]), result.found[0].bill.usd_month, "price"
        )
    if result.rejected:
        return Answer(name, None, reason(result.rejected[0].refusal))
    return Answer(name, None, "no layout of the model fits its accelerators")


def _trained(
    spec: Training, solver: Solver, name: str, left: list[Offer]
) -> Answer:
    wanted = train_need(spec, solver.read, solver.trust.confidence)
    result = TrainSearch(wanted, solver.catalog.book).solve(left, 1)
    if result.found:
        best = result.found[0]
        return Answer(
            f"{name} x {best.cluster.nodes}", best.bill.usd_month, "price"
        )
    return Answer(name, None, result.missed[0].reason)


def _kind(offer: Offer) -> tuple[str, str]:
    return offer.provider, offer.instance.instance_type


def _matches(offer: Offer, pattern: str) -> bool:
    wanted = pattern.lower()
    names = (offer.instance.instance_type.lower(), offer.instance.accelerator)
    return any(fnmatchcase(name, wanted) for name in names)
