"""What runs fills commitments in their order, and none of them is asked in vain."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.live.commitment import asked_at_once, filled_in_order


@given(
    used=st.integers(0, 50),
    amounts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_all_that_is_used_is_of_some_commitment(
    used: int, amounts: list[int]
) -> None:
    """Each is full before the next one is used, and only the last may have too much."""
    named = {str(number): Decimal(n) for number, n in enumerate(amounts)}
    shares = filled_in_order(Decimal(used), named)
    assert list(shares) == list(named)
    assert sum(shares.values()) == used
    *first, _ = shares
    for name, following in zip(first, list(shares)[1:], strict=True):
        assert shares[name] <= named[name]
        assert shares[name] == named[name] or shares[following] == 0


@pytest.mark.parametrize("at_once", [1, 3, 20])
def test_each_name_has_its_own_answer(at_once: int) -> None:
    names = [str(number) for number in range(9)]
    assert asked_at_once(int, names, at_once) == {
        name: int(name) for name in names
    }
    assert asked_at_once(int, [], at_once) == {}


def test_an_error_of_one_is_that_of_all() -> None:
    def find(name: str) -> str:
        if name == "b":
            raise PermissionError("no right")
        return name

    with pytest.raises(PermissionError, match="no right"):
        asked_at_once(find, ["a", "b", "c"], 2)
