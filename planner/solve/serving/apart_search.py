"""Exact search for the cheapest pair of pools, of which one computes prompts and one answers.

Each pool has to carry all requests with its part of the work, so each has its own fewest groups,
whatever the other one is. The cheapest pools of either part in a region come in order of their
cost, and pairs of them in order of the cost of both: the first pair that keeps all limits together
is the cheapest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from planner.frontier import Frontier
from planner.numeric import last_true
from planner.solve.serving.apart_fleet import (
    ApartFleet,
    apart_fleet,
    part_requirements,
    share_a_zone,
)
from planner.solve.serving.apart_judge import (
    PARTS,
    ApartJudge,
    ChainEnd,
    answer_rps,
    part_limits,
)
from planner.solve.serving.apart_rule import may_hand_over, may_take_part
from planner.solve.serving.cost_bound import (
    layout_bounds_usd,
    most_groups_within,
    offer_bound_usd,
)
from planner.solve.serving.mixed_fleet import PoolKind, may_be_had
from planner.solve.serving.sizing import (
    MAX_GROUPS,
    ONE_NODE,
    SCREEN_FACTOR,
    idle_rejection,
    unfit_rejection,
)
from planner.solve.serving.spot_promise import has_promise
from planner.solve.serving.verify import trial_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.apart_judge import Part
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch

# A pool is not tried with more groups than so many times those that it needs by itself: where
# these miss a limit together with the other pool, more of them hardly help.
MOST_TIMES: Final = 2

# Cloud, region, and the formats of weights and cache that both pools have.
MarketKey: TypeAlias = "tuple[str, str, str, str]"


class RoleFleet(NamedTuple):
    """So many groups of a kind that carry one part of all requests by themselves.

    `usd` is a lower bound of what they cost, USD in the period of the bill.
    """

    usd: float
    kind: PoolKind
    groups: int


class Pair(NamedTuple):
    """Two pools of a market by their places in the order of cost, and what is known of them.

    `fleet` has the exact cost, None while only a bound is known.
    """

    market: Market
    first: int
    second: int
    fleet: ApartFleet | None = None


class FewestGroups:
    """The fewest groups that carry one part of the requests by themselves; equal ones share it."""

    def __init__(
        self, requirement: ServingRequirement, judge: ApartJudge
    ) -> None:
        self._requirement = requirement
        self._judge = judge
        # By part, replica, replicas of a group and network: too few for sure, and enough.
        self._known: dict[
            tuple[Part, Replica, int, float], tuple[int, int | None]
        ] = {}

    def bound(self, part: Part, kind: PoolKind) -> float:
        """Return a lower bound of the groups; infinite where no number is enough.

        prompts: rate / (rate at which prompts take all the time) / replicas of a group
        answers: rate / (rate of the largest batch within the limit per token) / replicas
        both:    rate / (rate at which caches take all the time of the link) / replicas
        """
        replica, replicas = kind.replica, kind.group.replicas
        if idle_rejection(
            part_limits(self._requirement, part), replica, SCREEN_FACTOR
        ):
            return math.inf
        rate_rps = self._requirement.load.rate_per_s
        most_rps = min(
            self._judge.most_rps(part, replica),
            self._judge.most_handed_rps(ChainEnd(kind.offer, replica, 1)),
        )
        if part == "answers":
            batch = self._largest_batch(replica)
            most_rps = min(most_rps, answer_rps(replica, batch))
        return rate_rps / (most_rps * replicas) if most_rps else math.inf

    def find(self, part: Part, kind: PoolKind, most: int) -> int | None:
        """Return the fewest groups by simulation, None where they are more than `most`."""
        network_gbps = kind.offer.instance.network_gbps
        key = (part, kind.replica, kind.group.replicas, network_gbps)
        too_few, enough = self._known.get(
            key, (math.ceil(self.bound(part, kind) - 1e-9) - 1, None)
        )
        # One run tells of most kinds that they are too dear, whatever their number.
        if enough is None and too_few < most:
            if self._misses(part, kind, most):
                too_few = most
            else:
                enough = most
        while enough is not None and enough - too_few > 1:
            # The bound is nearer than a ceiling that is far away.
            middle = min((too_few + enough) // 2, 2 * too_few + 1)
            if self._misses(part, kind, middle):
                too_few = middle
            else:
                enough = middle
        self._known[key] = too_few, enough
        return enough if enough is not None and enough <= most else None

    def _misses(self, part: Part, kind: PoolKind, groups: int) -> bool:
        return self._judge.misses(
            self._requirement, part, kind.replica, groups * kind.group.replicas
        )

    def _largest_batch(self, replica: Replica) -> int:
        """Return a batch above which the mean time per token is beyond all limits, 0 for none."""
        limit_s = min(
            (
                limit.limit_s
                for limit in trial_limits(self._requirement)
                if limit.metric == "tpot"
            ),
            default=math.inf,
        )
        return last_true(
            lambda batch: (
                not batch
                or replica.undisturbed_tpot(batch) <= limit_s * SCREEN_FACTOR
            ),
            0,
            replica.max_batch,
        )


class RoleQueue:
    """The pools of one part in a market, in order of their cost."""

    def __init__(
        self,
        part: Part,
        kinds: list[PoolKind],
        requirement: ServingRequirement,
        fewest: FewestGroups,
    ) -> None:
        self._part = part
        self._requirement = requirement
        self._fewest = fewest
        self._frontier: Frontier[tuple[PoolKind, int]] = Frontier()
        self._fleets: list[RoleFleet] = []
        for kind in kinds:
            bound = fewest.bound(part, kind)
            if bound < math.inf:
                # No groups stand for as many as will be found.
                self._push(kind, 0, max(1, math.ceil(bound - 1e-9)))

    @property
    def least_usd(self) -> float:
        """What the cheapest pool costs by formula, USD in the period."""
        return self._frontier.least_bound

    def at(self, place: int, ceiling_usd: float) -> RoleFleet | None:
        """Return the pool at a place of the order, None where it costs more than a ceiling.

        The ceiling is the same in all questions.
        """
        while len(self._fleets) <= place:
            taken = self._frontier.take(ceiling_usd)
            if taken is None:
                return None
            usd, (kind, groups) = taken
            most = most_groups_within(
                self._requirement, kind.offer, kind.group, ceiling_usd
            )
            fewest = self._fewest.find(
                self._part, kind, int(min(most, MAX_GROUPS))
            )
            if fewest is None:
                continue
            # The bound was that of formulas: the pool comes again in its place.
            if not groups:
                self._push(kind, fewest, fewest)
                continue
            self._fleets.append(RoleFleet(usd, kind, groups))
            if groups < MOST_TIMES * fewest:
                self._push(kind, groups + 1, groups + 1)
        fleet = self._fleets[place]
        return fleet if fleet.usd <= ceiling_usd else None

    def _push(self, kind: PoolKind, groups: int, bound_groups: int) -> None:
        [usd] = layout_bounds_usd(
            self._requirement,
            kind.offer,
            [(kind.replica, kind.group, bound_groups)],
        )
        self._frontier.push(
            usd,
            (kind, groups),
            (*kind.offer.key, *kind.replica.layout.tie_order),
        )


class Market(NamedTuple):
    """The pools of both parts that may stand beside each other."""

    key: MarketKey
    prompts: RoleQueue
    answers: RoleQueue
    # By formula, USD in the period: what is left of a ceiling is for the other part.
    least_prompts_usd: float
    least_answers_usd: float


class ApartSearch:
    """Searches pairs of pools for one requirement."""

    def __init__(
        self,
        requirement: ServingRequirement,
        search: ServingSearch,
        judge: ApartJudge,
    ) -> None:
        self._requirement = requirement
        self._parts = part_requirements(requirement)
        self._search = search
        self._judge = judge
        self._fewest = FewestGroups(requirement, judge)

    def cheapest(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> ApartFleet | None:
        """Return the cheapest pair that costs less than a ceiling, USD in the period."""
        frontier: Frontier[Pair] = Frontier(
            float(self._search.price_book.surcharges.factor)
        )
        for market in self._markets(offers, ceiling_usd):
            frontier.push(
                market.least_prompts_usd + market.least_answers_usd,
                Pair(market, 0, 0),
                market.key,
            )
        while (taken := frontier.take(ceiling_usd)) is not None:
            pair = taken[1]
            # Its cost is exact: no pair that is left costs less.
            if pair.fleet is not None:
                if self._keeps_limits(pair.fleet):
                    return pair.fleet
                continue
            self._expand(frontier, pair, taken[0], ceiling_usd)
        return None

    def _expand(
        self,
        frontier: Frontier[Pair],
        pair: Pair,
        bound_usd: float,
        ceiling_usd: float,
    ) -> None:
        """Put the exact cost of a pair in place of its bound, beside the pairs that follow it."""
        market = pair.market
        prompts = market.prompts.at(
            pair.first, ceiling_usd - market.least_answers_usd
        )
        answers = market.answers.at(
            pair.second, ceiling_usd - market.least_prompts_usd
        )
        if prompts is None or answers is None:
            return
        usd = prompts.usd + answers.usd
        # 1e-9 absorbs floating-point error of equal sums.
        if usd * frontier.scale > bound_usd * (1 + 1e-9):
            # What was known of it came from formulas.
            frontier.push(usd, pair, market.key)
            return
        # Each pair follows one other: the next answers, and the next prompts beside the first.
        followers = [Pair(market, pair.first, pair.second + 1)]
        if pair.second == 0:
            followers.append(Pair(market, pair.first + 1, 0))
        for follower in followers:
            frontier.push(usd, follower, market.key)
        fleet = self._fleet(prompts, answers)
        if fleet is not None and float(fleet.bill.total) < ceiling_usd:
            frontier.push(
                float(fleet.bill.total) / frontier.scale,
                Pair(market, pair.first, pair.second, fleet),
                market.key,
            )

    def _fleet(
        self, prompts: RoleFleet, answers: RoleFleet
    ) -> ApartFleet | None:
        """Return a pair with its bill, None where it cannot be had or work together."""
        first, second = prompts.kind, answers.kind
        if not (
            may_hand_over(first.replica, second.replica)
            and share_a_zone(first.offer, second.offer)
        ):
            return None
        # One commitment may be to both pools, and counts once.
        if first.offer.owned_nodes and second.offer.owned_nodes:
            return None
        if not self._judge.may_start_in_time(
            self._requirement,
            ChainEnd(first.offer, first.replica, 1),
            ChainEnd(second.offer, second.replica, 1),
        ):
            return None
        fleet = apart_fleet(
            self._parts,
            (first, second),
            (prompts.groups, answers.groups),
            self._search.price_book,
        )
        return fleet if may_be_had(fleet.pools) else None

    def _keeps_limits(self, fleet: ApartFleet) -> bool:
        """Return whether requests that pass both pools keep all limits at the peak."""
        trial = self._judge.chain(self._requirement, *fleet.ends)
        return not trial.misses(trial_limits(self._requirement))

    def _markets(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> Iterator[Market]:
        """Yield the markets that have pools of both parts, without those that are too dear."""
        by_market: dict[MarketKey, list[PoolKind]] = {}
        for offer in offers:
            # No promise hangs on reclaims.
            if has_promise(self._requirement, offer):
                continue
            if offer_bound_usd(self._requirement, offer) >= ceiling_usd:
                continue
            for kind in self._kinds_of(offer):
                layout = kind.replica.layout
                key = (
                    offer.provider,
                    offer.region,
                    layout.precision,
                    layout.kv_precision,
                )
                by_market.setdefault(key, []).append(kind)
        for key, kinds in by_market.items():
            prompts, answers = (self._queue(part, kinds) for part in PARTS)
            market = Market(
                key, prompts, answers, prompts.least_usd, answers.least_usd
            )
            if prompts.least_usd + answers.least_usd < ceiling_usd:
                yield market

    def _kinds_of(self, offer: Offer) -> Iterator[PoolKind]:
        """Yield the layouts on one machine of an offer that may take part."""
        for replica, group, _ in self._search.layout_options(
            self._requirement, offer, ONE_NODE
        ):
            if may_take_part(offer, replica) and not unfit_rejection(
                self._requirement, replica, group
            ):
                yield PoolKind(offer, replica, group)

    def _queue(self, part: Part, kinds: list[PoolKind]) -> RoleQueue:
        """Return the pools of a part whose first tokens may be in time with any other pool."""
        fitting = []
        for kind in kinds:
            end = ChainEnd(kind.offer, kind.replica, 1)
            prompts, answers = (end, None) if part == "prompts" else (None, end)
            if self._judge.may_start_in_time(
                self._requirement, prompts, answers
            ):
                fitting.append(kind)
        requirement = self._parts[PARTS.index(part)]
        return RoleQueue(part, fitting, requirement, self._fewest)
