"""The frame of a served page: its style, its script, and where else one may go."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.html.document import (
    DocumentParts,
    framed_document,
    stylesheet,
)
from planner.render.html.markup import element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.errors import Problem
    from planner.render.html.markup import Markup

FOLDER_ADDRESS: Final = "/"
DIFF_ADDRESS: Final = "/diff"
STACKS_ADDRESS: Final = "/stacks"
SCRIPT: Final = "serve.js"
ICON: Final = "icon.svg"
STYLE: Final = "serve.css"
# Files of the pages by name, with the type of each.
ASSETS: Final = {
    STYLE: "text/css",
    SCRIPT: "text/javascript",
    ICON: "image/svg+xml",
}


class SiteLink(Struct, frozen=True):
    """A page that one may go to: its address and its name."""

    address: str
    name: str


SITE: Final = (
    SiteLink(FOLDER_ADDRESS, "Specs and plans"),
    SiteLink(DIFF_ADDRESS, "Compare"),
    SiteLink(STACKS_ADDRESS, "Stacks"),
)


def asset(name: str) -> bytes:
    """Return a file of the pages: its style begins with that of all reports."""
    content = pkgutil.get_data("planner.render.html", f"data/{name}") or b""
    return stylesheet().encode() + content if name == STYLE else content


def served_page(
    parts: DocumentParts,
    *,
    address: str = "",
    near: Sequence[SiteLink] = (),
    is_live: bool = False,
) -> str:
    """Return a page as a document that takes its style and script from the server.

    address  of the page, where it is one of the site
    near     other pages of what it shows
    is_live  whether it has a form that a script sends
    """
    links = [
        element("link", {"rel": "icon", "href": _asset_address(ICON)}),
        element("link", {"rel": "stylesheet", "href": _asset_address(STYLE)}),
    ]
    if is_live:
        links.append(
            element("script", {"src": _asset_address(SCRIPT), "defer": "defer"})
        )
    return framed_document(parts, [], links, _navigation(address, near))


def problem_page(title: str, problems: Sequence[Problem]) -> str:
    """Return a page of what is wrong, with what to do about it."""
    return served_page(
        DocumentParts(
            title, element("h1", None, title), problem_markup(problems)
        )
    )


def problem_markup(problems: Sequence[Problem]) -> tuple[Markup, ...]:
    """Return problems as a terminal tells them: place, code, cause and next step."""
    return tuple(
        element(
            "div",
            {"class": "problem"},
            element(
                "p",
                {"class": "bad"},
                f"{problem.place}: " if problem.place else "",
                f"{problem.code}: {problem.message}",
            ),
            *(
                [element("p", None, f"cause: {problem.cause}")]
                if problem.cause
                else []
            ),
            element("p", None, f"next: {problem.next_step}"),
        )
        for problem in problems
    )


def _asset_address(name: str) -> str:
    return f"/assets/{name}"


def _navigation(address: str, near: Sequence[SiteLink]) -> Markup:
    return element(
        "nav",
        {"aria-label": "Pages", "class": "site"},
        element(
            "ul",
            None,
            *(
                element("li", None, _site_link(link, address))
                for link in (*SITE, *near)
            ),
        ),
    )


def _site_link(link: SiteLink, address: str) -> Markup:
    attributes = {"href": link.address}
    if link.address == address:
        attributes["aria-current"] = "page"
    return element("a", attributes, link.name)
