"""A capacity block: machines of one type in one zone, paid as a whole, from a time to a time.

On Google Cloud it is a reservation of the calendar mode, which somebody has asked for and got.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.errors import Place

# Of one that is offered; others are reservations, which were bought.
OFFERED_PREFIXES: Final = ("cb-", "cbr-")


class CapacityBlock(Struct, frozen=True, kw_only=True):
    """A block as a spec names it.

    id        of the offering, or of the reservation once somebody has bought it
    zone      that its machines are in
    machines  how many
    type      machine type
    starts, ends  as 2026-12-01T11:30Z
    usd       what all of it costs
    """

    place: Place | None = None
    id: str
    zone: str
    machines: int
    type: str
    starts: str
    ends: str
    usd: Decimal

    @property
    def region(self) -> str:
        """The region of its zone: its name without the last letter."""
        return self.zone[:-1].rstrip("-")

    @property
    def is_offered(self) -> bool:
        """Whether it is still to be bought."""
        return self.id.startswith(OFFERED_PREFIXES)

    @property
    def duration_s(self) -> float:
        """From its start to its end, seconds. Raises ValueError for a day that does not exist."""
        return moment_s(self.ends) - moment_s(self.starts)


def moment_s(text: str) -> float:
    """Return the time of a text such as 2026-12-01T11:30Z, seconds since 1970.

    Raises ValueError for a day that does not exist.
    """
    year, month, day, hour, minute = map(int, re.findall(r"\d+", text))
    if day > monthrange(year, month)[1]:
        raise ValueError(f"there is no day {text}")
    return float(timegm((year, month, day, hour, minute, 0)))
