"""Machines that are paid for already, whether they run or not, as a file beside the spec says."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.spec.field import Block, read_document
from planner.spec.field_table import block_fields
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.market.offer import Offer
    from planner.spec.model import Spec


class OwnedMachines(Struct, frozen=True, kw_only=True):
    """Machines that a commitment pays for: a reservation, a savings plan, a committed use.

    cloud, type, region  what they are; type and region may be patterns
    count     how many
    usd_hour  what one of them costs, used or not, USD an hour
    """

    cloud: str
    type: str
    region: str
    count: int
    usd_hour: Decimal

    def are_of(self, offer: Offer) -> bool:
        """Whether an offer is of their machine type, in their region."""
        return self.are_at(
            offer.provider, offer.instance.instance_type, offer.region
        )

    def are_at(self, cloud: str, machine_type: str, region: str) -> bool:
        """Whether they are of a machine type, in a region of a cloud."""
        return (
            cloud == self.cloud
            and fnmatchcase(machine_type, self.type)
            and fnmatchcase(region, self.region)
        )

    @property
    def usd_month(self) -> Decimal:
        """What they cost together, USD a month: count * price * 730."""
        return self.count * self.usd_hour * HOURS_PER_MONTH


class OwnedUse(Struct, frozen=True):
    """Owned machines, and the share of their hours in which a fleet has work for them."""

    machines: OwnedMachines
    used_share: Decimal


def _machines(**values: Any) -> OwnedMachines:
    del values["place"]
    return OwnedMachines(**values)


def _list(**values: Any) -> tuple[OwnedMachines, ...]:
    found: tuple[OwnedMachines, ...] = values["machines"]
    return found


OWNED_FILE: Final = Block(
    "owned",
    _list,
    block_fields(
        "owned",
        "owned",
        {
            "machines": Block(
                "machines", _machines, block_fields("owned", "machines")
            )
        },
    ),
    doc="Machines that are paid for already.",
)


def owned_machines(
    spec: Spec, read_file: Callable[[str], bytes]
) -> tuple[OwnedMachines, ...]:
    """Return what a spec says is paid for already. Raises SpecError for an invalid file."""
    if spec.buy.owned is None:
        return ()
    return read_owned(read_file(spec.buy.owned), spec.buy.owned)


def read_owned(file_bytes: bytes, path: str) -> tuple[OwnedMachines, ...]:
    """Return the machines of a file. Raises SpecError with all of its problems."""
    machines: tuple[OwnedMachines, ...] = read_document(
        OWNED_FILE, file_bytes, path
    )
    return machines
