"""Of a training job that cannot be had as asked: the nearest that can."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.solve.solution import Binding
from planner.solve.train.cluster import DAY, HOUR
from planner.solve.train.search import TrainSearch

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cost.price import PriceBook
    from planner.solve.offer import Offer
    from planner.solve.train.need import TrainNeed
    from planner.solve.train.search import Found

LONGEST: Final = 36_500 * DAY
SHORT: Final = 4 * DAY  # told in hours
LEAST: Final = 1024  # tokens


def nearest(
    need: TrainNeed, offers: list[Offer], book: PriceBook
) -> tuple[Binding, ...]:
    """The lowest cost when only a budget is broken, else the shortest time, or what fits.

    Each answer changes one thing.
    """
    free = replace(need, budget=None, monthly=None)
    found = TrainSearch(free, book).solve(offers, 1).found
    if (
        found
        and need.budget is not None
        and found[0].bill.usd_month > need.budget
    ):
        return (
            _binding("train.budget", found[0], _usd(found[0].bill.usd_month)),
        )
    if found and need.monthly is not None:
        return (
            _binding("buy.budget", found[0], _usd(found[0].monthly) + "/month"),
        )
    patient = replace(free, deadline=LONGEST)
    shortest = TrainSearch(patient, book, fast=True).solve(offers, 1).found
    told = [
        _binding("train.deadline", x, _span(x.cluster.ends))
        for x in shortest[:1]
    ]
    even = 2 ** math.ceil(math.log2(max(2, need.batch)))
    if even != need.batch:
        divided = (
            TrainSearch(replace(free, batch=even), book).solve(offers, 1).found
        )
        told += [
            _binding("train.global_batch", x, str(even)) for x in divided[:1]
        ]
    return tuple(told) or _shorter(patient, offers, book)


def _shorter(
    need: TrainNeed, offers: list[Offer], book: PriceBook
) -> tuple[Binding, ...]:
    """The longest sequence that fits anywhere: of halves, halves of those, and so on."""
    while need.sequence > LEAST:
        need = replace(need, sequence=need.sequence // 2)
        found = TrainSearch(need, book).solve(offers, 1).found
        if found:
            return (_binding("train.sequence", found[0], f"{need.sequence}"),)
    return ()


def _usd(amount: Decimal) -> str:
    """An amount as a spec takes it, rounded up."""
    return f"{math.ceil(amount)}"


def _span(seconds: float) -> str:
    """A time as a spec takes it, rounded up: whole hours, or tenths of a day."""
    if seconds < SHORT:
        return f"{math.ceil(seconds / HOUR)}h"
    return f"{math.ceil(seconds / DAY * 10) / 10:g}d"


def _binding(key: str, found: Found, relax: str) -> Binding:
    offer, nodes = found.cluster.offer, found.cluster.nodes
    return Binding(
        constraint=key,
        slack=None,
        relax_to=relax,
        saves_usd_month=None,
        usd_month=found.bill.usd_month,
        fleet=f"{offer.provider} {offer.region} {offer.instance.instance_type} x {nodes}",
    )
