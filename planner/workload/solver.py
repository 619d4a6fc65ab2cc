"""The one entrance to solving, whatever the kind of workload. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.errors import MissingError, Problem, SpecError, TonnageError
from planner.facts.accelerator import is_named
from planner.market.block import block_offer
from planner.market.mix import mixed_offers
from planner.market.offer import (
    COMMITTED_MIX,
    FLEX_PURCHASE,
    MIXED_PURCHASE,
    OWNED_MIX,
    RESERVED_PURCHASE,
    group_offers,
)
from planner.market.offer_filter import (
    OfferFilter,
    allowed_purchases,
    allowed_terms,
    place_order,
    spec_rules,
)
from planner.market.owned import owned_machines, paid_machines
from planner.market.slice import slice_offers
from planner.market.spot_age import with_deciding_spot
from planner.market.term import TERM_PURCHASES
from planner.solve.cause import because
from planner.solve.energy import solution_energy
from planner.solve.solution import Counterfactual, FleetSummary
from planner.spec.model import Inference, Training
from planner.suggest import did_you_mean
from planner.workload.open_choice import (
    cheapest_answer,
    cheapest_counterfactual,
    open_choice,
)
from planner.workload.registry import workload_of
from planner.workload.stand_in import with_stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.market.offer import Catalog, Offer
    from planner.market.owned import OwnedMachines
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
    from planner.spec.model import Spec

# The mixes of a service: what ends has no hours of the week, by which it would use a commitment
# or what is owned.
SERVICE_MIXES: Final = {COMMITTED_MIX, MIXED_PURCHASE, OWNED_MIX}


def check(spec: Spec, read_file: Callable[[str], bytes]) -> None:
    """Raise SpecError with all that `solve` refuses in a spec, whatever is on offer.

    `read_file` opens files beside the spec.
    """
    problems = _runtime_problems(spec)
    try:
        workload_of(spec).check(spec, read_file)
        owned_machines(spec, read_file)
    except TonnageError as refusal:
        problems += refusal.problems
    if problems:
        raise SpecError(*problems)


def solve(spec: Spec, settings: SolveSettings) -> Solution:
    """Return the cheapest fleet that meets a spec and what each wish costs, or why there is none.

    Raises SpecError when the spec asks for a runtime that cannot be built.
    """
    return find(spec, settings).explained()


def find(spec: Spec, settings: SolveSettings) -> Solution:
    """Return what `solve` returns; what each wish of the spec costs may still be to plan."""
    runtime_problems = _runtime_problems(spec)
    if runtime_problems:
        raise SpecError(*runtime_problems)
    choice = open_choice(spec)
    if choice is not None:
        return cheapest_answer(choice, partial(find, settings=settings))
    offer_filter = _offer_filter(spec, settings)
    solution = with_stand_ins(
        spec,
        offer_filter,
        workload_of(spec).solve(spec, settings, offer_filter),
    )
    return replace(solution, energy=solution_energy(solution))


def _runtime_problems(spec: Spec) -> list[Problem]:
    if spec.runtime == "vm":
        return []
    return [
        Problem(
            code="unsupported",
            message=f"runtime {spec.runtime} cannot be built yet",
            place=spec.place,
            next_step="use runtime: vm",
        )
    ]


def what_if(
    spec: Spec, settings: SolveSettings, factor: float
) -> Counterfactual:
    """Return the fleet for so many times the load of a spec."""
    choice = open_choice(spec)
    if choice is not None:
        return cheapest_counterfactual(
            choice, partial(what_if, settings=settings, factor=factor)
        )
    return workload_of(spec).scale(
        spec, settings, _offer_filter(spec, settings), factor
    )


def why_not(
    spec: Spec, settings: SolveSettings, pattern: str
) -> list[Counterfactual]:
    """Say for every machine type that matches what keeps it from being chosen.

    First the rules that exclude it, then what it lacks or misses, then its price. Raises
    MissingError when no machine type matches.
    """
    offers_by_type: dict[tuple[str, str], list[Offer]] = {}
    for offer in settings.catalog.offers:
        if _matches_pattern(offer, pattern):
            machine_key = (offer.provider, offer.instance.instance_type)
            offers_by_type.setdefault(machine_key, []).append(offer)
    if not offers_by_type:
        raise MissingError(
            Problem(
                code="offer",
                message=f"no machine type matches '{pattern}'",
                next_step=did_you_mean(
                    pattern,
                    {
                        offer.instance.instance_type
                        for offer in settings.catalog.offers
                    },
                    otherwise="run: tonnage offers --limit 1000",
                ),
            )
        )
    return [
        _explain_type(spec, settings, offers)
        for _, offers in sorted(offers_by_type.items())
    ]


def _offer_filter(spec: Spec, settings: SolveSettings) -> OfferFilter:
    catalog = settings.catalog
    owned = paid_machines(spec, catalog, settings.read_file)
    return OfferFilter(
        settings.memory.get(_KnownGroups, _KnownGroups).of(
            spec, catalog, owned
        ),
        spec_rules(
            spec,
            settings.unbuilt_reason,
            resumes=workload_of(spec).resumes,
            owns=bool(owned),
        ),
        place_order(spec),
        counts_reclaims=_counts_reclaims(spec),
        counts_zones=_counts_zones(spec),
    )


def _counts_zones(spec: Spec) -> bool:
    """Whether a zone may fail: over how many they are spread says how many machines stand by."""
    return (
        isinstance(spec, Inference)
        and spec.sla is not None
        and spec.sla.survives == "zone"
    )


def _counts_reclaims(spec: Spec) -> bool:
    """Whether a spec promises a share of the time, in which machines on spot may be away."""
    return (
        isinstance(spec, Inference)
        and spec.sla is not None
        and spec.sla.availability is not None
    )


class _KnownGroups:
    """What specs may choose from, where the last one bought in the same ways from a catalog."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._groups: dict[object, tuple[tuple[Offer, ...], ...]] = {}

    def of(
        self, spec: Spec, catalog: Catalog, owned: tuple[OwnedMachines, ...]
    ) -> tuple[tuple[Offer, ...], ...]:
        """Return what a spec may choose from, by machine type and purchase."""
        if catalog is not self._catalog:
            self._catalog, self._groups = catalog, {}
        buy = spec.buy
        ways = (
            type(spec),
            # A commitment that outlasts the time to live is none of them.
            allowed_purchases(spec, resumes=False, owns=bool(owned)),
            *(buy.on_demand_base, buy.block, buy.reserve, buy.flex_start),
            _chooses_spot(spec),
            owned,
        )
        if ways not in self._groups:
            self._groups[ways] = _offer_groups(spec, catalog, owned)
        return self._groups[ways]


def _offer_groups(
    spec: Spec, catalog: Catalog, owned: tuple[OwnedMachines, ...]
) -> tuple[tuple[Offer, ...], ...]:
    """Return what a spec may choose from, by machine type and purchase.

    A mix without spot takes the place of the ways to buy of which it is made: where all machines
    are bought in one way, it is one of them.
    """
    purchases = allowed_purchases(spec, resumes=False, owns=bool(owned))
    catalog = _priced_to_choose(spec, catalog)
    is_service = isinstance(spec, Inference)
    mixes = SERVICE_MIXES if is_service else {MIXED_PURCHASE}
    # What serves a model on TPUs is of one machine.
    slices = (
        tuple(slice_offers(catalog.offers))
        if isinstance(spec, Training)
        else ()
    )
    if not mixes.intersection(purchases):
        own_offers = (*_own_offers(spec, catalog), *slices)
        return (*catalog.offer_groups, *group_offers(own_offers))
    mixed = tuple(
        mixed_offers(
            catalog,
            commitments=allowed_terms(spec) if is_service else (),
            base_share=spec.buy.on_demand_base,
            owned=owned,
        )
    )
    places = {
        offer.key[:3] for offer in mixed if offer.purchase != MIXED_PURCHASE
    }
    others = (
        offer
        for offer in catalog.offers
        if offer.key[:3] not in places
        or offer.purchase not in ("on_demand", *TERM_PURCHASES)
    )
    return group_offers((*others, *mixed, *slices))


def leaves_spot_open(spec: Spec) -> bool:
    """Whether the planner decides how much of a spec is on spot, and not the spec."""
    return _chooses_spot(spec) or spec.buy.on_demand_base == "auto"


def _chooses_spot(spec: Spec) -> bool:
    """Whether the planner decides if all machines of a spec are on spot, and not the spec."""
    resumes = workload_of(spec).resumes
    return spec.buy.spot == "auto" and "spot" in allowed_purchases(
        spec, resumes=resumes
    )


def _priced_to_choose(spec: Spec, catalog: Catalog) -> Catalog:
    """Return a catalog at the prices of spot by which the planner decides for a spec.

    What a spec has decided itself is bought at the price that was found.
    """
    return with_deciding_spot(catalog) if _chooses_spot(spec) else catalog


def _own_offers(spec: Spec, catalog: Catalog) -> list[Offer]:
    """Return what only the specs may buy that ask for it."""
    if spec.buy.block is not None:
        return [block_offer(catalog, spec.buy.block)]
    if spec.buy.reserve:
        # The price of a reservation is that of its machines on demand.
        return [
            replace(offer, purchase=RESERVED_PURCHASE)
            for offer in catalog.offers
            if offer.purchase == "on_demand"
        ]
    return [
        offer
        for offer in catalog.unlisted
        if spec.buy.flex_start and offer.purchase == FLEX_PURCHASE
    ]


def _explain_type(
    spec: Spec, settings: SolveSettings, offers: list[Offer]
) -> Counterfactual:
    instance = offers[0].instance
    machine_type = FleetSummary(
        instance.provider, "", instance.instance_type, 0
    )
    workload = workload_of(spec)
    here = {offer.key for offer in offers}
    priced = _priced_to_choose(spec, settings.catalog)
    choices = [offer for offer in priced.offers if offer.key in here]
    if not choices:
        return Counterfactual(machine_type, None, because("undecided-spot"))
    offer_filter = OfferFilter(
        group_offers(choices),
        spec_rules(spec, settings.unbuilt_reason, resumes=workload.resumes),
        place_order(spec),
        counts_reclaims=_counts_reclaims(spec),
        counts_zones=_counts_zones(spec),
    )
    allowed_offers = offer_filter.cheapest()
    if allowed_offers:
        explain = partial(
            workload.explain_type,
            settings=settings,
            machine_type=machine_type,
            offers=allowed_offers,
        )
        return _cheapest_explained(spec, explain)
    # A type without a stack has a reason of its own, which a table of stacks gives.
    unbuilt = settings.unbuilt_reason(instance)
    if unbuilt is not None:
        return Counterfactual(machine_type, None, because("told", told=unbuilt))
    # The offer with the fewest violations is nearest to the rules.
    violated_rules = min(
        (offer_filter.violations(offer) for offer in choices), key=len
    )
    return Counterfactual(
        machine_type,
        None,
        because("excluded", rules=", ".join(sorted(violated_rules))),
    )


def _cheapest_explained(
    spec: Spec, explain: Callable[[Spec], Counterfactual]
) -> Counterfactual:
    """Return what explains a spec, with whatever it leaves open that costs least."""
    choice = open_choice(spec)
    if choice is None:
        return explain(spec)
    return cheapest_counterfactual(
        choice, partial(_cheapest_explained, explain=explain)
    )


def _matches_pattern(offer: Offer, pattern: str) -> bool:
    """Whether a pattern with * names the machine type or the accelerator of an offer."""
    instance = offer.instance
    return is_named(instance.accelerator, pattern) or fnmatchcase(
        instance.instance_type.lower(), pattern.lower()
    )
