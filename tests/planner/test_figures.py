"""Numbers as people read them."""

from __future__ import annotations

import pytest

from planner import figures


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (429.1, "7 min"),
        (5399, "90 min"),
        (5400, "2 h"),
        (86_400, "24 h"),
    ],
)
def test_a_time_that_is_about_right_has_one_unit(
    seconds: float, text: str
) -> None:
    assert figures.about(seconds) == text
