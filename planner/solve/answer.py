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
        offer_filter = Market(self.catalog.kinds, rules(spec, self.built))
        if isinstance(spec, Workspace):
            return self._workspace(spec, offer_filter)
        if isinstance(spec, Training):
            requirement = train_need(spec, self.read, self.trust.confidence)
            return training(requirement, offer_filter, self.catalog, self.keep)
        return self._serving(spec, self.need(spec), offer_filter)

    def need(self, spec: Inference | Batch) -> Need:
        """Return what a spec needs, to be met with the wished confidence."""
        return replace(need(spec, self.read), trust=self.trust)

    def _serving(
        self, spec: Inference | Batch, requirement: Need, offer_filter: Market
    ) -> Solution:
        search = Search(self.catalog.book)
        offers = offer_filter.best()
        search_result = search.solve(
            requirement, offers, cluster_limit=max(FINALISTS, self.keep + 1)
        )
        budget_usd = spec.buy.budget
        selection, simulation_check = (
            verified(requirement, search_result.found, search.bill)
            if search_result.found
            else (None, None)
        )
        if selection is None or (
            budget_usd is not None and selection.bill.usd_month > budget_usd
        ):
            exceeded_budget = budget_usd if search_result.found else None
            nearest_bindings = relaxations(
                requirement, search, offer_filter, exceeded_budget
            )
            return self._nothing(requirement, offer_filter, nearest_bindings)
        excluded_candidates = self._barred(
            requirement, search, offer_filter, selection
        )
        spare_groups = selection.fit.groups - selection.fit.needed
        hourly_nodes = requirement.week.nodes(
            selection.fit.needed, selection.fit.span, spare_groups
        )
        pool = Pool(
            offer=selection.offer,
            nodes=selection.fit.nodes,
            least=min(node_count for node_count in hourly_nodes if node_count),
            span=selection.fit.span,
            replicas=selection.fit.replicas * selection.fit.groups,
            role="batch" if requirement.mode == "batch" else "serve",
            layout=selection.fit.layout,
            max_batch=selection.fit.replica.max_batch,
            spare=spare_groups,
            context=requirement.load.context,
            window=int(requirement.deadline)
            if requirement.runs_per_month > 1
            else 0,
        )
        return Solution(
            status="optimal",
            pools=(pool,),
            predicted=predict(requirement, selection.fit),
            binding=bindings(
                requirement,
                search,
                offer_filter,
                selection,
                excluded_candidates,
            ),
            alternatives=alternatives(
                requirement,
                search_result,
                excluded_candidates,
                self.keep,
                selection,
            ),
            bill=selection.bill,
            warnings=_warnings(spec, requirement, selection, simulation_check),
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            considered=offer_filter.allowed,
            safety=_safety(requirement, search, offers, selection),
            verified=simulation_check,
            learned=selection.fit.replica.learned,
        )

    def _barred(
        self,
        requirement: Need,
        search: Search,
        offer_filter: Market,
        selection: Found,
    ) -> list[Found]:
        """Cheaper fits that only the way of buying keeps out."""
        candidates = search.solve(
            requirement, offer_filter.best("buy"), cluster_limit=self.keep
        ).found
        return [
            candidate
            for candidate in candidates
            if candidate.bill.usd_month < selection.bill.usd_month
        ]

    def _nothing(
        self,
        requirement: Need,
        offer_filter: Market,
        nearest_bindings: tuple[Binding, ...],
    ) -> Solution:
        return Solution(
            status="infeasible",
            pools=(),
            predicted={},
            binding=nearest_bindings,
            alternatives=(),
            bill=None,
            warnings=(),
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            considered=len(self.catalog.offers),
        )

    def _workspace(self, spec: Workspace, offer_filter: Market) -> Solution:
        requirement = workspace.room(spec)
        fitting_choices: list[_Machine] = []
        undersized_choices: list[_Machine] = []
        for offer in offer_filter.best():
            shortfall = requirement.lacks(offer.instance)
            usd_month = workspace.bill(spec, offer, self.catalog.book).usd_month
            (undersized_choices if shortfall else fitting_choices).append(
                (usd_month, offer.key, offer, shortfall)
            )
        fitting_choices.sort(key=lambda choice: choice[:2])
        weekly_schedule = workspace.open_week(spec)
        selected_offer = fitting_choices[0][2] if fitting_choices else None
        monthly_bill = (
            workspace.bill(spec, selected_offer, self.catalog.book)
            if selected_offer
            else None
        )
        budget_usd = spec.buy.budget
        if (
            selected_offer is None
            or monthly_bill is None
            or (budget_usd is not None and monthly_bill.usd_month > budget_usd)
        ):
            return self._no_machine(
                spec,
                requirement,
                offer_filter,
                monthly_bill.usd_month if monthly_bill else None,
            )
        pool = Pool(
            offer=selected_offer,
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
            predicted=_held(requirement, selected_offer),
            binding=(),
            alternatives=self._others(
                spec,
                fitting_choices,
                undersized_choices,
                monthly_bill.usd_month,
            ),
            bill=monthly_bill,
            warnings=(
                FLEETING,
                *_price_warnings(selected_offer, monthly_bill.unknown),
            ),
            week=weekly_schedule,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            considered=offer_filter.allowed,
        )

    def _others(
        self,
        spec: Workspace,
        fitting_choices: list[_Machine],
        undersized_choices: list[_Machine],
        ceiling_usd: Decimal,
    ) -> tuple[Alternative, ...]:
        selected_type = fitting_choices[0][2].instance.instance_type
        pricier_choices = _first_of_type(
            [
                choice
                for choice in fitting_choices
                if choice[2].instance.instance_type != selected_type
            ]
        )
        cheaper_choices = _first_of_type(
            sorted(
                (
                    choice
                    for choice in undersized_choices
                    if choice[0] < ceiling_usd
                ),
                key=lambda choice: choice[:2],
            )
        )
        shown_choices = [
            *pricier_choices[: self.keep],
            *cheaper_choices[-self.keep :],
        ]
        return tuple(
            Alternative(
                offer=offer,
                nodes=spec.users,
                usd_month=workspace.bill(
                    spec, offer, self.catalog.book
                ).usd_month,
                rejected_by=shortfall or "price",
            )
            for _, _, offer, shortfall in shown_choices
        )

    def _no_machine(
        self,
        spec: Workspace,
        requirement: workspace.Room,
        offer_filter: Market,
        exceeding_usd_month: Decimal | None,
    ) -> Solution:
        nearest_bindings = []
        for rule in offer_filter.given[1:]:
            relaxed_offers = offer_filter.best(rule.key)
            sufficient_offers = [
                offer
                for offer in relaxed_offers
                if not requirement.lacks(offer.instance)
            ]
            if sufficient_offers and exceeding_usd_month is None:
                cheapest_offer = min(
                    sufficient_offers,
                    key=lambda sufficient_offer: (
                        sufficient_offer.usd_hour,
                        sufficient_offer.key,
                    ),
                )
                usd_month = workspace.bill(
                    spec, cheapest_offer, self.catalog.book
                ).usd_month
                fleet_label = f"{cheapest_offer.provider} {cheapest_offer.region} {cheapest_offer.instance.instance_type}"
                nearest_bindings.append(
                    _relaxed(rule.key, "any", usd_month, fleet_label)
                )
        if exceeding_usd_month is not None:
            nearest_bindings.append(
                _relaxed(
                    "buy.budget",
                    f"{exceeding_usd_month:,.0f} USD/month",
                    exceeding_usd_month,
                    "",
                )
            )
        return Solution(
            status="infeasible",
            pools=(),
            predicted={},
            binding=tuple(nearest_bindings),
            alternatives=(),
            bill=None,
            warnings=(),
            week=workspace.open_week(spec),
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            considered=len(self.catalog.offers),
        )


_Machine: TypeAlias = "tuple[Decimal, tuple[str, ...], Offer, str]"


def _relaxed(
    constraint: str, relax_to: str, usd_month: Decimal, fleet_label: str
) -> Binding:
    return Binding(
        constraint=constraint,
        slack=None,
        relax_to=relax_to,
        saves_usd_month=None,
        usd_month=usd_month,
        fleet=fleet_label,
    )


def _first_of_type(
    choices: list[_Machine],
) -> list[_Machine]:
    choice_by_type: dict[str, _Machine] = {}
    for choice in choices:
        choice_by_type.setdefault(choice[2].instance.instance_type, choice)
    return list(choice_by_type.values())


def _safety(
    requirement: Need, search: Search, offers: list[Offer], selection: Found
) -> Safety | None:
    """What meeting the limits with confidence costs over meeting them as often as not."""
    if not requirement.limits or requirement.trust.confidence <= EVEN:
        return None
    even_candidates = search.solve(
        replace(requirement, trust=replace(requirement.trust, confidence=EVEN)),
        offers,
    ).found
    extra_usd_month = (
        selection.bill.usd_month - even_candidates[0].bill.usd_month
        if even_candidates
        else Decimal(0)
    )
    return Safety(
        requirement.trust.confidence,
        extra_usd_month,
        fleet(even_candidates[0]) if extra_usd_month else "",
    )


def _held(requirement: workspace.Room, offer: Offer) -> dict[str, Predicted]:
    available_gib = offer.instance.node.memory_gib * offer.instance.accelerators
    if not requirement.total_gib:
        return {}
    accelerator_gib = requirement.total_gib / offer.instance.accelerators
    memory_share = requirement.total_gib / available_gib
    return {
        "memory_gib_per_accelerator": Predicted(
            accelerator_gib,
            accelerator_gib / 1.05,
            accelerator_gib * 1.05,
            "physics",
        ),
        "memory_fraction": Predicted(
            memory_share, memory_share / 1.05, memory_share * 1.05, "physics"
        ),
    }


def _warnings(
    spec: Inference | Batch,
    requirement: Need,
    selection: Found,
    simulation_check: Verified | None,
) -> tuple[Warn, ...]:
    plan_warnings = [
        Warn(code="assumed-model", message=note) for note in requirement.notes
    ]
    if simulation_check is not None and not simulation_check.passed:
        message = "no fleet that was simulated kept every limit: this is the largest of them"
        plan_warnings.append(Warn(code="unverified", message=message))
    if (
        requirement.trust.learned is not None
        and selection.fit.replica.learned is None
    ):
        calibration = requirement.trust.learned
        message = (
            f"the calibration is of {calibration.model} on {calibration.accelerator}: it says "
            "nothing here"
        )
        plan_warnings.append(Warn(code="calibration", message=message))
    if selection.offer.purchase == "spot":
        message = "spot machines can be taken back at short notice, all of them at once"
        plan_warnings.append(
            Warn(code="spot", message=message, place=spec.buy.place)
        )
    return (
        *plan_warnings,
        *_price_warnings(selection.offer, selection.bill.unknown),
    )


def _price_warnings(
    offer: Offer, unpriced_lines: tuple[str, ...]
) -> tuple[Warn, ...]:
    price_warnings = []
    if offer.confidence == UNRELIABLE or offer.basis != "observed":
        message = (
            f"the {offer.purchase} price of {offer.instance.instance_type} in {offer.region} is "
            f"{offer.basis}, of {offer.as_of}, with {offer.confidence} confidence"
        )
        price_warnings.append(Warn(code="price", message=message))
    if unpriced_lines:
        message = (
            "no price is known of "
            + ", ".join(unpriced_lines)
            + ": not in the total"
        )
        price_warnings.append(Warn(code="price-unknown", message=message))
    return tuple(price_warnings)
