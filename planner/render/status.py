"""The page of a stack as it stands."""

from __future__ import annotations

from typing import Any

from planner.render import words
from planner.render.page import Block, Page, Paragraph, Table


def listing(names: list[str]) -> Page:
    """Return the page that names all stacks."""
    if not names:
        return (Paragraph("no stack exists"),)
    return tuple(Paragraph(name) for name in names)


def page(status: dict[str, Any], *, full: bool = False) -> Page:
    """Return the page of one stack; `full` lists its resources."""
    facts = status["facts"]
    whole = (
        "complete"
        if status["complete"]
        else "INCOMPLETE: the last apply failed"
    )
    head = f"{status['stack']}  ·  {len(status['resources'])} resources  ·  {whole}"
    blocks: list[Block] = [
        Paragraph(head, "strong" if status["complete"] else "bad")
    ]
    if facts:
        blocks.append(
            Table(
                ("", "", "", ">"),
                tuple(
                    (
                        f"{p['provider']} {p['region']}",
                        f"{p['nodes']} x {p['instance_type']}",
                        p["purchase"],
                        f"{words.dollars(facts['usd_hour'], cents=True)}/h",
                    )
                    for p in facts["pools"]
                ),
            )
        )
    rows = tuple(
        (key, str(value)) for key, value in sorted(status["outputs"].items())
    )
    if rows:
        blocks.append(Table(("output", "value"), rows))
    if full:
        blocks.append(
            Table(
                ("resource", "type"),
                tuple((r["name"], r["type"]) for r in status["resources"]),
            )
        )
    return tuple(blocks)
