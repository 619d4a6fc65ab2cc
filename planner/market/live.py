"""What clouds answer about an account and a region: quotas, zones, prices and reservations.

These are values. Who asks, when and over which connection is the matter of `providers`.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

# Stands for what a region has in none of its zones.
NO_ZONE: Final = ""

ValueT_co = TypeVar("ValueT_co", covariant=True)
AnswerState: TypeAlias = Literal["value", "none", "denied", "unknown"]
QuotaUnit: TypeAlias = Literal["vcpus", "accelerators"]


class Answer(
    Struct, Generic[ValueT_co], frozen=True, kw_only=True, omit_defaults=True
):
    """The answer to one question. What nobody knows is never a zero.

    `state`    value; none: there is no such thing; denied: a right is missing; unknown: anything
               else, such as a service that is busy or a login that is missing
    `value`    only with that state
    `reason`   the right that is missing, or why nobody knows
    `as_of`    when it was asked, in UTC: 2026-11-27T06:00:00Z
    `request`  the call, as the cloud names it
    """

    state: AnswerState
    value: ValueT_co | None = None
    reason: str = ""
    as_of: str
    request: str


class QuotaFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quota of an account in a region, as far as it counts machines.

    `machine_types`  those of the question that it counts
    `purchase`       on_demand or spot
    `id`, `name`     as the cloud names it, and as people know it
    `limit`          in `unit`; None without a limit
    `used`           of it; None where the cloud does not say
    `requested`      a higher limit that somebody has asked for already
    `raise_form`     how it is raised to {wanted}: a command, or a page
    """

    machine_types: tuple[str, ...]
    purchase: str
    unit: QuotaUnit
    id: str
    name: str
    limit: float | None
    used: float | None
    requested: float | None = None
    raise_form: str

    @property
    def free(self) -> float | None:
        """How much of it is left, at least 0; None without a limit."""
        if self.limit is None:
            return None
        return max(0.0, self.limit - (self.used or 0.0))

    def raise_text(self, wanted: float) -> str:
        """Say how it is raised to so much, or that somebody has asked for that already."""
        command = self.raise_form.format(wanted=f"{wanted:g}")
        if self.requested is None:
            return command
        return (
            f"wait: {self.requested:g} are asked for already; or ask for more: "
            f"{command}"
        )


class ReservationFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machines that an account has reserved and pays for.

    `free`  of `machines`, those that nothing runs on
    `ends`  when it ends, in UTC; empty without an end
    `is_named`  whether only who names it gets its machines
    """

    id: str
    machine_type: str
    zone: str
    machines: int
    free: int
    ends: str = ""
    is_named: bool = False


class PlaceFacts(Struct, frozen=True, kw_only=True):
    """What a cloud answers about a region, for the machine types that were asked about.

    `quotas`        by purchase: on_demand, spot
    `zones`         of each machine type; none where the account may not have it
    `on_demand_usd` of a machine type, USD an hour
    `spot_usd`      of a machine type in a zone, USD an hour; NO_ZONE for the whole region
    `reservations`  what the account pays for already
    """

    cloud: str
    region: str
    quotas: dict[str, Answer[tuple[QuotaFact, ...]]]
    zones: Answer[dict[str, tuple[str, ...]]]
    on_demand_usd: Answer[dict[str, Decimal]]
    spot_usd: Answer[dict[str, dict[str, Decimal]]]
    reservations: Answer[tuple[ReservationFact, ...]]

    @property
    def answers(self) -> dict[str, Answer[object]]:
        """All answers by the name of what was asked."""
        return {
            **{
                f"quota {purchase}": answer
                for purchase, answer in self.quotas.items()
            },
            "zones": self.zones,
            "prices on demand": self.on_demand_usd,
            "prices on spot": self.spot_usd,
            "reservations": self.reservations,
        }


class LiveFacts(Struct, frozen=True, kw_only=True):
    """What clouds answered while a plan was made. The same facts give the same plan.

    `callers`  who is signed in to each cloud that was asked
    """

    callers: dict[str, Answer[str]] = field(default_factory=dict)
    places: tuple[PlaceFacts, ...] = ()

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
