"""Reports as two real readers see them: a browser's rules for HTML, and XML."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import html5lib

XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


def read_html(report: str) -> ET.Element:
    """The tree that the rules of HTML make of it; an error of them is an error here."""
    return html5lib.HTMLParser(strict=True).parse(report)


def read_xml(report: str) -> ET.Element:
    """The tree that XML makes of it."""
    return ET.fromstring(report)


def words(element: ET.Element) -> str:
    """The text of an element, with one space between words."""
    return " ".join(" ".join(element.itertext()).split())


def local(element: ET.Element) -> str:
    """Its name without the namespace."""
    return str(element.tag).rpartition("}")[2]


def by_name(tree: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in tree.iter() if local(element) == name]


def cells(table: ET.Element) -> list[str]:
    return [
        words(cell)
        for cell in table.iter()
        if local(cell) in {"th", "td"} and words(cell)
    ]


class Opened(HTMLParser):
    """Every tag that a lenient reader sees, with its attributes."""

    def __init__(self, report: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(report)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
