"""The style of reports: letters and shapes that can be told from the paper, by day and night."""

from __future__ import annotations

import re

import pytest

from planner.render.html.document import stylesheet

# WCAG 2.2: 1.4.3 for text, 1.4.11 for what pictures are read by.
TEXT_CONTRAST = 4.5
SHAPE_CONTRAST = 3.0
TEXT_COLORS = ("ink", "quiet", "main", "good", "bad", "warn")
SHAPE_COLORS = ("ink", "main", "second", "good", "bad", "quiet")


def palettes() -> dict[str, dict[str, str]]:
    """The colors of each medium by their names."""
    blocks = re.findall(r":root \{(.*?)\}", stylesheet(), re.DOTALL)
    found = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks
    ]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def luminance(color: str) -> float:
    """Relative luminance of WCAG."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("medium", ["light", "dark", "print"])
def test_text_and_shapes_stand_out_from_the_paper(medium: str) -> None:
    colors = palettes()[medium]
    for name in TEXT_COLORS:
        assert contrast(colors[name], colors["paper"]) >= TEXT_CONTRAST, name
    for name in SHAPE_COLORS:
        assert contrast(colors[name], colors["paper"]) >= SHAPE_CONTRAST, name


def test_every_medium_has_every_color() -> None:
    light, dark, printed = (set(colors) for colors in palettes().values())
    assert light == dark == printed
    used = set(re.findall(r"var\(--(\w+)\)", stylesheet()))
    assert used == light


def test_bars_are_told_without_their_color() -> None:
    """Each of those that stand beside each other has a pattern of its own, or is full."""
    fills = dict(
        re.findall(
            r"\.bar\.(second|good|unknown) \{ fill: ([^;]*)", stylesheet()
        )
    )
    assert len(set(fills.values())) == len(fills) == 3
    assert all(fill.startswith("url(#") for fill in fills.values())


def test_a_style_is_the_same_text_in_html_and_xml() -> None:
    assert not set("<&]") & set(stylesheet())
