"""The order of releases, against packaging's own."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from planner.perf.common.release import release_key

SUFFIXES: Final = ("", "a1", "b2", "rc1", "rc2", ".post1", ".dev3", "rc1.post2")
versions = st.builds(
    lambda numbers, suffix: ".".join(map(str, numbers)) + suffix,
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.sampled_from(SUFFIXES),
)


@given(versions, versions)
def test_releases_are_in_the_order_of_packaging(one: str, other: str) -> None:
    assert (release_key(one) < release_key(other)) == (
        Version(one) < Version(other)
    )
    assert (release_key(one) == release_key(other)) == (
        Version(one) == Version(other)
    )
