"""Quotas that keep an account from the cheapest fleet, and how they are raised."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta
from msgspec.structs import replace

from planner.market.capacity import quota_purchase
from planner.market.live import (
    QuotaUnit,
    raise_text,
)
from planner.plan.number import plain_money
from planner.plan.part import DocumentPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.market.live import LiveFacts, QuotaFact
    from planner.market.offer_key import OfferKey
    from planner.solve.solution import SizedPool, Solution


class QuotaShortfall(DocumentPart, frozen=True, kw_only=True):
    """A quota that the cheapest fleet needs more of than an account has."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type")]
    nodes: Annotated[int, Meta(description="machines that it has at its peak")]
    usd: Annotated[
        Decimal,
        Meta(description="what that fleet would cost, as the plan's bill"),
    ]
    quota: Annotated[str, Meta(description="the quota as people know it")]
    unit: Annotated[QuotaUnit, Meta(description="what it counts")]
    needed: Annotated[float, Meta(description="what that fleet adds")]
    limit: Annotated[float, Meta(description="what the account may have")]
    used: Annotated[
        float | None, Meta(description="of it; none where nobody says")
    ]
    requested: Annotated[
        float | None,
        Meta(description="a higher limit that is asked for already"),
    ]
    remedy: Annotated[str, Meta(description="how it is raised far enough")]


def without_quotas(facts: LiveFacts) -> LiveFacts:
    """Return what clouds answered, as if an account might have as much as it wanted."""
    return replace(
        facts,
        places=tuple(replace(place, quotas={}) for place in facts.places),
    )


def quota_shortfalls(
    wanted: Solution, facts: LiveFacts, standing: Mapping[OfferKey, int]
) -> tuple[QuotaShortfall, ...]:
    """Return the quotas that do not allow the fleet which would be the cheapest without them."""
    if wanted.bill is None:
        return ()
    total_usd = plain_money(wanted.bill.total)
    return tuple(
        replace(shortfall, usd=total_usd)
        for pool in wanted.pools
        for shortfall in _pool_shortfalls(pool, facts, standing)
    )


def _pool_shortfalls(
    pool: SizedPool, facts: LiveFacts, standing: Mapping[OfferKey, int]
) -> Iterator[QuotaShortfall]:
    instance = pool.instance
    place = facts.place(instance.provider, pool.region)
    if place is None:
        return
    nodes: dict[str, int] = {}
    for part in pool.purchases:
        key = (
            instance.provider,
            pool.region,
            instance.instance_type,
            part.purchase,
        )
        purchase = quota_purchase(part.purchase)
        added = part.nodes - standing.get(key, 0)
        nodes[purchase] = nodes.get(purchase, 0) + added
    for purchase, count in nodes.items():
        answer = place.quotas.get(purchase)
        for quota in (answer.value if answer is not None else None) or ():
            if instance.instance_type not in quota.machine_types:
                continue
            needed = count * (
                instance.vcpu
                if quota.unit == "vcpus"
                else instance.accelerators
            )
            if quota.free is not None and needed > quota.free:
                yield _shortfall(pool, quota, count, float(needed))


def _shortfall(
    pool: SizedPool, quota: QuotaFact, nodes: int, needed: float
) -> QuotaShortfall:
    return QuotaShortfall(
        provider=pool.instance.provider,
        region=pool.region,
        instance_type=pool.instance.instance_type,
        nodes=nodes,
        usd=plain_money(pool.usd_hour),
        quota=quota.name,
        unit=quota.unit,
        needed=needed,
        limit=quota.limit or 0.0,
        used=quota.used,
        requested=quota.requested,
        remedy=raise_text(
            pool.instance.provider,
            pool.region,
            quota,
            (quota.used or 0.0) + needed,
        ),
    )
