"""What clouds answer about an account and a region: quotas, zones, prices and reservations.

These are values. Who asks, when and over which connection is the matter of `providers`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, field

# Stands for what a region has in none of its zones.
NO_ZONE: Final = ""

ValueT_co = TypeVar("ValueT_co", covariant=True)
AnswerState: TypeAlias = Literal["value", "none", "denied", "unknown"]
QuotaUnit: TypeAlias = Literal["vcpus", "accelerators"]


class LiveAnswer(
    Struct, Generic[ValueT_co], frozen=True, kw_only=True, omit_defaults=True
):
    """The answer to one question. What nobody knows is never a zero."""

    state: Annotated[
        AnswerState,
        Meta(
            description="value; none: there is no such thing; denied: a right is missing; "
            "unknown: anything else, such as a service that is busy"
        ),
    ]
    value: Annotated[
        ValueT_co | None, Meta(description="only with that state")
    ] = None
    reason: Annotated[
        str, Meta(description="the right that is missing, or why nobody knows")
    ] = ""
    as_of: Annotated[str, Meta(description="when it was asked, in UTC")]
    request: Annotated[str, Meta(description="what was asked")]


class CallerAnswer(LiveAnswer[str], frozen=True, kw_only=True):
    """Who is signed in."""


class QuotaFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quota of an account in a region, as far as it counts machines."""

    machine_types: Annotated[
        tuple[str, ...],
        Meta(description="those of the question that it counts"),
    ]
    purchase: Annotated[str, Meta(description="on_demand or spot")]
    unit: Annotated[QuotaUnit, Meta(description="what it counts")]
    id: Annotated[str, Meta(description="as its cloud names it")]
    name: Annotated[str, Meta(description="as people know it")]
    limit: Annotated[
        float | None, Meta(description="in the unit; none without a limit")
    ]
    used: Annotated[
        float | None,
        Meta(description="of it; none where the cloud does not say"),
    ]
    requested: Annotated[
        float | None,
        Meta(description="a higher limit that is asked for already"),
    ] = None

    @property
    def free(self) -> float | None:
        """How much of it is left, at least 0; None without a limit."""
        if self.limit is None:
            return None
        return max(0.0, self.limit - (self.used or 0.0))


class QuotaKey(Struct, frozen=True, order=True):
    """A quota of an account, as its cloud names it."""

    cloud: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    purchase: Annotated[str, Meta(description="on_demand or spot")]
    quota: Annotated[str, Meta(description="id of the quota")]


class QuotaCap(Struct, frozen=True, order=True):
    """What a stack may add to a quota: the rest is for others that are planned with it."""

    key: Annotated[QuotaKey, Meta(description="which quota")]
    load: Annotated[
        float,
        Meta(
            description="load of the hours that it is for, over that of the peak: 1 is for the "
            "peak, -1 for hours outside of the schedule"
        ),
    ]
    units: Annotated[float, Meta(description="how much it may add")]


def raise_text(cloud: str, region: str, quota: QuotaFact, wanted: float) -> str:
    """Say how a quota is raised to so much, or that somebody has asked for that already."""
    command = f"tonnage quota request {cloud} {region} {quota.id} {wanted:g}"
    if quota.requested is None:
        return command
    return (
        f"wait: {quota.requested:g} are asked for already; or ask for more: "
        f"{command}"
    )


class QuotaAnswer(LiveAnswer[tuple[QuotaFact, ...]], frozen=True, kw_only=True):
    """Quotas that count machines."""


class ZoneAnswer(
    LiveAnswer[dict[str, tuple[str, ...]]], frozen=True, kw_only=True
):
    """Zones in which an account may have each machine type."""


class PriceAnswer(LiveAnswer[dict[str, Decimal]], frozen=True, kw_only=True):
    """Prices of machine types, USD an hour."""


class SpotPriceAnswer(
    LiveAnswer[dict[str, dict[str, Decimal]]], frozen=True, kw_only=True
):
    """Prices of machine types in zones, USD an hour."""


class ReservationFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machines that an account has reserved and pays for."""

    id: Annotated[str, Meta(description="as a spec names it")]
    machine_type: Annotated[str, Meta(description="machine type")]
    zone: Annotated[str, Meta(description="zone; empty without one")]
    machines: Annotated[int, Meta(description="how many are reserved")]
    free: Annotated[int, Meta(description="of them those that nothing runs on")]
    ends: Annotated[
        str, Meta(description="when it ends, in UTC; empty without an end")
    ] = ""
    is_named: Annotated[
        bool, Meta(description="whether only who names it gets its machines")
    ] = False


class ReservationAnswer(
    LiveAnswer[tuple[ReservationFact, ...]], frozen=True, kw_only=True
):
    """What an account pays for already."""


CommitmentUnit: TypeAlias = Literal["machines", "accelerators", "usd_hour"]


class CommitmentFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an account has bought for a term and pays for in every hour, used or not."""

    id: Annotated[str, Meta(description="as its cloud names it")]
    name: Annotated[str, Meta(description="what its cloud calls such a thing")]
    unit: Annotated[
        CommitmentUnit, Meta(description="of the amount: what it pays for")
    ]
    amount: Annotated[Decimal, Meta(description="in every hour, in the unit")]
    takes: Annotated[
        dict[str, Decimal],
        Meta(
            description="what a machine takes of it, of each type of the question that it pays for"
        ),
    ]
    usd_hour: Annotated[
        Decimal | None,
        Meta(
            description="all of it, USD an hour; none where its cloud does not say"
        ),
    ]
    term: Annotated[
        str, Meta(description="the way to buy; empty where none is as long")
    ] = ""
    zone: Annotated[
        str, Meta(description="the only one it counts in; else empty")
    ] = ""
    ends: Annotated[
        str, Meta(description="when it ends, in UTC; empty without an end")
    ] = ""


class CommitmentAnswer(
    LiveAnswer[tuple[CommitmentFact, ...]], frozen=True, kw_only=True
):
    """What an account has committed to that pays for the machine types of the question."""


class ReclaimFact(Struct, frozen=True, kw_only=True):
    """Machines of an account on spot, and how many of them its cloud took back."""

    reclaims: Annotated[float, Meta(description="machines taken back")]
    machine_hours: Annotated[float, Meta(description="in which some ran")]


class ReclaimAnswer(
    LiveAnswer[dict[str, ReclaimFact]], frozen=True, kw_only=True
):
    """What happened to an account's own machines on spot, by their type."""


class RegionAnswer(LiveAnswer[tuple[str, ...]], frozen=True, kw_only=True):
    """Regions in which an account has commitments that pay there alone."""


class UsedAnswer(LiveAnswer[dict[str, Decimal]], frozen=True, kw_only=True):
    """What is used of commitments in an hour, each by its id in its unit."""


class PlaceFacts(Struct, frozen=True, kw_only=True):
    """What a cloud answers about a region, for the machine types that were asked about."""

    cloud: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    quotas: Annotated[
        dict[str, QuotaAnswer],
        Meta(description="by purchase: on_demand, spot"),
    ]
    zones: Annotated[
        ZoneAnswer,
        Meta(
            description="of each machine type; none where the account may not have it"
        ),
    ]
    on_demand_usd: Annotated[
        PriceAnswer,
        Meta(description="of a machine type, USD an hour"),
    ]
    spot_usd: Annotated[
        SpotPriceAnswer,
        Meta(
            description="of a machine type in a zone, USD an hour; an empty zone is the region"
        ),
    ]
    reservations: Annotated[
        ReservationAnswer,
        Meta(description="what the account pays for already"),
    ]
    commitments: Annotated[
        CommitmentAnswer | None,
        Meta(
            description="what it pays for by the hour; none where nobody asked"
        ),
    ] = None
    commitment_use: Annotated[
        UsedAnswer | None,
        Meta(description="what of that is used; none where nobody asked"),
    ] = None
    reclaims: Annotated[
        ReclaimAnswer | None,
        Meta(
            description="of the account's own machines on spot; none where nobody asked"
        ),
    ] = None

    @property
    def answers(self) -> dict[str, LiveAnswer[object]]:
        """All answers by the name of what was asked; what an old record has not is left out."""
        newer: dict[str, LiveAnswer[object] | None] = {
            "commitments": self.commitments,
            "what is used of commitments": self.commitment_use,
            "reclaims": self.reclaims,
        }
        return {
            **{
                f"quota {purchase}": answer
                for purchase, answer in self.quotas.items()
            },
            "zones": self.zones,
            "prices on demand": self.on_demand_usd,
            "prices on spot": self.spot_usd,
            "reservations": self.reservations,
            **{name: answer for name, answer in newer.items() if answer},
        }


class ChanceAnswer(LiveAnswer[float], frozen=True, kw_only=True):
    """How likely machines are to be had, from 0 to 1."""


class SpotChance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How likely machines on spot of a plan, or of one of its fallbacks, are to be had now."""

    cloud: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    machine_type: Annotated[str, Meta(description="machine type")]
    machines: Annotated[int, Meta(description="how many at once")]
    zone: Annotated[
        str, Meta(description="in which; left out for the best of the region")
    ] = NO_ZONE
    chance: Annotated[
        ChanceAnswer, Meta(description="from 0 to 1, as the cloud scores it")
    ]


class BlockFact(Struct, frozen=True, kw_only=True):
    """A capacity block that a cloud offers now, as a spec names it in buy.block."""

    id: Annotated[str, Meta(description="of the offering")]
    machine_type: Annotated[str, Meta(description="machine type")]
    zone: Annotated[str, Meta(description="that its machines are in")]
    machines: Annotated[int, Meta(description="how many")]
    starts: Annotated[str, Meta(description="as 2026-12-01T11:30Z")]
    ends: Annotated[str, Meta(description="as its start")]
    usd: Annotated[Decimal, Meta(description="what all of it costs")]


class BlockAnswer(LiveAnswer[tuple[BlockFact, ...]], frozen=True, kw_only=True):
    """Blocks for a run, the cheapest first."""


class OfferedBlocks(Struct, frozen=True, kw_only=True):
    """The blocks that a run would fit in."""

    cloud: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    machine_type: Annotated[str, Meta(description="machine type")]
    machines: Annotated[int, Meta(description="that the run needs")]
    hours: Annotated[int, Meta(description="whole days that cover it")]
    blocks: Annotated[BlockAnswer, Meta(description="what is offered")]


class LiveFacts(Struct, frozen=True, kw_only=True):
    """What clouds answered while a plan was made. The same facts give the same plan."""

    callers: Annotated[
        dict[str, CallerAnswer],
        Meta(description="who is signed in to each cloud that was asked"),
    ] = field(default_factory=dict)
    places: Annotated[
        tuple[PlaceFacts, ...], Meta(description="regions that were asked")
    ] = ()
    spot_chances: Annotated[
        tuple[SpotChance, ...],
        Meta(
            description="of the machines on spot of the plan and of its fallbacks"
        ),
    ] = ()
    commitment_regions: Annotated[
        dict[str, RegionAnswer],
        Meta(
            description="of each cloud, where the account has committed to something"
        ),
    ] = field(default_factory=dict)
    offered_blocks: Annotated[
        tuple[OfferedBlocks, ...],
        Meta(description="capacity blocks for the run of the plan"),
    ] = ()

    def place(self, cloud: str, region: str) -> PlaceFacts | None:
        """Return what is known of a region; None where nobody has asked."""
        return next(
            (
                place
                for place in self.places
                if (place.cloud, place.region) == (cloud, region)
            ),
            None,
        )

    def spot_chance(
        self,
        cloud: str,
        region: str,
        machine_type: str,
        machines: int,
        zone: str = NO_ZONE,
    ) -> float | None:
        """Return how likely so many machines on spot are to be had; None where nobody says.

        In a zone without a score of its own it is that of the region, and in the region that of
        its best zone.
        """
        wanted = (cloud, region, machine_type, machines)
        by_zone = {
            found.zone: found.chance.value
            for found in self.spot_chances
            if found.chance.value is not None
            and wanted
            == (found.cloud, found.region, found.machine_type, found.machines)
        }
        if zone != NO_ZONE:
            return by_zone.get(zone, by_zone.get(NO_ZONE))
        return max(by_zone.values(), default=None)
