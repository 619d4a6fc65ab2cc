"""From a spec and a catalog to a solution: the one entrance to solving. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.errors import Problem, SpecError
from planner.perf.serve import EVEN, Trust
from planner.solve import workspace
from planner.solve.explain import alternatives, bindings, fleet, relaxations
from planner.solve.need import Need, need
from planner.solve.predict import predict
from planner.solve.rule import Market, rules
from planner.solve.search import Found, Search
from planner.solve.solution import (
    Alternative,
    Binding,
    Pool,
    Predicted,
    Safety,
    Solution,
    Verified,
    Warn,
)
from planner.solve.train.answer import answer as training
from planner.solve.train.need import train_need
from planner.solve.verify import verified
from planner.spec.model import Training, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.offer import Catalog, Instance, Offer
    from planner.spec.model import Batch, Inference, Spec

UNRELIABLE: Final = "low"
FINALISTS: Final = (
    4  # that may replace each other when simulated, whatever is shown
)
CAREFUL: Final = Trust(0.9)
FLEETING: Final = Warn(
    code="disk",
    message="a disk goes with its machine: keep work in a repository or a bucket before it stops",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """What solving takes besides the spec.

    `built` says why no stack can be built for a machine type and a number of nodes for each
    replica, or nothing. `read` opens files beside the spec. `keep` is how many alternatives.
    `trust` is the confidence with which limits are to be met, in view of how far predictions err,
    and what a benchmark of the user's own taught about them.
    """

    catalog: Catalog
    built: Callable[[Instance], str | None]
    read: Callable[[str], bytes]
    keep: int = 3
    trust: Trust = CAREFUL

    def solve(self, spec: Spec) -> Solution:
        """Return the cheapest fleet that meets a spec, or why there is none."""
        if spec.runtime != "vm":
            message = f"runtime {spec.runtime} cannot be built yet"
            problem = Problem(
                code="unsupported",
                message=message,
                place=spec.place,
                next_step="use runtime: vm",
            )
            raise SpecError(problem)
        market = Market(self.catalog.kinds, rules(spec, self.built))
        if isinstance(spec, Workspace):
            return self._workspace(spec, market)
        if isinstance(spec, Training):
            wanted = train_need(spec, self.read, self.trust.confidence)
            return training(wanted, market, self.catalog, self.keep)
        return self._serving(spec, self.need(spec), market)

    def need(self, spec: Inference | Batch) -> Need:
        """Return what a spec needs, to be met with the wished confidence."""
        return replace(need(spec, self.read), trust=self.trust)

    def _serving(
        self, spec: Inference | Batch, wanted: Need, market: Market
    ) -> Solution:
        search = Search(self.catalog.book)
        offers = market.best()
        result = search.solve(
            wanted, offers, keep=max(FINALISTS, self.keep + 1)
        )
        budget = spec.buy.budget
        chosen, checked = (
            verified(wanted, result.found, search.bill)
            if result.found
            else (None, None)
        )
        if chosen is None or (
            budget is not None and chosen.bill.usd_month > budget
        ):
            broke = budget if result.found else None
            nearest = relaxations(wanted, search, market, broke)
            return self._nothing(wanted, market, nearest)
        barred = self._barred(wanted, search, market, chosen)
        spare = chosen.fit.groups - chosen.fit.needed
        hours = wanted.week.nodes(chosen.fit.needed, chosen.fit.span, spare)
        pool = Pool(
            offer=chosen.offer,
            nodes=chosen.fit.nodes,
            least=min(n for n in hours if n),
            span=chosen.fit.span,
            replicas=chosen.fit.replicas * chosen.fit.groups,
            role="batch" if wanted.mode == "batch" else "serve",
            layout=chosen.fit.layout,
            max_batch=chosen.fit.replica.max_batch,
            spare=spare,
            context=wanted.load.context,
            window=int(wanted.deadline) if wanted.runs_per_month > 1 else 0,
        )
        return Solution(
            status="optimal",
            pools=(pool,),
            predicted=predict(wanted, chosen.fit),
            binding=bindings(wanted, search, market, chosen, barred),
            alternatives=alternatives(
                wanted, result, barred, self.keep, chosen
            ),
            bill=chosen.bill,
            warnings=_warnings(spec, wanted, chosen, checked),
            week=wanted.week,
            llm=wanted.llm,
            funnel=market.funnel,
            considered=market.allowed,
            safety=_safety(wanted, search, offers, chosen),
            verified=checked,
            learned=chosen.fit.replica.learned,
        )

    def _barred(
        self, wanted: Need, search: Search, market: Market, chosen: Found
    ) -> list[Found]:
        """Cheaper fits that only the way of buying keeps out."""
        wide = search.solve(wanted, market.best("buy"), keep=self.keep).found
        return [f for f in wide if f.bill.usd_month < chosen.bill.usd_month]

    def _nothing(
        self, wanted: Need, market: Market, nearest: tuple[Binding, ...]
    ) -> Solution:
        return Solution(
            status="infeasible",
            pools=(),
            predicted={},
            binding=nearest,
            alternatives=(),
            bill=None,
            warnings=(),
            week=wanted.week,
            llm=wanted.llm,
            funnel=market.funnel,
            considered=len(self.catalog.offers),
        )

    def _workspace(self, spec: Workspace, market: Market) -> Solution:
        wanted = workspace.room(spec)
        fits: list[_Machine] = []
        small: list[_Machine] = []
        for offer in market.best():
            lack = wanted.lacks(offer.instance)
            cost = workspace.bill(spec, offer, self.catalog.book).usd_month
            (small if lack else fits).append((cost, offer.key, offer, lack))
        fits.sort(key=lambda f: f[:2])
        weekly = workspace.open_week(spec)
        chosen = fits[0][2] if fits else None
        total = (
            workspace.bill(spec, chosen, self.catalog.book) if chosen else None
        )
        budget = spec.buy.budget
        if (
            chosen is None
            or total is None
            or (budget is not None and total.usd_month > budget)
        ):
            return self._no_machine(
                spec, wanted, market, total.usd_month if total else None
            )
        pool = Pool(
            offer=chosen,
            nodes=spec.users,
            least=spec.users,
            span=1,
            replicas=spec.users,
            role="workspace",
            layout=None,
            max_batch=0,
            spare=0,
            context=0,
            window=0,
        )
        return Solution(
            status="optimal",
            pools=(pool,),
            predicted=_held(wanted, chosen),
            binding=(),
            alternatives=self._others(spec, fits, small, total.usd_month),
            bill=total,
            warnings=(FLEETING, *_price_warnings(chosen, total.unknown)),
            week=weekly,
            llm=wanted.llm,
            funnel=market.funnel,
            considered=market.allowed,
        )

    def _others(
        self,
        spec: Workspace,
        fits: list[_Machine],
        small: list[_Machine],
        below: Decimal,
    ) -> tuple[Alternative, ...]:
        chosen = fits[0][2].instance.instance_type
        dearer = _first_of_type(
            [f for f in fits if f[2].instance.instance_type != chosen]
        )
        cheaper = _first_of_type(
            sorted((f for f in small if f[0] < below), key=lambda f: f[:2])
        )
        picked = [*dearer[: self.keep], *cheaper[-self.keep :]]
        return tuple(
            Alternative(
                offer=offer,
                nodes=spec.users,
                usd_month=workspace.bill(
                    spec, offer, self.catalog.book
                ).usd_month,
                rejected_by=lack or "price",
            )
            for _, _, offer, lack in picked
        )

    def _no_machine(
        self,
        spec: Workspace,
        wanted: workspace.Room,
        market: Market,
        cost: Decimal | None,
    ) -> Solution:
        nearest = []
        for rule in market.given[1:]:
            left = market.best(rule.key)
            wide = [offer for offer in left if not wanted.lacks(offer.instance)]
            if wide and cost is None:
                best = min(wide, key=lambda o: (o.usd_hour, o.key))
                total = workspace.bill(spec, best, self.catalog.book).usd_month
                fleet = f"{best.provider} {best.region} {best.instance.instance_type}"
                nearest.append(_relaxed(rule.key, "any", total, fleet))
        if cost is not None:
            nearest.append(
                _relaxed("buy.budget", f"{cost:,.0f} USD/month", cost, "")
            )
        return Solution(
            status="infeasible",
            pools=(),
            predicted={},
            binding=tuple(nearest),
            alternatives=(),
            bill=None,
            warnings=(),
            week=workspace.open_week(spec),
            llm=wanted.llm,
            funnel=market.funnel,
            considered=len(self.catalog.offers),
        )


_Machine: TypeAlias = "tuple[Decimal, tuple[str, ...], Offer, str]"


def _relaxed(key: str, relax_to: str, cost: Decimal, fleet: str) -> Binding:
    return Binding(
        constraint=key,
        slack=None,
        relax_to=relax_to,
        saves_usd_month=None,
        usd_month=cost,
        fleet=fleet,
    )


def _first_of_type(
    fits: list[_Machine],
) -> list[_Machine]:
    seen: dict[str, _Machine] = {}
    for item in fits:
        seen.setdefault(item[2].instance.instance_type, item)
    return list(seen.values())


def _safety(
    wanted: Need, search: Search, offers: list[Offer], chosen: Found
) -> Safety | None:
    """What meeting the limits with confidence costs over meeting them as often as not."""
    if not wanted.limits or wanted.trust.confidence <= EVEN:
        return None
    bold = search.solve(
        replace(wanted, trust=replace(wanted.trust, confidence=EVEN)), offers
    ).found
    more = (
        chosen.bill.usd_month - bold[0].bill.usd_month if bold else Decimal(0)
    )
    return Safety(wanted.trust.confidence, more, fleet(bold[0]) if more else "")


def _held(wanted: workspace.Room, offer: Offer) -> dict[str, Predicted]:
    have = offer.instance.node.memory_gib * offer.instance.accelerators
    if not wanted.total_gib:
        return {}
    each = wanted.total_gib / offer.instance.accelerators
    share = wanted.total_gib / have
    return {
        "memory_gib_per_accelerator": Predicted(
            each, each / 1.05, each * 1.05, "physics"
        ),
        "memory_fraction": Predicted(
            share, share / 1.05, share * 1.05, "physics"
        ),
    }


def _warnings(
    spec: Inference | Batch,
    wanted: Need,
    chosen: Found,
    checked: Verified | None,
) -> tuple[Warn, ...]:
    found = [Warn(code="assumed-model", message=note) for note in wanted.notes]
    if checked is not None and not checked.passed:
        message = "no fleet that was simulated kept every limit: this is the largest of them"
        found.append(Warn(code="unverified", message=message))
    if wanted.trust.learned is not None and chosen.fit.replica.learned is None:
        taught = wanted.trust.learned
        message = (
            f"the calibration is of {taught.model} on {taught.accelerator}: it says "
            "nothing here"
        )
        found.append(Warn(code="calibration", message=message))
    if chosen.offer.purchase == "spot":
        message = "spot machines can be taken back at short notice, all of them at once"
        found.append(Warn(code="spot", message=message, place=spec.buy.place))
    return (*found, *_price_warnings(chosen.offer, chosen.bill.unknown))


def _price_warnings(offer: Offer, unknown: tuple[str, ...]) -> tuple[Warn, ...]:
    found = []
    if offer.confidence == UNRELIABLE or offer.basis != "observed":
        message = (
            f"the {offer.purchase} price of {offer.instance.instance_type} in {offer.region} is "
            f"{offer.basis}, of {offer.as_of}, with {offer.confidence} confidence"
        )
        found.append(Warn(code="price", message=message))
    if unknown:
        message = (
            "no price is known of " + ", ".join(unknown) + ": not in the total"
        )
        found.append(Warn(code="price-unknown", message=message))
    return tuple(found)
