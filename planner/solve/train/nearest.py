"""Of a training job that cannot be had as asked: the nearest that can."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.solve.solution import Binding
from planner.solve.train.search import TrainSearch

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.solve.offer import Catalog, Offer
    from planner.solve.train.need import TrainNeed
    from planner.solve.train.search import Found
    from planner.spec.model import Training

HOUR: Final = 3600.0
DAY: Final = 86_400.0
LONGEST: Final = 36_500 * DAY
SHORT: Final = 4 * DAY  # told in hours
LEAST: Final = 1024  # tokens


def nearest(
    spec: Training,
    need: TrainNeed,
    offers: list[Offer],
    found: tuple[Found, ...],
    catalog: Catalog,
) -> tuple[Binding, ...]:
    """The lowest cost when only the budget is broken, else the shortest time, or what fits.

    `found` are the clusters in time. Each answer changes one thing.
    """
    free = replace(need, budget=None)
    if need.budget is not None and need.deadline is None:
        found = TrainSearch(free, catalog.book).solve(offers, 1).found
    if found:
        key = "train.budget" if spec.train.budget is not None else "buy.budget"
        return (_binding(key, found[0], f"{found[0].bill.usd_month:,.0f} USD"),)
    patient = replace(free, deadline=LONGEST)
    shortest = TrainSearch(patient, catalog.book, fast=True).solve(offers, 1).found
    told = [_binding("train.deadline", x, _span(x.cluster.ends)) for x in shortest[:1]]
    even = 2 ** math.ceil(math.log2(max(2, need.batch)))
    if even != need.batch:
        divided = TrainSearch(replace(free, batch=even), catalog.book).solve(offers, 1).found
        told += [_binding("train.global_batch", x, str(even)) for x in divided[:1]]
    return tuple(told) or _shorter(patient, offers, catalog.book)


def _shorter(need: TrainNeed, offers: list[Offer], book: PriceBook) -> tuple[Binding, ...]:
    """The longest sequence that fits anywhere: of halves, halves of those, and so on."""
    while need.sequence > LEAST:
        need = replace(need, sequence=need.sequence // 2)
        found = TrainSearch(need, book).solve(offers, 1).found
        if found:
            return (_binding("train.sequence", found[0], f"{need.sequence}"),)
    return ()


def _span(seconds: float) -> str:
    """A time as a spec takes it, rounded up: whole hours, or tenths of a day."""
    if seconds < SHORT:
        return f"{math.ceil(seconds / HOUR)}h"
    return f"{math.ceil(seconds / DAY * 10) / 10:g}d"


def _binding(key: str, found: Found, relax: str) -> Binding:
    offer, nodes = found.cluster.offer, found.cluster.nodes
    return Binding(
        constraint=key, slack=None, relax_to=relax, saves_usd_month=None,
        usd_month=found.bill.usd_month,
        fleet=f"{offer.provider} {offer.region} {offer.instance.instance_type} x {nodes}",
    )  # fmt: skip
