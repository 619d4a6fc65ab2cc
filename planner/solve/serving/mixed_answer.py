"""The answer where a service has two pools of machines, or one whose hours are its own."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.market.bought import CommitmentSaving
from planner.market.mix import without_commitment
from planner.market.owned import OwnedUse, paid_machines
from planner.market.regret import Regret
from planner.market.term import TERM_OF, TERM_PURCHASES
from planner.solve.serving.apart_fleet import ApartFleet
from planner.solve.serving.class_warning import class_warnings
from planner.solve.serving.commitment import commitment_options, owned_uses
from planner.solve.serving.effort import PLAN_STEPS, Effort
from planner.solve.serving.load_curve import load_curve
from planner.solve.serving.mixed_fleet import pool_candidates
from planner.solve.serving.own_hours import cheapest_by_hours
from planner.solve.serving.pool_answer import (
    choice_warnings,
    serving_pool,
    serving_warnings,
    simulation_check_of,
)
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.quiet_hours import quiet_hour_warnings
from planner.solve.serving.reason import asked_confidence, find_reasons
from planner.solve.serving.token_volume import token_volume
from planner.solve.serving.unused_spot import unused_spot_warnings
from planner.solve.solution import (
    BandedPrediction,
    JudgedPool,
    SimulationCheck,
    Solution,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from planner.market.offer import Catalog
    from planner.perf.serving.correction import Correction
    from planner.solve.rival import RivalFleet
    from planner.solve.serving.bill import BilledPool
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.fleet_finder import FleetFinder
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import PlanWarning, SizedPool
    from planner.spec.model import Batch, Inference

# Each pool, and what it is as a fleet.
PoolCandidates: TypeAlias = "list[tuple[BilledPool, ServingCandidate]]"
# Of both pools together; of everything else the worse one counts.
SUMMED_METRICS: Final = ("output_tokens_per_s", "requests_per_s")


def mixed_solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    requirement: ServingRequirement,
    *,
    fleet: MixedFleet,
    rivals: tuple[RivalFleet, ...],
) -> Solution:
    """Return the answer with two pools, or with one that has hours of its own.

    They cost less than one pool whose hours have a share of its peak; `rivals` are other fleets.
    Every request keeps the limits on the machine that it comes to, so all of them do. What is
    predicted is that of the pool, and of the hour, in which it is worse.
    """
    search = finder.search
    asked = [
        *zip(fleet.asked, pool_candidates(fleet.asked, fleet.bill), strict=True)
    ]
    judged = [*_judged(search, asked)]
    predictions = _joined_predictions(
        (each.predictions for each in judged), requirement, fleet
    )
    return pools_solution(
        spec,
        settings,
        finder,
        requirement,
        fleet=fleet,
        answer=PoolsAnswer(
            rivals=rivals,
            pools=tuple(
                _sized_pools(fleet, search, judged if fleet.classes else ())
            ),
            predictions=predictions,
            check=_joined_checks(
                (each.check for each in judged), has_hours=bool(fleet.hours)
            ),
            warnings=(
                *class_warnings(spec, fleet),
                *_unused_spot(spec, finder, requirement, fleet),
                *_quiet_hours(search, fleet),
            ),
        ),
    )


class PoolsAnswer(Struct, frozen=True, kw_only=True):
    """What pools do together, how that was judged, and other fleets."""

    rivals: tuple[RivalFleet, ...]
    pools: tuple[SizedPool, ...]
    predictions: dict[str, BandedPrediction]
    check: SimulationCheck | None
    warnings: tuple[PlanWarning, ...]


def pools_solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    requirement: ServingRequirement,
    *,
    fleet: MixedFleet | ApartFleet,
    answer: PoolsAnswer,
) -> Solution:
    """Return the solution of two pools, or of one that has hours of its own."""
    search, offer_filter = finder.search, finder.offer_filter
    candidates = _billed_candidates(fleet)
    check = answer.check
    is_undecided = check is not None and check.verdict == "undecided"
    return Solution(
        status="feasible" if is_undecided else "optimal",
        pools=answer.pools,
        predictions=answer.predictions,
        bindings=(),
        alternatives=answer.rivals,
        bill=fleet.bill,
        warnings=(
            *_warnings(spec, search, candidates, is_undecided=is_undecided),
            *choice_warnings(
                spec,
                requirement,
                tuple(pool.sizing.layout for pool in fleet.pools),
            ),
            *answer.warnings,
        ),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
        confidence_cost=asked_confidence(requirement),
        simulation_check=check,
        calibration=_correction(fleet),
        token_volume=token_volume(requirement, answer.predictions, fleet.bill),
        commitments=_joined_commitments(
            commitment_options(
                asked, candidate, settings.catalog, settings.futures
            )
            for asked, candidate in _uncommitted(
                finder, requirement, fleet, settings.catalog
            )
        ),
        owned=tuple(_owned(spec, settings, candidates)),
        find_reasons=partial(
            find_reasons,
            requirement,
            finder,
            candidates[0][1],
            settings.run_all,
            fleet=fleet,
        ),
        find_load_curve=partial(load_curve, requirement, fleet.pools[0].sizing)
        if len(fleet.pools) == 1
        else None,
    )


def _judged(
    search: ServingSearch, candidates: PoolCandidates
) -> Iterator[JudgedPool]:
    """Yield what each pool does with its requests."""
    for pool, candidate in candidates:
        yield JudgedPool(
            predict_serving(pool.requirement, pool.sizing),
            simulation_check_of(pool.requirement, search, candidate),
        )


def _sized_pools(
    fleet: MixedFleet, search: ServingSearch, judged: Sequence[JudgedPool]
) -> Iterator[SizedPool]:
    """Yield the pools; what each does is told where it gets requests of some lengths.

    With random shares of the same requests they differ in nothing that matters.
    """
    unsaid = (None,) * len(fleet.pools)
    for (pool, candidate), weight, requests, pool_judged in zip(
        _billed_candidates(fleet),
        fleet.weights,
        fleet.classes or unsaid,
        judged or unsaid,
        strict=True,
    ):
        sized = serving_pool(
            pool.requirement,
            search,
            candidate,
            name=pool.name,
            weight=weight,
            requests=requests,
            judged=pool_judged,
        )
        yield (
            replace(sized, week=pool.requirement.week) if fleet.hours else sized
        )


def _correction(fleet: MixedFleet | ApartFleet) -> Correction | None:
    """Return what a benchmark taught of the first pool that it says something of."""
    corrections = (pool.sizing.replica.correction for pool in fleet.pools)
    return next((each for each in corrections if each is not None), None)


def _billed_candidates(fleet: MixedFleet | ApartFleet) -> PoolCandidates:
    """Return each pool with what it is as a fleet; the bill is that of both."""
    return [*zip(fleet.pools, fleet.candidates, strict=True)]


def _uncommitted(
    finder: FleetFinder,
    requirement: ServingRequirement,
    fleet: MixedFleet | ApartFleet,
    catalog: Catalog,
) -> list[tuple[ServingRequirement, ServingCandidate]]:
    """Return what each pool has to do and is, in the hours that it would have on demand.

    What is committed to stands in quiet hours too, where on demand nobody would pay for it.
    Nothing where these machine types cannot be had on demand.
    """
    if (
        isinstance(fleet, ApartFleet)
        or not fleet.hours
        or not any(map(_is_committed, fleet.pools))
    ):
        return _asked_candidates(fleet)
    on_demand = [
        catalog.offers_by_place[pool.offer.key[:3]].get("on_demand")
        for pool in fleet.pools
    ]
    offers = [
        without_commitment(pool.offer, plain)
        for pool, plain in zip(fleet.pools, on_demand, strict=True)
        if plain is not None
    ]
    # A region may sell commitments to a machine type alone.
    if len(offers) < len(fleet.pools):
        return []
    hours = finder.hours_of(requirement)
    if len(offers) > 1:
        pair = hours.cheapest_pair(offers, math.inf, Effort(PLAN_STEPS))
        return [] if pair is None else _asked_candidates(pair)
    alone = finder.search.solve(requirement, offers, tells_why=False).best
    by_hours = cheapest_by_hours(hours, alone, offers)
    if by_hours is not None:
        return _asked_candidates(by_hours)
    return [] if alone is None else [(requirement, alone)]


def _is_committed(pool: BilledPool) -> bool:
    return any(purchase in TERM_PURCHASES for purchase in pool.offer.purchases)


def _asked_candidates(
    fleet: MixedFleet | ApartFleet,
) -> list[tuple[ServingRequirement, ServingCandidate]]:
    """Return what each pool has to do, and what it is as a fleet."""
    return [
        (pool.requirement, candidate)
        for pool, candidate in _billed_candidates(fleet)
    ]


def _joined_predictions(
    predicted: Iterable[dict[str, BandedPrediction]],
    requirement: ServingRequirement,
    fleet: MixedFleet,
) -> dict[str, BandedPrediction]:
    """Return what holds for both pools: the sum of their rates, the worse of all else.

    Requests that may come to either pool count once: rates are those of all that arrive.
    """
    # Above the rate of arrivals where some requests may come to either pool.
    counted_rps = sum(pool.requirement.load.rate_per_s for pool in fleet.asked)
    once = requirement.load.rate_per_s / counted_rps
    parts = [*predicted]
    return {
        metric: _summed(each, once)
        if metric in SUMMED_METRICS
        else max(each, key=lambda prediction: prediction.value)
        for metric in parts[0]
        for each in [[part[metric] for part in parts]]
    }


def _summed(parts: Sequence[BandedPrediction], once: float) -> BandedPrediction:
    """Return the sum of rates of which each request counts once."""
    return BandedPrediction(
        once * sum(part.value for part in parts),
        once * sum(part.low for part in parts),
        once * sum(part.high for part in parts),
        parts[0].basis,
    )


def _joined_checks(
    pool_checks: Iterable[SimulationCheck | None], *, has_hours: bool
) -> SimulationCheck | None:
    """Return how the pools were judged together; of each percentile the worse one counts.

    How many groups formulas would take is not known of pools that have hours of their own.
    """
    checks = [check for check in pool_checks if check is not None]
    if not checks:
        return None
    bands = {
        metric: max(check.percentile_bands[metric] for check in checks)
        for metric in checks[0].percentile_bands
    }
    verdicts = {check.verdict for check in checks}
    return replace(
        checks[0],
        request_count=sum(check.request_count for check in checks),
        batch_count=sum(check.batch_count for check in checks),
        decode_factor=max(check.decode_factor for check in checks),
        prefill_factor=max(check.prefill_factor for check in checks),
        added_groups=0
        if has_hours
        else sum(check.added_groups for check in checks),
        percentile_bands=bands,
        verdict="undecided" if "undecided" in verdicts else "holds",
    )


def _joined_commitments(
    options: Iterable[Iterable[CommitmentSaving]],
) -> tuple[CommitmentSaving, ...]:
    """Return what a commitment to the machines of both pools saves, of each term.

    pays after = committed USD of the term / (committed USD a month + saved USD a month)
    """
    by_purchase: dict[str, list[CommitmentSaving]] = {}
    for option in itertools.chain.from_iterable(options):
        by_purchase.setdefault(option.purchase, []).append(option)
    return tuple(
        _joined_commitment(purchase, parts)
        for purchase, parts in by_purchase.items()
    )


def _joined_commitment(
    purchase: str, parts: list[CommitmentSaving]
) -> CommitmentSaving:
    committed_usd = sum((part.committed_usd for part in parts), Decimal(0))
    saved_usd = sum((part.saved_usd for part in parts), Decimal(0))
    month_usd = committed_usd / TERM_OF[purchase].months
    forms = {part.form for part in parts}
    return CommitmentSaving(
        cloud=parts[0].cloud,
        form=forms.pop() if len(forms) == 1 else "",
        purchase=purchase,
        nodes=sum(part.nodes for part in parts),
        saved_usd=saved_usd,
        committed_usd=committed_usd,
        pays_after_months=float(committed_usd / (month_usd + saved_usd)),
        pays_above_hours=max(part.pays_above_hours for part in parts),
        regrets=tuple(
            Regret(
                same[0].scenario,
                sum((regret.usd for regret in same), Decimal(0)),
            )
            for same in zip(*(part.regrets for part in parts), strict=True)
        ),
    )


def _unused_spot(
    spec: Inference | Batch,
    finder: FleetFinder,
    requirement: ServingRequirement,
    fleet: MixedFleet,
) -> Iterator[PlanWarning]:
    """Yield why one pool is not on spot, where it could be."""
    if len(fleet.pools) == 1:
        yield from unused_spot_warnings(
            spec,
            requirement,
            finder.offer_filter.cheapest(),
            fleet.candidates[0],
        )


def _quiet_hours(
    search: ServingSearch, fleet: MixedFleet
) -> Iterator[PlanWarning]:
    """Yield the quiet hours of pools that miss a limit, where they have a share of the peak."""
    if not fleet.hours:
        for pool in fleet.pools:
            yield from quiet_hour_warnings(
                pool.requirement, pool.sizing, search.judge
            )


def _warnings(
    spec: Inference | Batch,
    search: ServingSearch,
    candidates: PoolCandidates,
    *,
    is_undecided: bool,
) -> tuple[PlanWarning, ...]:
    """Return what to know of either pool, each thing once."""
    warnings: list[PlanWarning] = []
    for pool, candidate in candidates:
        for warning in serving_warnings(
            spec,
            pool.requirement,
            search,
            candidate,
            is_undecided=is_undecided,
        ):
            if warning not in warnings:
                warnings.append(warning)
    return tuple(warnings)


def _owned(
    spec: Inference | Batch, settings: SolveSettings, candidates: PoolCandidates
) -> Iterator[OwnedUse]:
    """Yield what is owned, each with the share of it that the pool of its type uses."""
    owned = paid_machines(spec, settings.catalog, settings.read_file)
    uses = [
        use
        for pool, candidate in candidates
        for use in owned_uses(pool.requirement, candidate, owned)
    ]
    for machines in owned:
        shares = [use.used_share for use in uses if use.machines is machines]
        # What an account has of other types is told by neither pool.
        if shares:
            yield OwnedUse(machines, max(shares))
