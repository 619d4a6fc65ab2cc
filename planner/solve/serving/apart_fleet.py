"""A service whose prompts are computed by one pool of machines and answered by another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.solve.serving.apart_judge import PARTS, ChainEnd
from planner.solve.serving.bill import pools_bill
from planner.solve.serving.mixed_fleet import billed_pool, pool_candidates
from planner.solve.solution import FleetSummary, joint_summary

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.bill import BilledPool
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.mixed_fleet import PoolKind
    from planner.solve.serving.requirement import ServingRequirement


class ApartFleet(Struct, frozen=True, kw_only=True):
    """The pool of prompts and that of answers, with the bill of both."""

    pools: tuple[BilledPool, BilledPool]
    bill: Bill

    @property
    def candidates(self) -> tuple[ServingCandidate, ...]:
        """Each pool as a fleet; the bill is that of both."""
        return pool_candidates(self.pools, self.bill)

    @property
    def ends(self) -> tuple[ChainEnd, ChainEnd]:
        """The replicas of both pools that carry the peak."""
        prompts, answers = self.pools
        return _end_of(prompts), _end_of(answers)

    @property
    def summary(self) -> FleetSummary:
        """Cloud, region, and the machines of both pools with their numbers."""
        return joint_summary([each.summary for each in self.candidates])


def _end_of(pool: BilledPool) -> ChainEnd:
    sizing = pool.sizing
    return ChainEnd(
        pool.offer,
        sizing.replica,
        sizing.peak_groups * sizing.replicas_per_group,
    )


def part_requirements(
    requirement: ServingRequirement,
) -> tuple[ServingRequirement, ServingRequirement]:
    """Return what the pool of prompts and that of answers have to carry: all requests, each.

    A request needs both, so each has the square root of the availability that is asked for.
    """
    whole = requirement.with_share(1.0)
    prompts, answers = (replace(whole, part=part) for part in PARTS)
    return prompts, answers


def apart_fleet(
    requirements: tuple[ServingRequirement, ServingRequirement],
    kinds: tuple[PoolKind, PoolKind],
    groups: tuple[int, int],
    price_book: PriceBook,
) -> ApartFleet:
    """Return so many groups of each kind, in the first zone that both offers have.

    Caches that cross zones would cost and take longer.
    """
    zones = common_zones(*(kind.offer for kind in kinds))[:1]
    prompts, answers = (
        billed_pool(
            part,
            requirement,
            replace(kind, offer=replace(kind.offer, zones=zones)),
            count,
        )
        for part, requirement, kind, count in zip(
            PARTS, requirements, kinds, groups, strict=True
        )
    )
    pools = (prompts, answers)
    return ApartFleet(pools=pools, bill=pools_bill(pools, price_book))


def common_zones(first: Offer, second: Offer) -> tuple[str, ...]:
    """Return the zones in which there are machines of both offers, in the order of the first."""
    return tuple(zone for zone in first.zones if zone in second.zones)


def share_a_zone(first: Offer, second: Offer) -> bool:
    """Whether machines of both offers may be close to each other; some regions name no zones."""
    if not (first.zones or second.zones):
        return True
    return bool(common_zones(first, second))
