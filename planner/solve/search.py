"""The exact search: every layout on every machine type, the cheapest region of each.

Best first by a proved lower bound of the cost, so that what is not looked at cannot be cheaper.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.cost.week import HOURS_PER_MONTH
from planner.perf.constant import constant
from planner.perf.serve import Replica
from planner.solve.bill import COMMITTED, Bill, bill
from planner.solve.size import (
    SPANS,
    Fit,
    Refusal,
    layouts,
    lowest,
    size,
    startup,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.price import PriceBook
    from planner.perf.layout import Layout, Node
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.spec.model import Limit

Hardware: TypeAlias = "tuple[str, int, float, float, str, float]"
Question: TypeAlias = "tuple[tuple[Limit, ...], float, int, Decimal | None, Decimal, float, float]"
TIE: Final = Decimal("0.005")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A fit on an offer with its bill."""

    offer: Offer
    fit: Fit
    bill: Bill

    @property
    def rank(
        self,
    ) -> tuple[Decimal, int, int, int, int, tuple[str, str, str, str]]:
        """The documented order: cost, nodes, accelerators and stages of a replica, ep, names."""
        layout = self.fit.layout
        size = (layout.accelerators, layout.pp, layout.ep)
        return (self.bill.usd_month, self.fit.nodes, *size, self.offer.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The best that a machine type can do when it cannot meet the need.

    `usd_month` is the least that it would cost at the load, were the limit not there.
    """

    offer: Offer
    refusal: Refusal
    nodes: int
    usd_month: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The cheapest fits, one for each machine type and purchase, and the cheaper ones rejected."""

    found: tuple[Found, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class _Learned:
    """What is known for one question: how layouts were sized, and the layouts of hardware."""

    answers: dict[tuple[Replica, int], Fit | Refusal]
    options: dict[
        tuple[Hardware, tuple[int, ...], tuple[str, ...]], list[_Option]
    ]


class Search:
    """Searches offers for a need; what is learned of a layout serves later questions too."""

    def __init__(self, book: PriceBook) -> None:
        self.book = book
        self._replicas: dict[
            tuple[Hardware, Layout, int], dict[float, Replica]
        ] = {}
        self._learned: dict[Question, _Learned] = {}
        self._last: Need | None = None
        self._current = _Learned({}, {})

    def solve(self, need: Need, offers: list[Offer], keep: int = 1) -> Result:
        """Return the `keep` cheapest fits on `offers`, one region of each machine type.

        Replicas on one machine first; replicas over several only when none of those fits.
        """
        result = self._search(need, offers, keep, (1,))
        if result.found:
            return result
        spread = self._search(need, offers, keep, SPANS)
        return spread if spread.found else result

    def _search(
        self, need: Need, offers: list[Offer], keep: int, spans: tuple[int, ...]
    ) -> Result:
        """Best first: an offer is opened into its layouts when its own bound comes up."""
        count = itertools.count()
        queue: list[_Waiting] = [
            (_floor(need, offer), offer.key, next(count), offer, None)
            for offer in offers
            if spans == (1,)
            or offer.instance.fabric
            != "none"  # nodes need a fabric between them
        ]
        heapq.heapify(queue)
        refused: list[_Refused] = []
        best: dict[tuple[str, str, str], Found] = {}
        worst = math.inf
        while queue:
            bound, key, _, offer, option = heapq.heappop(queue)
            if bound > worst:
                break
            if option is None:
                for opened in self._options(need, offer.instance.node, spans):
                    cost = _least(need, offer, opened)
                    heapq.heappush(
                        queue, (cost, key, next(count), offer, opened)
                    )
                continue
            answer = self.size(need, option[0], option[1])
            if isinstance(answer, Refusal):
                refused.append((bound, offer, answer, _nodes(option)))
            else:
                _keep(
                    best,
                    Found(
                        offer=offer,
                        fit=answer,
                        bill=self.bill(need, answer, offer),
                    ),
                )
                costs = sorted(f.bill.usd_month for f in best.values())[
                    keep - 1 : keep
                ]
                worst = float(costs[0] + TIE) if costs else math.inf
        ranked = sorted(best.values(), key=lambda f: f.rank)
        return Result(
            found=tuple(ranked[:keep]), rejected=_summary(refused, best)
        )

    def bill(self, need: Need, fit: Fit, offer: Offer) -> Bill:
        """Return the bill of a fit bought through an offer."""
        return bill(need, fit, offer, self.book)

    def _options(
        self, need: Need, node: Node, spans: tuple[int, ...]
    ) -> list[_Option]:
        """Every layout on a kind of node with its bound; equal hardware is looked at once."""
        known = self._asked(need).options
        key = (_hardware(node), spans, need.precisions)
        if key not in known:
            known[key] = [
                (
                    replica,
                    span,
                    lowest(need, replica, span)
                    if replica.max_batch
                    else math.inf,
                )
                for span in spans
                for layout in layouts(need.llm, need, node, span)
                for replica in (self.replica(need, layout, node, span),)
            ]
        return known[key]

    def replicas(
        self, need: Need, offer: Offer
    ) -> Iterator[tuple[Replica, int]]:
        """Return every layout of one node of an offer, as replicas with their span."""
        node = offer.instance.node
        for layout in layouts(need.llm, need, node, 1):
            yield self.replica(need, layout, node, 1), 1

    def size(self, need: Need, replica: Replica, span: int) -> Fit | Refusal:
        """Size a replica once for each question that is asked of it."""
        answers = self._asked(need).answers
        found = answers.get((replica, span))
        if found is None:
            found = answers[replica, span] = size(need, replica, span)
        return found

    def replica(
        self, need: Need, layout: Layout, node: Node, span: int
    ) -> Replica:
        """Return the replica of a layout on a node; equal hardware shares one.

        Lengths and variation of the load never change within a search, only its rate does.
        """
        key = (_hardware(node), layout, span)
        known = self._replicas.setdefault(key, {})
        found = known.get(need.trust.confidence)
        if found is None:
            like = next(iter(known.values()), None)
            found = known[need.trust.confidence] = (
                like.doubting(need.trust.confidence)
                if like
                else Replica(need.llm, layout, node, need.load, need.trust)
            )
        return found

    def _asked(self, need: Need) -> _Learned:
        """What is known for a question; the last one is asked again most often."""
        if need is not self._last:
            self._last = need
            self._current = self._learned.setdefault(
                _question(need), _Learned({}, {})
            )
        return self._current


_Refused: TypeAlias = "tuple[float, Offer, Refusal, int]"
_Option: TypeAlias = "tuple[Replica, int, float]"
_Waiting: TypeAlias = (
    "tuple[float, tuple[str, str, str, str], int, Offer, _Option | None]"
)


def _hardware(node: Node) -> Hardware:
    return (
        node.accelerator.accelerator,
        node.count,
        node.memory_gib,
        node.fraction,
        node.scaleup,
        node.network_gb_s,
    )


def _question(need: Need) -> Question:
    return (
        need.limits,
        need.load.rate,
        need.load.concurrency,
        need.availability,
        need.requests,
        need.deadline,
        need.trust.confidence,
    )


def _keep(best: dict[tuple[str, str, str], Found], found: Found) -> None:
    """Remember the better fit of a machine type and purchase."""
    offer = found.offer
    kind = (offer.provider, offer.instance.instance_type, offer.purchase)
    if kind not in best or found.rank < best[kind].rank:
        best[kind] = found


def _floor(need: Need, offer: Offer) -> float:
    """USD a month that any fleet of an offer costs at least: one machine while anything runs."""
    price = float(offer.usd_hour)
    if offer.purchase in COMMITTED:
        return price * float(HOURS_PER_MONTH)
    if need.mode == "batch":
        return price * constant("boot") / 3600 * float(need.runs_per_month)
    return price * float(need.week.on_hours)


def _least(need: Need, offer: Offer, option: _Option) -> float:
    """USD a month that a layout costs at least: fractional groups, but one while running.

    Where no number of groups will do, the price of one is shown.
    """
    replica, span, bound = option
    groups = 1.0 if bound == math.inf else bound
    price = float(offer.usd_hour) * span
    if offer.purchase in COMMITTED:
        return (
            price * max(1.0, math.ceil(groups - 1e-9)) * float(HOURS_PER_MONTH)
        )
    if need.mode == "batch":
        run = groups * need.deadline + startup(replica)
        return price * run / 3600 * float(need.runs_per_month)
    return price * max(
        float(need.week.on_hours),
        groups * need.week.mean * float(HOURS_PER_MONTH),
    )


def _nodes(option: _Option) -> int:
    """Nodes behind the least cost of a layout."""
    _, span, bound = option
    return span * (1 if bound == math.inf else max(1, math.ceil(bound - 1e-9)))


def _summary(
    refused: list[_Refused], best: dict[tuple[str, str, str], Found]
) -> tuple[Rejected, ...]:
    """For each machine type that found nothing: the layout that came nearest."""
    nearest: dict[tuple[str, str, str], tuple[float, Rejected]] = {}
    for bound, offer, refusal, nodes in refused:
        kind = (offer.provider, offer.instance.instance_type, offer.purchase)
        if kind in best:
            continue
        excess = refusal.value / refusal.limit + (
            1e6 if refusal.key == "memory" else 0.0
        )
        if kind not in nearest or excess < nearest[kind][0]:
            cost = Decimal(str(round(bound, 2)))
            rejected = Rejected(
                offer=offer, refusal=refusal, nodes=nodes, usd_month=cost
            )
            nearest[kind] = (excess, rejected)
    found = [rejected for _, rejected in nearest.values()]
    return tuple(sorted(found, key=lambda r: (r.usd_month, r.offer.key)))
