"""Bounds of the fewest groups that pass, against a truth that is drawn."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from planner.solve.serving.group_bracket import GroupBracket


def judged(
    bracket: GroupBracket, truth: int, estimate: int | None, ceiling: float
) -> list[int]:
    """The groups that are judged until nothing is open, where `truth` are enough."""
    asked = []
    while (groups := bracket.next_groups(estimate, ceiling)) is not None:
        asked.append(groups)
        if groups >= truth:
            bracket.accept(groups)
        else:
            bracket.reject(groups)
    return asked


@given(
    truth=st.integers(1, 2000),
    estimate=st.none() | st.integers(1, 2000),
    ceilings=st.lists(st.integers(1, 3000) | st.just(math.inf), min_size=1),
)
def test_the_fewest_groups_are_found_whatever_formulas_say(
    truth: int, estimate: int | None, ceilings: list[float]
) -> None:
    """Each ceiling is that of another offer; what an earlier one taught is known."""
    bracket = GroupBracket(too_few=0)
    for ceiling in ceilings:
        judged(bracket, truth, estimate, ceiling)
        if truth <= ceiling:
            assert bracket.enough == truth
        else:
            assert bracket.too_few >= ceiling


@given(
    st.integers(1, 2000), st.none() | st.integers(1, 2000), st.integers(1, 1999)
)
def test_a_layout_that_costs_too_much_takes_one_question(
    truth: int, estimate: int | None, ceiling: int
) -> None:
    asked = judged(GroupBracket(too_few=0), truth, estimate, ceiling)
    if truth > ceiling:
        assert asked == [ceiling]
    else:
        # Once each way, in steps that double and halve.
        assert len(asked) <= 2 + 2 * math.log2(ceiling + 1)


def test_formulas_that_are_right_are_asked_first() -> None:
    assert judged(GroupBracket(too_few=0), 7, 7, math.inf) == [7, 6]
    assert judged(GroupBracket(too_few=0), 7, 7, 100) == [100, 7, 6]
