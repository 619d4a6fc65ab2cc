"""The frame of a report: one file that loads nothing and runs nothing."""

from __future__ import annotations

import base64
import hashlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.render.html.markup import NOTHING, Markup, element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.render.html.markup import Content


class DocumentParts(Struct, frozen=True):
    """What a document says: its title, what stands in its header, and its main part."""

    title: str
    head: Content
    body: tuple[Content, ...]


def document(parts: DocumentParts) -> str:
    """Return a whole document, with all that it needs in it.

    Equal content gives equal bytes.
    """
    policy = element(
        "meta",
        {
            "http-equiv": "Content-Security-Policy",
            "content": security_policy(),
        },
    )
    return framed_document(parts, [policy], [_style_element()])


def framed_document(
    parts: DocumentParts,
    rules: Sequence[Markup],
    links: Sequence[Markup],
    navigation: Markup = NOTHING,
) -> str:
    """Return a document with elements of its head before and after its title.

    `navigation` stands above its header.
    """
    whole = element(
        "html",
        {"lang": "en", "xmlns": "http://www.w3.org/1999/xhtml"},
        element(
            "head",
            None,
            element("meta", {"charset": "utf-8"}),
            *rules,
            element(
                "meta",
                {
                    "name": "viewport",
                    "content": "width=device-width, initial-scale=1",
                },
            ),
            element("title", None, parts.title),
            *links,
        ),
        element(
            "body",
            None,
            _patterns(),
            navigation,
            element("header", None, parts.head),
            element("main", None, *parts.body),
        ),
    )
    return f"<!DOCTYPE html>\n{whole.text}\n"


def security_policy() -> str:
    """Return what a browser may load: nothing but the style that is in the file, by its digest."""
    digest = hashlib.sha256(stylesheet().encode()).digest()
    style = base64.b64encode(digest).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def stylesheet() -> str:
    """Return the style of all reports."""
    content = pkgutil.get_data("planner.render.html", "data/report.css") or b""
    return content.decode()


def _style_element() -> Markup:
    # A style is no text of HTML: nothing in it is escaped.
    return Markup(f"<style>{stylesheet()}</style>")


def _patterns() -> Markup:
    """Return the patterns of bars, which tell them apart without their colors."""
    return element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "patterns",
            "aria-hidden": "true",
        },
        _pattern("hatch", "M0 6L6 0M-1 1L1 -1M5 7L7 5"),
        _pattern("stripes", "M3 0V6"),
        element(
            "pattern",
            _pattern_attributes("dots"),
            element("circle", {"cx": 2, "cy": 2, "r": 1.6, "class": "dots"}),
            element("circle", {"cx": 5, "cy": 5, "r": 1.6, "class": "dots"}),
        ),
    )


def _pattern(name: str, path: str) -> Markup:
    return element(
        "pattern",
        _pattern_attributes(name),
        element("path", {"d": path, "class": name}),
    )


def _pattern_attributes(name: str) -> dict[str, str | float]:
    return {
        "id": name,
        "width": 6,
        "height": 6,
        "patternUnits": "userSpaceOnUse",
    }
