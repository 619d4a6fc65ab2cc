"""Machines that are paid for already, whether they run or not, as a file beside the spec says."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.spec.field import Block, read_document
from planner.spec.field_table import block_fields
from planner.spec.model import Inference
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.errors import Place
    from planner.market.offer import Catalog, Offer
    from planner.spec.model import Spec


# The key of a spec that names the file.
OWNED_FILE_SOURCE: Final = "buy.owned"


class OwnedMachines(Struct, frozen=True, kw_only=True):
    """Machines that a commitment pays for: a reservation, a savings plan, a committed use.

    cloud, type, region  what they are; type and region may be patterns
    count      how many
    usd_hour   what one of them costs, used or not, USD an hour; none where nobody says
    source     who says so: a file of the user, or the account and what it has bought
    """

    cloud: str
    type: str
    region: str
    count: int
    usd_hour: Decimal | None
    source: str = OWNED_FILE_SOURCE

    @property
    def are_found(self) -> bool:
        """Whether an account was found to have them, and no file of the user says so."""
        return self.source != OWNED_FILE_SOURCE

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
    def usd_month(self) -> Decimal | None:
        """What they cost together, USD a month: count * price * 730."""
        if self.usd_hour is None:
            return None
        return self.count * self.usd_hour * HOURS_PER_MONTH


class OwnedUse(Struct, frozen=True):
    """Owned machines, and the share of their hours in which a fleet has work for them."""

    machines: OwnedMachines
    used_share: Decimal


class OwnedRow(Struct, frozen=True):
    """Owned machines, and where in their file they stand.

    The place is none of the machines: two specs may name one file by two paths.
    """

    place: Place
    machines: OwnedMachines


def _row(*, place: Place, **values: Any) -> OwnedRow:
    return OwnedRow(place, OwnedMachines(**values))


def _rows(**values: Any) -> tuple[OwnedRow, ...]:
    rows: tuple[OwnedRow, ...] = values["machines"]
    return rows


OWNED_FILE: Final = Block(
    "owned",
    _rows,
    block_fields(
        "owned",
        "owned",
        {
            "machines": Block(
                "machines", _row, block_fields("owned", "machines")
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


def paid_machines(
    spec: Spec, catalog: Catalog, read_file: Callable[[str], bytes]
) -> tuple[OwnedMachines, ...]:
    """Return what a spec may use that is paid for already.

    A file says it where the spec names one: what is in it may be the same as what the account has
    bought. Without one it is what the account was found to have, as far as the rules of
    `buy.owned` let a spec use it.
    """
    if spec.buy.owned is not None:
        return owned_machines(spec, read_file)
    return catalog.owned if counts_commitments(spec) else ()


def counts_commitments(spec: Spec) -> bool:
    """Whether what an account has committed to may serve a spec first, and no file says it.

    The machines above it are on demand, as the rules of `buy.owned` have it.
    """
    buy = spec.buy
    is_own_capacity = buy.reservations or buy.reserve or buy.block
    return (
        isinstance(spec, Inference)
        and buy.owned is None
        and "none" in buy.commit
        and buy.spot != "only"
        and not is_own_capacity
        and not buy.flex_start
    )


def read_owned(file_bytes: bytes, path: str) -> tuple[OwnedMachines, ...]:
    """Return the machines of a file. Raises SpecError with all of its problems."""
    return tuple(row.machines for row in owned_rows(file_bytes, path))


def owned_rows(file_bytes: bytes, path: str) -> tuple[OwnedRow, ...]:
    """Return the rows of a file. Raises SpecError with all of its problems."""
    rows: tuple[OwnedRow, ...] = read_document(OWNED_FILE, file_bytes, path)
    return rows
