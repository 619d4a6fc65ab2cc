"""From a workspace spec to a solution: the cheapest machine with enough memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.weekly_load import NO_SPARES
from planner.market.public_address import ADDRESS_KEY, takes_public_address
from planner.solve.cause import ANY_VALUE, DEARER, because
from planner.solve.rival import billed_rival
from planner.solve.solution import (
    BandedPrediction,
    BindingLimit,
    FleetSummary,
    PlanWarning,
    SizedPool,
    Solution,
    bought_offer,
    infeasible_solution,
)
from planner.solve.warning import idle_network_warnings, price_warnings
from planner.solve.workspace.requirement import (
    WorkspaceRequirement,
    cheapest_bill,
    scheduled_week,
    workspace_bill,
    workspace_requirement,
    workspace_shortfall,
)
from planner.spec.model import NetworkRule
from planner.spec.network import given_network, has_public_addresses

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.rival import RivalFleet
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Workspace

EPHEMERAL_DISK: Final = PlanWarning(code="disk", reason=because("disk"))
MEMORY_BAND: Final = 1.05  # how far memory of a session may be off, either way


class WorkspaceChoice(Struct, frozen=True):
    """An offer for every user of a workspace, with its bill and what it lacks."""

    offer: Offer
    bill: Bill
    shortfall: Cause | None

    @property
    def rank(self) -> tuple[Decimal, tuple[int, int], tuple[str, ...]]:
        """The documented order: cost, then place in the lists of the spec, then names."""
        return self.bill.total, self.offer.place_rank, self.offer.key


def solve_workspace(
    spec: Workspace, settings: SolveSettings, offer_filter: OfferFilter
) -> Solution:
    """Return the cheapest machine that fits, one for each user."""
    requirement = workspace_requirement(spec)
    choices = sorted(
        (
            WorkspaceChoice(
                offer,
                workspace_bill(spec, offer, settings.catalog.price_book),
                workspace_shortfall(spec, requirement, offer),
            )
            for offer in offer_filter.cheapest()
        ),
        key=lambda choice: choice.rank,
    )
    selection = next(
        (choice for choice in choices if not choice.shortfall), None
    )
    if selection is None or selection.bill.exceeds(spec.buy.budget):
        nearest = (
            _nearest_rules(spec, requirement, offer_filter, settings)
            if selection is None
            else (_nearest_budget(selection.bill),)
        )
        return infeasible_solution(
            nearest,
            week=scheduled_week(spec),
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=len(settings.catalog.offers),
        )
    return Solution(
        status="optimal",
        pools=(_workspace_pool(selection.offer, spec.users),),
        predictions=_memory_predictions(requirement, selection.offer),
        bindings=(),
        alternatives=_alternatives(
            choices, selection, spec.users, settings.alternative_count
        ),
        bill=selection.bill,
        warnings=(
            EPHEMERAL_DISK,
            *idle_network_warnings(
                selection.bill,
                scheduled_week(spec),
                _addressed_bill(spec, selection.offer, settings),
            ),
            *price_warnings(
                selection.offer,
                selection.bill.unpriced_lines,
                spec.buy.budget,
            ),
        ),
        week=scheduled_week(spec),
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
    )


def _addressed_bill(
    spec: Workspace, offer: Offer, settings: SolveSettings
) -> Bill | None:
    """Return the bill of machines with public addresses, None where they may not have them."""
    if (
        has_public_addresses(spec.network)
        or given_network(spec.network) is not None
        or not takes_public_address(offer.instance, spans_nodes=False)
    ):
        return None
    network = replace(spec.network or NetworkRule(), public_addresses=True)
    addressed_spec = replace(spec, network=network)
    return workspace_bill(addressed_spec, offer, settings.catalog.price_book)


def _workspace_pool(offer: Offer, users: int) -> SizedPool:
    """One machine for each user; none is a replica of another."""
    return SizedPool(
        name="workspace",
        **bought_offer(offer, users),
        min_nodes=users,
        nodes_per_group=1,
        replicas=users,
        role="workspace",
        layout=None,
        max_batch=0,
        spares=NO_SPARES,
        context_tokens=0,
        run_window_s=0,
    )


def _alternatives(
    choices: list[WorkspaceChoice],
    selection: WorkspaceChoice,
    users: int,
    alternative_count: int,
) -> tuple[RivalFleet, ...]:
    """The next dearer machine types that fit, and the dearest of the cheaper ones that do not."""
    selected_type = selection.offer.instance.instance_type
    pricier_choices = _first_of_each_type(
        choice
        for choice in choices
        if not choice.shortfall
        and choice.offer.instance.instance_type != selected_type
    )
    cheaper_choices = _first_of_each_type(
        choice
        for choice in choices
        if choice.shortfall and choice.bill.total < selection.bill.total
    )
    shown_choices = [
        *pricier_choices[:alternative_count],
        *cheaper_choices[-alternative_count:],
    ]
    return tuple(
        billed_rival(
            choice.offer, users, choice.bill, choice.shortfall or DEARER
        )
        for choice in shown_choices
    )


def _first_of_each_type(
    choices: Iterable[WorkspaceChoice],
) -> list[WorkspaceChoice]:
    choice_by_type: dict[str, WorkspaceChoice] = {}
    for choice in choices:
        choice_by_type.setdefault(choice.offer.instance.instance_type, choice)
    return list(choice_by_type.values())


def _nearest_rules(
    spec: Workspace,
    requirement: WorkspaceRequirement,
    offer_filter: OfferFilter,
    settings: SolveSettings,
) -> tuple[BindingLimit, ...]:
    """The rules of the spec that alone keep every machine that fits out."""
    nearest = []
    for rule in offer_filter.offer_rules:
        # The others are no wishes of the spec: what nobody can build is no advice.
        if not rule.key.startswith(("where.", "buy", ADDRESS_KEY)):
            continue
        relaxed_spec = spec
        if rule.key == ADDRESS_KEY and spec.network is not None:
            relaxed_spec = replace(
                spec, network=replace(spec.network, public_addresses=False)
            )
        sufficient_offers = [
            offer
            for offer in offer_filter.cheapest(rule.key)
            if not workspace_shortfall(spec, requirement, offer)
        ]
        if not sufficient_offers:
            continue
        cheapest_offer, bill = cheapest_bill(
            relaxed_spec, sufficient_offers, settings.catalog.price_book
        )
        fleet = FleetSummary(
            cheapest_offer.provider,
            cheapest_offer.region,
            cheapest_offer.instance.instance_type,
            spec.users,
        )
        nearest.append(
            BindingLimit(
                constraint=rule.key,
                slack=None,
                relax_to=ANY_VALUE,
                saves_usd=None,
                usd=bill.total,
                fleet=fleet,
                unpriced=bill.unpriced_lines,
            )
        )
    return tuple(nearest)


def _nearest_budget(bill: Bill) -> BindingLimit:
    return BindingLimit(
        constraint="buy.budget",
        slack=None,
        relax_to=because("usd-month-at-least", value_usd=bill.monthly_usd),
        saves_usd=None,
        usd=bill.total,
        fleet=None,
        unpriced=bill.unpriced_lines,
    )


def _memory_predictions(
    requirement: WorkspaceRequirement, offer: Offer
) -> dict[str, BandedPrediction]:
    if not requirement.total_gib:
        return {}
    accelerator_gib = requirement.total_gib / offer.instance.accelerators
    available_gib = offer.instance.node.memory_gib * offer.instance.accelerators
    memory_share = requirement.total_gib / available_gib
    return {
        "memory_gib_per_accelerator": _banded(accelerator_gib),
        "memory_fraction": _banded(memory_share),
    }


def _banded(amount: float) -> BandedPrediction:
    return BandedPrediction(
        amount, amount / MEMORY_BAND, amount * MEMORY_BAND, "physics"
    )
