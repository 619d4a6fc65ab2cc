"""Capacity that somebody has reserved already, as a spec names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reservation(Struct, frozen=True, kw_only=True):
    """Machines of one type in one place, which an account has reserved.

    place     zone, or region where the cloud reserves in a region
    machines  how many
    """

    cloud: str
    id: str
    place: str
    machines: int
    instance_type: str

    def is_in(self, region: str) -> bool:
        """Whether it is in a region: at its name, or at that of one of its zones."""
        zone = rf"{re.escape(region)}-?[a-z]"
        return self.place == region or bool(re.fullmatch(zone, self.place))


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
