"""Text on pictures fits the room that it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.render.html.picture import (
    WIDTH,
    bottom_axis,
    fitted,
    text_width,
)
from planner.render.html.scale import round_scale


@given(st.text(max_size=200), st.floats(20, WIDTH))
def test_a_fitted_text_fits_and_is_the_beginning(text, width) -> None:
    shown = fitted(text, width)
    assert text_width(shown) <= width
    assert shown == text or text.startswith(shown.removesuffix("…"))


@given(st.floats(1, 1e9))
def test_texts_of_marks_do_not_touch(most) -> None:
    scale = round_scale([most], 8, WIDTH - 8)
    ends = [0.0]
    for shape in bottom_axis(scale, "${:,.0f}".format, top=0, bottom=9)[1:]:
        middle = float(shape.text.split('x="')[1].split('"')[0])
        half = text_width(shape.text.split(">")[1].split("<")[0]) / 2
        # Places are written to a tenth.
        assert middle - half >= ends[-1] - 0.2
        ends.append(middle + half)
    assert ends[-1] <= WIDTH + 0.2
