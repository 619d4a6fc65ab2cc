"""From a spec and a catalog to a solution: the one entrance to solving. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.cost.energy import PoweredMachine, machine_energy, sum_energy
from planner.errors import Problem, SpecError
from planner.market.offer_filter import OfferFilter, spec_rules
from planner.perf.serving.replica import NO_MARGIN_LEVEL, Confidence
from planner.solve.serving.explain import (
    alternatives,
    bindings,
    describe_fleet,
    relaxations,
)
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.requirement import (
    ServingRequirement,
    serving_requirement,
)
from planner.solve.serving.search import ServingCandidate, ServingSearch
from planner.solve.serving.verify import verify_finalists
from planner.solve.solution import (
    BandedPrediction,
    BindingLimit,
    ConfidenceCost,
    FleetSummary,
    PlanWarning,
    RivalFleet,
    SimulationCheck,
    SizedPool,
    Solution,
)
from planner.solve.training.answer import solve_training as training
from planner.solve.training.requirement import training_requirement
from planner.solve.workspace import requirement as workspace
from planner.spec.model import Training, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.energy import Energy
    from planner.market.offer import Catalog, Instance, Offer
    from planner.spec.model import Batch, Inference, Spec

LOW_CONFIDENCE: Final = "low"
MIN_FINALISTS: Final = (
    4  # that may replace each other when simulated, whatever is shown
)
DEFAULT_CONFIDENCE: Final = Confidence(0.9)
EPHEMERAL_DISK: Final = PlanWarning(
    code="disk",
    message="a disk goes with its machine: keep work in a repository or a bucket before it stops",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """What solving takes besides the spec.

    `unbuilt_reason` says why no stack can be built for a machine type and a number of nodes for each
    replica, or nothing. `read_file` opens files beside the spec. `alternative_count` is how many alternatives.
    `confidence` is the confidence with which limits are to be met, in view of how far predictions err,
    and what a benchmark of the user's own taught about them.
    """

    catalog: Catalog
    unbuilt_reason: Callable[[Instance], str | None]
    read_file: Callable[[str], bytes]
    alternative_count: int = 3
    confidence: Confidence = DEFAULT_CONFIDENCE

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
        offer_filter = OfferFilter(
            self.catalog.offer_groups, spec_rules(spec, self.unbuilt_reason)
        )
        solution = self._solve_kind(spec, offer_filter)
        return replace(solution, energy=_machine_energy(solution))

    def _solve_kind(self, spec: Spec, offer_filter: OfferFilter) -> Solution:
        if isinstance(spec, Workspace):
            return self._solve_workspace(spec, offer_filter)
        if isinstance(spec, Training):
            requirement = training_requirement(
                spec, self.read_file, self.confidence.level
            )
            return training(
                requirement, offer_filter, self.catalog, self.alternative_count
            )
        return self._solve_serving(spec, self.requirement(spec), offer_filter)

    def requirement(self, spec: Inference | Batch) -> ServingRequirement:
        """Return what a spec needs, to be met with the wished confidence."""
        return replace(
            serving_requirement(spec, self.read_file),
            confidence=self.confidence,
        )

    def _solve_serving(
        self,
        spec: Inference | Batch,
        requirement: ServingRequirement,
        offer_filter: OfferFilter,
    ) -> Solution:
        search = ServingSearch(self.catalog.price_book)
        offers = offer_filter.cheapest()
        search_result = search.solve(
            requirement,
            offers,
            result_count=max(MIN_FINALISTS, self.alternative_count + 1),
        )
        budget_usd = spec.buy.budget
        selection, simulation_check = (
            verify_finalists(requirement, search_result.candidates, search.bill)
            if search_result.candidates
            else (None, None)
        )
        if selection is None or (
            budget_usd is not None and selection.bill.total > budget_usd
        ):
            exceeded_budget = budget_usd if search_result.candidates else None
            nearest_bindings = relaxations(
                requirement, search, offer_filter, exceeded_budget
            )
            return self._infeasible_serving(
                requirement, offer_filter, nearest_bindings
            )
        excluded_candidates = self._excluded_by_purchase(
            requirement, search, offer_filter, selection
        )
        spare_groups = (
            selection.sizing.total_groups - selection.sizing.peak_groups
        )
        hourly_nodes = requirement.week.hourly_nodes(
            selection.sizing.peak_groups,
            selection.sizing.nodes_per_group,
            spare_groups,
        )
        pool = SizedPool(
            name="batch" if requirement.mode == "batch" else "serve",
            offer=selection.offer,
            nodes=selection.sizing.nodes,
            min_nodes=min(
                node_count for node_count in hourly_nodes if node_count
            ),
            nodes_per_group=selection.sizing.nodes_per_group,
            replicas=selection.sizing.replicas_per_group
            * selection.sizing.total_groups,
            role="batch" if requirement.mode == "batch" else "serve",
            layout=selection.sizing.layout,
            max_batch=selection.sizing.replica.max_batch,
            spare_groups=spare_groups,
            context_tokens=requirement.load.max_context_tokens,
            run_window_s=int(requirement.deadline_s)
            if requirement.runs_per_month > 1
            else 0,
        )
        return Solution(
            status="optimal",
            pools=(pool,),
            predictions=predict_serving(requirement, selection.sizing),
            bindings=bindings(
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
                self.alternative_count,
                selection,
            ),
            bill=selection.bill,
            warnings=_serving_warnings(
                spec, requirement, selection, simulation_check
            ),
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=offer_filter.allowed_count,
            confidence_cost=_confidence_cost(
                requirement, search, offers, selection
            ),
            simulation_check=simulation_check,
            calibration=selection.sizing.replica.correction,
        )

    def _excluded_by_purchase(
        self,
        requirement: ServingRequirement,
        search: ServingSearch,
        offer_filter: OfferFilter,
        selection: ServingCandidate,
    ) -> list[ServingCandidate]:
        """Cheaper fits that only the way of buying keeps out."""
        candidates = search.solve(
            requirement,
            offer_filter.cheapest("buy"),
            result_count=self.alternative_count,
        ).candidates
        return [
            candidate
            for candidate in candidates
            if candidate.bill.total < selection.bill.total
        ]

    def _infeasible_serving(
        self,
        requirement: ServingRequirement,
        offer_filter: OfferFilter,
        nearest_bindings: tuple[BindingLimit, ...],
    ) -> Solution:
        return Solution(
            status="infeasible",
            pools=(),
            predictions={},
            bindings=nearest_bindings,
            alternatives=(),
            bill=None,
            warnings=(),
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=len(self.catalog.offers),
        )

    def _solve_workspace(
        self, spec: Workspace, offer_filter: OfferFilter
    ) -> Solution:
        requirement = workspace.workspace_requirement(spec)
        fitting_choices: list[_WorkspaceChoice] = []
        undersized_choices: list[_WorkspaceChoice] = []
        for offer in offer_filter.cheapest():
            shortfall = requirement.shortfall(offer.instance)
            usd_month = workspace.workspace_bill(
                spec, offer, self.catalog.price_book
            ).total
            (undersized_choices if shortfall else fitting_choices).append(
                (usd_month, offer.key, offer, shortfall)
            )
        fitting_choices.sort(key=lambda choice: choice[:2])
        weekly_schedule = workspace.scheduled_week(spec)
        selected_offer = fitting_choices[0][2] if fitting_choices else None
        monthly_bill = (
            workspace.workspace_bill(
                spec, selected_offer, self.catalog.price_book
            )
            if selected_offer
            else None
        )
        budget_usd = spec.buy.budget
        if (
            selected_offer is None
            or monthly_bill is None
            or (budget_usd is not None and monthly_bill.total > budget_usd)
        ):
            return self._infeasible_workspace(
                spec,
                requirement,
                offer_filter,
                monthly_bill.total if monthly_bill else None,
            )
        pool = SizedPool(
            name="workspace",
            offer=selected_offer,
            nodes=spec.users,
            min_nodes=spec.users,
            nodes_per_group=1,
            replicas=spec.users,
            role="workspace",
            layout=None,
            max_batch=0,
            spare_groups=0,
            context_tokens=0,
            run_window_s=0,
        )
        return Solution(
            status="optimal",
            pools=(pool,),
            predictions=_memory_predictions(requirement, selected_offer),
            bindings=(),
            alternatives=self._workspace_alternatives(
                spec,
                fitting_choices,
                undersized_choices,
                monthly_bill.total,
            ),
            bill=monthly_bill,
            warnings=(
                EPHEMERAL_DISK,
                *_price_warnings(selected_offer, monthly_bill.unpriced_lines),
            ),
            week=weekly_schedule,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=offer_filter.allowed_count,
        )

    def _workspace_alternatives(
        self,
        spec: Workspace,
        fitting_choices: list[_WorkspaceChoice],
        undersized_choices: list[_WorkspaceChoice],
        ceiling_usd: Decimal,
    ) -> tuple[RivalFleet, ...]:
        selected_type = fitting_choices[0][2].instance.instance_type
        pricier_choices = _first_per_type(
            [
                choice
                for choice in fitting_choices
                if choice[2].instance.instance_type != selected_type
            ]
        )
        cheaper_choices = _first_per_type(
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
            *pricier_choices[: self.alternative_count],
            *cheaper_choices[-self.alternative_count :],
        ]
        return tuple(
            RivalFleet(
                offer=offer,
                nodes=spec.users,
                usd=workspace.workspace_bill(
                    spec, offer, self.catalog.price_book
                ).total,
                rejected_by=shortfall or "price",
            )
            for _, _, offer, shortfall in shown_choices
        )

    def _infeasible_workspace(
        self,
        spec: Workspace,
        requirement: workspace.WorkspaceRequirement,
        offer_filter: OfferFilter,
        exceeding_usd_month: Decimal | None,
    ) -> Solution:
        nearest_bindings = []
        for rule in offer_filter.offer_rules[1:]:
            relaxed_offers = offer_filter.cheapest(rule.key)
            sufficient_offers = [
                offer
                for offer in relaxed_offers
                if not requirement.shortfall(offer.instance)
            ]
            if sufficient_offers and exceeding_usd_month is None:
                cheapest_offer = min(
                    sufficient_offers,
                    key=lambda sufficient_offer: (
                        sufficient_offer.usd_hour,
                        sufficient_offer.key,
                    ),
                )
                usd_month = workspace.workspace_bill(
                    spec, cheapest_offer, self.catalog.price_book
                ).total
                fleet = FleetSummary(
                    cheapest_offer.provider,
                    cheapest_offer.region,
                    cheapest_offer.instance.instance_type,
                    0,
                )
                nearest_bindings.append(
                    _relaxation(rule.key, "any", usd_month, fleet)
                )
        if exceeding_usd_month is not None:
            nearest_bindings.append(
                _relaxation(
                    "buy.budget",
                    f"{exceeding_usd_month:,.0f} USD/month",
                    exceeding_usd_month,
                    None,
                )
            )
        return Solution(
            status="infeasible",
            pools=(),
            predictions={},
            bindings=tuple(nearest_bindings),
            alternatives=(),
            bill=None,
            warnings=(),
            week=workspace.scheduled_week(spec),
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=len(self.catalog.offers),
        )


_WorkspaceChoice: TypeAlias = "tuple[Decimal, tuple[str, ...], Offer, str]"


def _relaxation(
    constraint: str,
    relax_to: str,
    usd_month: Decimal,
    fleet: FleetSummary | None,
) -> BindingLimit:
    return BindingLimit(
        constraint=constraint,
        slack=None,
        relax_to=relax_to,
        saves_usd=None,
        usd=usd_month,
        fleet=fleet,
    )


def _first_per_type(
    choices: list[_WorkspaceChoice],
) -> list[_WorkspaceChoice]:
    choice_by_type: dict[str, _WorkspaceChoice] = {}
    for choice in choices:
        choice_by_type.setdefault(choice[2].instance.instance_type, choice)
    return list(choice_by_type.values())


def _confidence_cost(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> ConfidenceCost | None:
    """What meeting the limits with confidence costs over meeting them as often as not."""
    if (
        not requirement.limits
        or requirement.confidence.level <= NO_MARGIN_LEVEL
    ):
        return None
    even_candidates = search.solve(
        replace(
            requirement,
            confidence=replace(requirement.confidence, level=NO_MARGIN_LEVEL),
        ),
        offers,
    ).candidates
    extra_usd_month = (
        selection.bill.total - even_candidates[0].bill.total
        if even_candidates
        else Decimal(0)
    )
    return ConfidenceCost(
        requirement.confidence.level,
        extra_usd_month,
        describe_fleet(even_candidates[0]) if extra_usd_month else None,
    )


def _machine_energy(solution: Solution) -> Energy | None:
    """Energy of all pools in the hours that their machines are paid for.

    Nothing when there is no pool, or when the power of one of them is not known.
    """
    pool_energies = []
    for pool in solution.pools:
        instance = pool.offer.instance
        powered_machine = PoweredMachine(
            provider=instance.provider,
            region=pool.offer.region,
            chip=instance.chip,
            board_count=instance.accelerators * instance.fraction,
            role=pool.role,
        )
        paid_hours = sum(
            bill_line.quantity
            for bill_line in (solution.bill.lines if solution.bill else ())
            if bill_line.pool == pool.name
        )
        pool_energy = machine_energy(
            powered_machine, pool.nodes, Decimal(paid_hours)
        )
        if pool_energy is None:
            return None
        pool_energies.append(pool_energy)
    return sum_energy(pool_energies) if pool_energies else None


def _memory_predictions(
    requirement: workspace.WorkspaceRequirement, offer: Offer
) -> dict[str, BandedPrediction]:
    available_gib = offer.instance.node.memory_gib * offer.instance.accelerators
    if not requirement.total_gib:
        return {}
    accelerator_gib = requirement.total_gib / offer.instance.accelerators
    memory_share = requirement.total_gib / available_gib
    return {
        "memory_gib_per_accelerator": BandedPrediction(
            accelerator_gib,
            accelerator_gib / 1.05,
            accelerator_gib * 1.05,
            "physics",
        ),
        "memory_fraction": BandedPrediction(
            memory_share, memory_share / 1.05, memory_share * 1.05, "physics"
        ),
    }


def _serving_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    selection: ServingCandidate,
    simulation_check: SimulationCheck | None,
) -> tuple[PlanWarning, ...]:
    plan_warnings = [
        PlanWarning(code="assumed-model", message=note)
        for note in requirement.notes
    ]
    if simulation_check is not None and not simulation_check.passed:
        message = "no fleet that was simulated kept every limit: this is the largest of them"
        plan_warnings.append(PlanWarning(code="unverified", message=message))
    if (
        requirement.confidence.correction is not None
        and selection.sizing.replica.correction is None
    ):
        calibration = requirement.confidence.correction
        message = (
            f"the calibration is of {calibration.model} on {calibration.accelerator}: it says "
            "nothing here"
        )
        plan_warnings.append(PlanWarning(code="calibration", message=message))
    if selection.offer.purchase == "spot":
        message = "spot machines can be taken back at short notice, all of them at once"
        plan_warnings.append(
            PlanWarning(code="spot", message=message, place=spec.buy.place)
        )
    return (
        *plan_warnings,
        *_price_warnings(selection.offer, selection.bill.unpriced_lines),
    )


def _price_warnings(
    offer: Offer, unpriced_lines: tuple[str, ...]
) -> tuple[PlanWarning, ...]:
    price_warnings = []
    if offer.confidence == LOW_CONFIDENCE or offer.basis != "observed":
        message = (
            f"the {offer.purchase} price of {offer.instance.instance_type} in {offer.region} is "
            f"{offer.basis}, of {offer.as_of}, with {offer.confidence} confidence"
        )
        price_warnings.append(PlanWarning(code="price", message=message))
    if unpriced_lines:
        message = (
            "no price is known of "
            + ", ".join(unpriced_lines)
            + ": not in the total"
        )
        price_warnings.append(
            PlanWarning(code="price-unknown", message=message)
        )
    return tuple(price_warnings)
