"""What each wish of a serving spec costs: the spec is planned again without it."""

from __future__ import annotations

import itertools
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.market.public_address import ADDRESS_KEY
from planner.numeric import EVEN_ODDS
from planner.solve.cause import ANY_VALUE, because
from planner.solve.serving.alternative import excluded_rival
from planner.solve.serving.apart_fleet import ApartFleet
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.mixed_fleet import MixedFleet
from planner.solve.serving.neighbor import alone_requirements
from planner.solve.serving.pool_answer import is_small_cache_chosen
from planner.solve.serving.unused_spot import is_spot_unused
from planner.solve.solution import (
    BindingLimit,
    ConfidenceCost,
    PlanWarning,
    Reasons,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.solve.cause import Cause
    from planner.solve.serving.fleet_finder import AnyFleet, FleetFinder
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.settings import TaskRunner
    from planner.spec.model import LatencyLimit


def find_reasons(
    requirement: ServingRequirement,
    finder: FleetFinder,
    selection: ServingCandidate,
    run_all: TaskRunner,
    *,
    fleet: MixedFleet | ApartFleet | None = None,
) -> Reasons:
    """Return the wishes that cost money, the most expensive first.

    saving = cost of the selection - cost of the optimum without the wish, USD a month
    slack  = 1 - predicted / limit, for latency limits, where it is least
    The optimum has as many machine types as the spec allows. `fleet` is a selection of two pools,
    or of one that has hours of its own.
    """
    wishes = _Wishes(requirement, finder, selection, fleet)
    found = run_all(list(wishes.tasks()))
    bindings = itertools.chain.from_iterable(
        reasons.bindings for reasons in found
    )
    return Reasons(
        bindings=tuple(
            sorted(
                bindings,
                key=lambda binding: (
                    -(binding.saves_usd or 0),
                    binding.constraint,
                ),
            )
        ),
        alternatives=tuple(
            itertools.chain.from_iterable(
                reasons.alternatives for reasons in found
            )
        ),
        warnings=tuple(
            itertools.chain.from_iterable(reasons.warnings for reasons in found)
        ),
        confidence_cost=next(
            (
                reasons.confidence_cost
                for reasons in found
                if reasons.confidence_cost is not None
            ),
            None,
        ),
    )


def asked_confidence(requirement: ServingRequirement) -> ConfidenceCost | None:
    """Return the confidence that the limits are met with, at a cost not planned yet."""
    level = requirement.confidence.level
    if not requirement.limits or level is None or level <= EVEN_ODDS:
        return None
    return ConfidenceCost(level)


class _Wishes:
    """The wishes of a spec, and the fleet whose cost they may raise."""

    def __init__(
        self,
        requirement: ServingRequirement,
        finder: FleetFinder,
        selection: ServingCandidate,
        fleet: MixedFleet | ApartFleet | None,
    ) -> None:
        self._requirement = requirement
        # Seconds for each wish are too many, and with them it could only save more.
        self._finder = finder.quick()
        # What a choice saves is told by the whole search, as its plan is.
        self._whole_finder = (
            finder if finder.machine_types == 1 else self._finder
        )
        self._selection = selection
        # What the machines of each type carry, and how many they are.
        self._fleet = fleet
        self._parts = (
            [(requirement, selection.sizing)]
            if fleet is None
            else [(pool.requirement, pool.sizing) for pool in fleet.pools]
        )

    def tasks(self) -> Iterator[Callable[[], Reasons]]:
        """Yield a plan without each wish; they do not depend on each other.

        Those that take longest come first, so that parallel workers end together: other ways of
        buying have the most offers, and a limit is planned without twice.
        """
        if self._finder.is_bound_by("buy"):
            yield self._without_purchase_rule
        for limit in self._requirement.limits:
            yield partial(self._without_limit, limit)
        if self._is_routed_at_random():
            yield self._with_a_router
        confidence = asked_confidence(self._requirement)
        if confidence is not None:
            yield partial(self._without_confidence, confidence)
        yield from self._comparisons()
        # Rules on offers: each is left out in turn.
        for constraint in (
            "where.regions",
            "where.clouds",
            "where.accelerators",
        ):
            if self._finder.is_bound_by(constraint):
                yield partial(self._without_offer_rule, constraint)
        if self._requirement.has_addresses:
            yield self._without_addresses
        yield from self._promises()

    def _promises(self) -> Iterator[Callable[[], Reasons]]:
        """Yield a plan without each promise that costs machines, or keeps them off spot."""
        has_spares = any(sizing.spares.count for _, sizing in self._parts)
        promises = []
        if has_spares or is_spot_unused(
            self._requirement,
            self._finder.offer_filter.cheapest(),
            self._selection,
        ):
            promises.append(
                (
                    "sla.availability",
                    replace(self._requirement, availability=None),
                )
            )
        if has_spares:
            promises.append(
                ("sla.survives", replace(self._requirement, survives=None))
            )
        for constraint, relaxed in promises:
            if relaxed != self._requirement:
                yield partial(self._without_promise, constraint, relaxed)

    def _comparisons(self) -> Iterator[Callable[[], Reasons]]:
        """Yield the plans that a fleet is compared with, whatever they cost."""
        layouts = tuple(sizing.layout for _, sizing in self._parts)
        if is_small_cache_chosen(self._requirement, layouts):
            yield self._with_default_cache
        if self._requirement.load.drafting is not None:
            yield self._without_draft
        if self._requirement.beside:
            yield self._apart

    def _without_confidence(self, confidence: ConfidenceCost) -> Reasons:
        """Price meeting the limits with confidence over meeting them as often as not."""
        even_fleet = self._cheaper_fleet(
            replace(
                self._requirement,
                confidence=replace(
                    self._requirement.confidence, level=EVEN_ODDS
                ),
            )
        )
        if even_fleet is None:
            return Reasons(
                confidence_cost=replace(confidence, extra_usd_month=Decimal(0))
            )
        return Reasons(
            confidence_cost=replace(
                confidence,
                extra_usd_month=self._selection.bill.total
                - even_fleet.bill.total,
                even_odds_fleet=even_fleet.summary,
                unpriced=even_fleet.bill.unpriced_lines,
            )
        )

    def _with_default_cache(self) -> Reasons:
        """Tell what the plan costs with the cache that the engine takes by itself.

        saves = cost of the cheapest fleet with that cache - cost of the selection, USD in the
        period of the bill
        """
        fleet = self._whole_finder.cheapest(
            self._requirement.with_default_cache()
        )
        reason = because("no-default-cache")
        if fleet is not None:
            saved_usd = fleet.bill.total - self._selection.bill.total
            reason = because("default-cache", saved_usd=saved_usd)
        return Reasons(
            warnings=(PlanWarning(code="default-cache", reason=reason),)
        )

    def _without_draft(self) -> Reasons:
        """Tell what the plan costs without speculative decoding, USD."""
        fleet = self._whole_finder.cheapest(self._requirement.without_draft())
        reason = because("only-draft")
        if fleet is not None:
            reason = because("no-draft", without_usd=fleet.bill.total)
        return Reasons(warnings=(PlanWarning(code="no-draft", reason=reason),))

    def _apart(self) -> Reasons:
        """Tell what each service costs on machines of its own, with the promise of all, USD."""
        causes = []
        # Sum of the bills, each with a network and a balancer of its own.
        apart_usd = Decimal(0)
        for name, alone in alone_requirements(self._requirement):
            fleet = self._whole_finder.cheapest(alone)
            if fleet is None:
                causes = [because("none-apart", service=name)]
                break
            usd = fleet.bill.total
            apart_usd += usd
            causes.append(because("apart-one", service=name, alone_usd=usd))
        else:
            causes.insert(0, because("apart", apart_usd=apart_usd))
        return Reasons(
            warnings=tuple(
                PlanWarning(code="apart", reason=cause) for cause in causes
            )
        )

    def _without_limit(self, limit: LatencyLimit) -> Reasons:
        """Price a latency limit against what the cheapest fleet without it reaches.

        The limit moves there, and the spec is planned again.
        """
        unlimited = self._cheaper_fleet(
            self._requirement.without_limit(limit.key)
        )
        if unlimited is None:
            return Reasons()
        seconds = self._finder.looser_seconds(
            self._requirement, limit, unlimited
        )
        relaxed = self._cheaper_fleet(
            self._requirement.with_limit(limit.key, seconds)
        )
        reached_s = self._reached_s(limit)
        return self._priced(
            limit.key,
            relaxed,
            because("seconds-at-least", value_s=float(seconds)),
            # Share of the limit that is not used.
            slack=1 - reached_s / float(limit.seconds),
        )

    def _reached_s(self, limit: LatencyLimit) -> float:
        """Return what the selection reaches of a limit, in seconds."""
        if isinstance(self._fleet, ApartFleet):
            return self._finder.apart_percentile(
                self._requirement, limit, self._fleet
            ).estimate_s
        return max(
            self._finder.search.judge.reached(carried, sizing, limit).estimate_s
            for carried, sizing in self._parts
        )

    def _is_routed_at_random(self) -> bool:
        """Whether a router could spread the requests better than chance does."""
        return (
            # Two types take random shares of the requests: no spec has both.
            self._finder.machine_types == 1
            # Two pools have a router anyway, and it is told how in traffic.routing.
            and not isinstance(self._fleet, ApartFleet)
            # Services that share machines share the router too.
            and not self._requirement.beside
            and self._requirement.mode == "open"
            and self._requirement.is_simulated
            and self._requirement.load.routing == "random"
        )

    def _with_a_router(self) -> Reasons:
        """Price what chance costs against a router that looks for the least loaded replica."""
        routing = "least-loaded"
        load = replace(self._requirement.load, routing=routing)
        return self._priced(
            "traffic.routing",
            self._cheaper_fleet(replace(self._requirement, load=load)),
            because("routing", routing=routing),
        )

    def _without_purchase_rule(self) -> Reasons:
        """Price the rule on the way of buying."""
        cheaper = self._cheaper_fleet(self._requirement, "buy")
        if cheaper is None:
            return Reasons()
        first, *others = (
            (cheaper,)
            if isinstance(cheaper, ServingCandidate)
            else cheaper.candidates
        )
        priced = self._priced(
            "buy",
            cheaper,
            because("purchase", purchase=first.bought.purchase),
        )
        # An alternative is of one machine type.
        if others:
            return priced
        return replace(
            priced, alternatives=(excluded_rival(first, self._selection),)
        )

    def _without_offer_rule(self, constraint: str) -> Reasons:
        """Price a rule on what is rented where."""
        return self._priced(
            constraint,
            self._cheaper_fleet(self._requirement, constraint),
        )

    def _without_addresses(self) -> Reasons:
        """Price public addresses over a NAT, and over machines that take none."""
        return self._priced(
            ADDRESS_KEY,
            self._cheaper_fleet(
                replace(self._requirement, has_addresses=False), ADDRESS_KEY
            ),
            because("told", told="false"),
        )

    def _without_promise(
        self, constraint: str, relaxed: ServingRequirement
    ) -> Reasons:
        """Price a promise: it asks for spare groups, or for machines that are not on spot."""
        return self._priced(constraint, self._cheaper_fleet(relaxed), slack=0.0)

    def _cheaper_fleet(
        self, requirement: ServingRequirement, skipped_rule: str = ""
    ) -> AnyFleet | None:
        """Return the cheapest fleet if it costs less by a cent or more."""
        return self._finder.cheaper_than(
            self._selection.bill.total, requirement, skipped_rule
        )

    def _priced(
        self,
        constraint: str,
        relaxed: AnyFleet | None,
        relax_to: Cause = ANY_VALUE,
        *,
        slack: float | None = None,
    ) -> Reasons:
        """Return what a wish costs; nothing when no fleet without it is cheaper."""
        if relaxed is None:
            return Reasons()
        return Reasons(
            bindings=(
                BindingLimit(
                    constraint=constraint,
                    slack=slack,
                    relax_to=relax_to,
                    saves_usd=self._selection.bill.total - relaxed.bill.total,
                    usd=relaxed.bill.total,
                    fleet=relaxed.summary,
                    unpriced=relaxed.bill.unpriced_lines,
                ),
            )
        )
