"""MIG slices that fit together, against the tables of NVIDIA's user guide."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from planner.facts.accelerator import mig_profiles
from planner.facts.mig import chip_profiles, memory_share, placed, places_of

# Figure "Profiles on A100" of the user guide: what fills an accelerator of 40 GB, by rows of the
# figure, largest slices first. What is a part of a row fits too, and nothing else does.
FULL_A100 = (
    ("7g.40gb",),
    ("4g.20gb", "3g.20gb"),
    ("4g.20gb", "2g.10gb", "1g.5gb"),
    ("4g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"),
    ("3g.20gb", "3g.20gb"),
    ("3g.20gb", "2g.10gb", "1g.5gb"),
    ("3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"),
    ("2g.10gb", "2g.10gb", "3g.20gb"),
    ("2g.10gb", "1g.5gb", "1g.5gb", "3g.20gb"),
    ("1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "3g.20gb"),
    ("2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"),
    ("2g.10gb", "2g.10gb", "1g.5gb", "1g.5gb", "1g.5gb"),
    ("2g.10gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"),
    ("1g.5gb",) * 7,
)


def part_of(names: tuple[str, ...], row: tuple[str, ...]) -> bool:
    return all(names.count(name) <= row.count(name) for name in names)


@pytest.mark.parametrize("count", range(1, 8))
def test_slices_of_an_a100_fit_as_the_user_guide_shows(count: int) -> None:
    by_name = {
        profile.profile: profile for profile in chip_profiles("a100-40gb-sxm")
    }
    # The guide has no figure of the profile with twice the memory of one slice.
    shown = sorted(name for name in by_name if name != "1g.10gb")
    for names in combinations_with_replacement(shown, count):
        fits = any(part_of(names, row) for row in FULL_A100)
        found = placed([by_name[name] for name in names])
        assert (found is not None) is fits, names


def test_as_many_of_one_profile_fit_as_nvidia_says() -> None:
    for profile in mig_profiles():
        most = profile.max_instances
        assert len(places_of(profile).starts) == most
        assert placed([profile] * most) is not None
        assert placed([profile] * (most + 1)) is None


def test_slices_that_are_placed_do_not_overlap() -> None:
    for accelerator in {profile.accelerator for profile in mig_profiles()}:
        profiles = chip_profiles(accelerator)
        for pair in combinations_with_replacement(profiles, 2):
            found = placed(pair)
            if found is None:
                continue
            taken = [
                set(range(start, start + places_of(profile).size))
                for start, profile in zip(found, pair, strict=True)
            ]
            assert not taken[0] & taken[1]
            assert sum(map(memory_share, pair)) <= 1.02
