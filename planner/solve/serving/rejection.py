"""Offers without a fleet: the nearest layout of each, and the limit that it misses."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.market.capacity import fleet_limit, quota_limit
from planner.solve.cause import because
from planner.solve.cloud_rule import GROUP_LIMIT, PROFILE_LIMIT, ExceededLimit
from planner.solve.serving.sizing import (
    ELASTIC,
    ENGINE,
    ONE_ZONE,
    LayoutRejection,
)
from planner.solve.serving.spot_promise import UNKEPT
from planner.units import BYTES_PER_GIB, BYTES_PER_MIB

if TYPE_CHECKING:
    from collections.abc import Container

    from planner.market.offer import Offer
    from planner.solve.cause import Cause
    from planner.solve.serving.sizing import FleetSizing

# Lower bound of the cost in USD a month, offer, missed limit, nodes behind the bound.
RejectedLayout: TypeAlias = "tuple[float, Offer, LayoutRejection, int]"

# Constraint of a fleet that takes more nodes on spot than are known to be had.
CAPACITY: Final = "capacity"
# Constraint of a fleet that takes more nodes than the quotas of an account leave.
QUOTA: Final = "quota"
RESERVED: Final = "buy.reservations"
# What ranks a layout behind all others, whatever these miss.
FAR: Final = 1e6


class ServingRejection(Struct, frozen=True, kw_only=True):
    """The layout of an offer that comes nearest to the limits without meeting them.

    `rejection`  the limit that it misses
    `nodes`  nodes behind the cost bound
    `usd_month`  lower bound of the cost of the layout, USD a month
    """

    offer: Offer
    rejection: LayoutRejection
    nodes: int
    usd_month: Decimal


def offer_rejections(
    rejected_layouts: list[RejectedLayout],
    feasible_purchases: Container[tuple[str, str, str]],
) -> tuple[ServingRejection, ...]:
    """Return the nearest layout of each machine type and purchase without a fleet.

    `feasible_purchases` are those with a fleet: provider, machine type, purchase option.
    """
    nearest_layouts: dict[
        tuple[str, str, str], tuple[float, ServingRejection]
    ] = {}
    for bound_usd, offer, rejection, node_count in rejected_layouts:
        purchase_key = (
            offer.provider,
            offer.instance.instance_type,
            offer.purchase,
        )
        # Another layout of this machine type met the limits.
        if purchase_key in feasible_purchases:
            continue
        limit_excess = rejection.distance + (
            # A layout that does not fit ranks behind every slow one.
            FAR if rejection.constraint == "memory" else 0.0
        )
        if rejection.breaks_rule:
            # More memory would not be enough.
            limit_excess += FAR
        if (
            purchase_key not in nearest_layouts
            or limit_excess < nearest_layouts[purchase_key][0]
        ):
            usd_month = Decimal(str(round(bound_usd, 2)))
            rejected_offer = ServingRejection(
                offer=offer,
                rejection=rejection,
                nodes=node_count,
                usd_month=usd_month,
            )
            nearest_layouts[purchase_key] = (limit_excess, rejected_offer)
    return tuple(
        sorted(
            (rejected_offer for _, rejected_offer in nearest_layouts.values()),
            key=lambda ranked_offer: (
                ranked_offer.usd_month,
                ranked_offer.offer.key,
            ),
        )
    )


def nearest_rejected(
    rejected_offers: tuple[ServingRejection, ...],
    ceiling_usd: Decimal,
    max_count: int,
) -> list[ServingRejection]:
    """Return the rejected offers nearest to their limit, one for each accelerator.

    Nearest is the smallest distance to a limit. Only offers below `ceiling_usd`, in USD a month,
    count.
    """
    seen_accelerators: set[str] = set()
    nearest_offers: list[ServingRejection] = []
    ranked_offers = sorted(
        (
            rejected_offer
            for rejected_offer in rejected_offers
            # `usd_month` is a lower bound: a dearer bound explains nothing.
            if rejected_offer.usd_month < ceiling_usd
        ),
        key=lambda rejected_offer: (
            rejected_offer.rejection.distance,
            rejected_offer.usd_month,
            rejected_offer.offer.key,
        ),
    )
    for nearest_offer in ranked_offers:
        if (
            # Sizes of one accelerator miss a limit for the same reason.
            nearest_offer.offer.instance.accelerator not in seen_accelerators
            and len(nearest_offers) < max_count
        ):
            seen_accelerators.add(nearest_offer.offer.instance.accelerator)
            nearest_offers.append(nearest_offer)
    return nearest_offers


def within_capacity(
    offer: Offer, sizing: FleetSizing | LayoutRejection
) -> FleetSizing | LayoutRejection:
    """Return the sizing, or its rejection for more nodes than are reserved, or are to be had."""
    node_limit = fleet_limit(offer)
    if (
        node_limit is None
        or isinstance(sizing, LayoutRejection)
        or sizing.nodes <= node_limit
    ):
        return sizing
    return LayoutRejection(
        layout=sizing.layout,
        constraint=capacity_constraint(offer),
        reached=sizing.nodes,
        limit=node_limit,
    )


def capacity_constraint(offer: Offer) -> str:
    """Return what limits its machines: what is reserved, a quota, or what is to be had."""
    if offer.reservation is not None:
        return RESERVED
    quota = quota_limit(offer)
    return CAPACITY if quota is None or quota != fleet_limit(offer) else QUOTA


def rejection_reason(rejection: LayoutRejection) -> Cause:
    """Return the limit that a layout misses, in terms of the spec."""
    if rejection.constraint == "memory":
        return _memory_reason(rejection.reached, rejection.limit)
    if rejection.constraint in (
        GROUP_LIMIT,
        PROFILE_LIMIT,
        CAPACITY,
        QUOTA,
        RESERVED,
        ONE_ZONE,
        ELASTIC,
        ENGINE,
        UNKEPT,
    ):
        return _cloud_reason(rejection)
    if rejection.groups is not None:
        return _busy_reason(rejection)
    # Infinite: the search reached its largest number of groups.
    if rejection.reached == math.inf:
        return because("unreachable", rejection.constraint)
    # Idle latency or start-up time, which more machines cannot reduce.
    return because(
        "idle-time",
        rejection.constraint,
        reached_s=rejection.reached,
        limit_s=rejection.limit,
    )


def _memory_reason(needed_gib: float, limit_gib: float) -> Cause:
    """Return how much memory is lacking, so that what is needed reads as more than there is."""
    if round(needed_gib) > round(limit_gib):
        return because(
            "memory", "memory", needed_gib=needed_gib, limit_gib=limit_gib
        )
    # Rounded to GiB the two would be equal.
    short_bytes = (needed_gib - limit_gib) * BYTES_PER_GIB
    return because(
        "memory-close",
        "memory",
        short_mib=math.ceil(short_bytes / BYTES_PER_MIB),
        limit_gib=limit_gib,
    )


def _cloud_reason(rejection: LayoutRejection) -> Cause:
    """Return what a cloud does not build or have."""
    if rejection.constraint == ONE_ZONE:
        return because("one-zone", "sla.survives")
    if rejection.constraint == UNKEPT:
        return because(
            "availability",
            UNKEPT,
            reached=rejection.reached,
            wanted=rejection.limit,
        )
    if rejection.constraint == ELASTIC:
        return because("elastic-span", "elastic", nodes=int(rejection.reached))
    if rejection.constraint == ENGINE:
        return because("engine-span", ENGINE, nodes=int(rejection.reached))
    if rejection.constraint in (CAPACITY, QUOTA, RESERVED):
        return _machine_reason(rejection)
    return ExceededLimit(
        rejection.constraint, int(rejection.reached), int(rejection.limit)
    ).reason


def _machine_reason(rejection: LayoutRejection) -> Cause:
    """Return why fewer machines are to be had than are needed."""
    machines = int(rejection.limit)
    if rejection.constraint == CAPACITY:
        return because("capacity", "buy.spot", machines=machines)
    needed = int(rejection.reached)
    if rejection.constraint == QUOTA:
        return because("quota", QUOTA, reached=needed, machines=machines)
    return because("reserved", RESERVED, reached=needed, machines=machines)


def _busy_reason(rejection: LayoutRejection) -> Cause:
    """Return what so many groups miss at the peak."""
    if rejection.constraint == "rate":
        return because("overload", "traffic")
    if rejection.is_undecided:
        return because(
            "peak-undecided",
            rejection.constraint,
            reached_s=rejection.reached,
            limit_s=rejection.limit,
        )
    return because(
        "peak-time",
        rejection.constraint,
        reached_s=rejection.reached,
        limit_s=rejection.limit,
    )
