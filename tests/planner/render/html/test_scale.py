"""Axes: what is more is further along, and marks are round and even."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.render.html.scale import Scale, round_scale, round_step

# Money of a day up to that of the largest cluster, and shares.
NUMBERS = st.one_of(st.floats(1e-4, 1e9), st.floats(-1e9, -1e-4), st.just(0.0))
LISTS = st.lists(NUMBERS, min_size=1, max_size=12)
PLACES = st.tuples(st.floats(0, 100), st.floats(101, 500))


@given(LISTS, PLACES)
def test_all_numbers_are_on_it_and_nothing_too(numbers, places) -> None:
    scale = round_scale(numbers, *places)
    # To a billionth of the axis, which nobody sees.
    unseen = 1e-8 * (scale.high - scale.low)
    assert scale.low - unseen <= min([0.0, *numbers])
    assert scale.high + unseen >= max([0.0, *numbers])


@given(LISTS, PLACES, st.booleans())
def test_more_is_further_along(numbers, places, is_upward) -> None:
    start, end = reversed(places) if is_upward else places
    scale = round_scale(numbers, start, end)
    direction = 1 if end > start else -1
    shown = [scale.at(number) * direction for number in sorted(numbers)]
    assert all(after >= before - 1e-9 for before, after in pairwise(shown))
    assert scale.at(scale.low) == pytest.approx(start)
    assert scale.at(scale.high) == pytest.approx(end)


@given(LISTS, PLACES, st.integers(3, 8))
def test_marks_are_round_even_and_few(numbers, places, most) -> None:
    scale = round_scale(numbers, *places, most=most)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= most + 3
    for before, after in pairwise(ticks):
        assert after - before == pytest.approx(scale.step)
    digits = f"{scale.step:.3e}".split("e")[0]
    assert float(digits) in {1, 2, 5}
    assert ticks[0] == pytest.approx(scale.low)
    assert ticks[-1] == pytest.approx(scale.high)
    assert any(tick == 0 for tick in ticks)


@given(st.lists(st.integers(0, 5000), min_size=1), PLACES)
def test_what_is_counted_has_whole_marks(numbers, places) -> None:
    ticks = round_scale(numbers, *places, least_step=1).ticks()
    assert all(tick == int(tick) for tick in ticks)


@given(st.floats(1e-6, 1e12), st.integers(1, 10))
def test_a_step_is_the_least_round_one_that_is_long_enough(span, most) -> None:
    step = round_step(span, most)
    assert step * most >= span * (1 - 1e-6)
    shorter = {1: 0.5, 2: 0.5, 5: 0.4}[
        round(float(f"{step:.3e}".split("e")[0]))
    ]
    assert step * shorter * most < span * (1 + 1e-6)


def test_beyond_its_ends_is_at_the_nearer_end() -> None:
    scale = Scale(0, 10, 100, 200, 5)
    assert [scale.at(-5), scale.at(5), scale.at(99)] == [100, 150, 200]
