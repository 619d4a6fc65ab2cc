"""MIG: the slices of an accelerator that fit beside each other, by the places of NVIDIA's driver.

An accelerator has memory slices in a row. A slice of a profile takes some of them, from one of a
few places on. Profiles fit together when there are places at which none overlaps another: then
the driver makes them, and otherwise it refuses.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.facts.accelerator import mig_profiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.facts.accelerator import MigProfile

MOST_SLICES: Final = 8


class MigPlaces(Struct, frozen=True):
    """Where slices may begin, as memory slices from 0, and how many they take."""

    starts: tuple[int, ...]
    size: int


@cache
def _places() -> dict[tuple[int, int, int], MigPlaces]:
    """Return the places by slices of compute of the chip, of the slice, and its memory slices."""
    slices = table.integer_between(1, MOST_SLICES)
    columns: table.Columns = {
        "chip_slices": slices,
        "compute_slices": slices,
        "memory_slices": slices,
        "starts": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.rows_by_key(
        table.load_rows("planner.facts", "mig_places.csv", columns),
        "chip_slices",
        "compute_slices",
        "memory_slices",
    )
    return {
        key: MigPlaces(
            tuple(int(start) for start in row["starts"].split("|")),
            row["memory_slices"],
        )
        for key, row in rows.items()
    }


@cache
def chip_profiles(accelerator: str) -> tuple[MigProfile, ...]:
    """Return the profiles of an accelerator, the smallest first; none without MIG."""
    return tuple(
        sorted(
            (
                profile
                for profile in mig_profiles()
                if profile.accelerator == accelerator
            ),
            key=lambda profile: (profile.memory_gb, profile.compute_fraction),
        )
    )


def memory_share(profile: MigProfile) -> float:
    """Return the share of the memory that a slice has: that of the largest profile is whole."""
    whole = chip_profiles(profile.accelerator)[-1]
    return profile.memory_gb / whole.memory_gb


def places_of(profile: MigProfile) -> MigPlaces:
    """Return where slices of a profile may lie.

    memory slices of the chip = those of its largest profile
    memory slices of a slice  = share of the memory * those of the chip, to the nearest whole one
    Raises KeyError for a profile without a row.
    """
    chip_slices = profile.compute_fraction.denominator
    if profile.compute_fraction == 1:
        # 7/7 is written as 1: the smallest profile has the denominator.
        chip_slices = chip_profiles(profile.accelerator)[
            0
        ].compute_fraction.denominator
    compute_slices = int(profile.compute_fraction * chip_slices)
    whole = next(
        places.size
        for (chip, compute, _), places in _places().items()
        if chip == compute == chip_slices
    )
    memory_slices = round(memory_share(profile) * whole)
    return _places()[chip_slices, compute_slices, memory_slices]


def placed(profiles: Sequence[MigProfile]) -> tuple[int, ...] | None:
    """Return a place for a slice of each profile of one accelerator, None when they do not fit.

    The places are in the order of the profiles.
    """

    def place_rest(
        number: int, taken: frozenset[int]
    ) -> tuple[int, ...] | None:
        if number == len(profiles):
            return ()
        places = places_of(profiles[number])
        for start in places.starts:
            slices = frozenset(range(start, start + places.size))
            if taken & slices:
                continue
            others = place_rest(number + 1, taken | slices)
            if others is not None:
                return (start, *others)
        return None

    return place_rest(0, frozenset())
