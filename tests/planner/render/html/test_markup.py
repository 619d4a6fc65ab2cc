"""Whatever somebody wrote stays text, for readers of HTML and of XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.render.clean import clean
from planner.render.html.markup import element, joined

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></svg><b>",
    "<!-- --> ]]> &amp; &#60; &",
    "\u202etxet sdrawkcab\u2066",
    "\x00\x1b[31m\x85\ufffe",
    "שלום",
    "x" * 300,
)
TEXTS = st.one_of(st.text(), st.sampled_from(HOSTILE))


def shown_text(text: str) -> str:
    """As other pages show it, and without the colors of a terminal."""
    return clean(text).replace("\x1b", "?")


@given(TEXTS)
def test_text_comes_back_from_both_readers(text: str) -> None:
    made = element("p", None, text).text
    shown = shown_text(text)
    assert (ET.fromstring(made).text or "") == shown
    [paragraph] = list(html5lib.parseFragment(made))
    assert (paragraph.text or "") == shown
    assert list(paragraph) == []


@given(TEXTS)
def test_an_attribute_comes_back_too(text: str) -> None:
    made = element("p", {"title": text}).text
    [paragraph] = list(html5lib.parseFragment(made))
    assert paragraph.attrib == {"title": shown_text(text)}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_direction_and_no_control_character_is_left(text: str) -> None:
    made = joined([text]).text
    assert made.isprintable()
    assert not set(made) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")


def test_pixels_are_to_a_tenth() -> None:
    assert (
        element("line", {"x1": 1.0, "y1": 2.25, "class": "a"}).text
        == '<line x1="1" y1="2.2" class="a"/>'
    )
