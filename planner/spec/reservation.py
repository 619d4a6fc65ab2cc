"""Capacity that somebody has reserved already, as a spec names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Iterable


def zone_name(region: str, zone: str) -> str:
    """Return a zone as a spec names it: some clouds number the zones of a region."""
    return zone if zone.startswith(region) else f"{region}-{zone}"


class Reservation(Struct, frozen=True, kw_only=True):
    """Machines of one type in one place, which an account has reserved.

    place     zone, such as us-east-1a, us-east4-a or eastus-1; or region where nothing is zonal
    machines  how many
    """

    cloud: str
    id: str
    place: str
    machines: int
    instance_type: str

    def is_in(self, region: str) -> bool:
        """Whether it is in a region: at its name, or at that of one of its zones."""
        return self.place == region or bool(self.zone_in(region))

    def zone_in(self, region: str) -> str:
        """Return its zone as the cloud calls zones of a region; empty where it has none there.

        Some clouds number the zones of a region, and others name them after it.
        """
        found = re.fullmatch(
            rf"{re.escape(region)}(?:-?[a-z]|-(?P<number>[0-9]))", self.place
        )
        if found is None:
            return ""
        return found["number"] or self.place


def reservations_of(texts: Iterable[str]) -> tuple[Reservation, ...]:
    """Read reservations as they stand in a spec, ID@PLACE:MACHINESxTYPE; the largest first."""
    found = []
    for text in texts:
        name, _, rest = text.partition("@")
        place, _, amount = rest.partition(":")
        machines, _, instance_type = amount.partition("x")
        cloud = next(
            cloud
            for cloud, facts in clouds().items()
            if re.fullmatch(facts.reservation_form, name)
        )
        found.append(
            Reservation(
                cloud=cloud,
                id=name,
                place=place,
                machines=int(machines),
                instance_type=instance_type,
            )
        )
    return tuple(sorted(found, key=lambda reservation: -reservation.machines))


def reserved_zones(zone: str, zones: tuple[str, ...]) -> tuple[str, ...]:
    """Return the zones of machines that come from a reservation in a zone, or in none.

    Where zones are numbers, what is reserved in none is for machines in none.
    """
    if zone:
        return (zone,)
    return tuple(name for name in zones if not name.isdigit())
