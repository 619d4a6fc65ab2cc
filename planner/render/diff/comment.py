"""A difference as the body of a comment in a pull request: headline first, details folded.

The body can be posted as it is. Code hosts refuse long ones, so whole sections are left out in a
fixed order, and that is told.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.clean import clean
from planner.render.diff.overview import overview_table
from planner.render.diff.page import (
    bill_blocks,
    key_blocks,
    machine_blocks,
    metric_blocks,
    problem_blocks,
)
from planner.render.diff.wording import (
    STATE_MARKS,
    catalog_text,
    counts_text,
    effect_text,
    has_difference,
    headline,
    limits_text,
    verdict_text,
)
from planner.render.markdown import escape, render
from planner.render.page import Paragraph
from planner.render.policy import reason_text, verdicts_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planner.plan.diff_document import DiffDocument, SpecDiff
    from planner.plan.policy.verdict import Verdict
    from planner.render.page import Block

# By this whoever posts it finds it again, to update it.
COMMENT_MARKER: Final = "<!-- tonnage:comment:v1 -->"
# GitHub takes 65,536 characters; what posts it may add some of its own.
MOST_LETTERS: Final = 60_000
# More rows than a reader takes in are counted.
SHOWN_ROWS: Final = 50
# What would begin a list.
LIST_MARK: Final = re.compile(r"(?m)^([+-]) ")
# Each spec has them in this order.
SECTIONS: Final[Mapping[str, Callable[[SpecDiff], list[Block]]]] = {
    "problems": problem_blocks,
    "changed keys": key_blocks,
    "machines": machine_blocks,
    "bill lines": bill_blocks,
    "predictions": metric_blocks,
}
# What is left out first, where all of it is too long.
DROPPED_FIRST: Final = (
    "bill lines",
    "predictions",
    "machines",
    "changed keys",
    "problems",
)


class _FoldedSpec(Struct, frozen=True):
    """The sections of a spec that say something, by name."""

    title: str
    texts: dict[str, str]


def comment_body(
    document: DiffDocument,
    verdicts: Sequence[Verdict] = (),
    most_letters: int = MOST_LETTERS,
) -> str:
    """Return a difference as GitHub markdown of at most so many characters.

    `verdicts` are those of policies on the new side.
    """
    folded = [_folded(spec) for spec in document.specs if has_difference(spec)]
    body = ""
    for count in range(len(DROPPED_FIRST) + 1):
        body = _body(
            document, verdicts, folded, DROPPED_FIRST[:count], SHOWN_ROWS
        )
        if len(body) <= most_letters:
            return body
    row_count = SHOWN_ROWS
    while len(body) > most_letters and row_count:
        row_count //= 2
        body = _body(document, verdicts, folded, DROPPED_FIRST, row_count)
    return body


def _body(
    document: DiffDocument,
    verdicts: Sequence[Verdict],
    folded: list[_FoldedSpec],
    dropped: tuple[str, ...],
    row_count: int,
) -> str:
    parts = [
        COMMENT_MARKER,
        _title(document),
        _table(document, row_count),
        _notes(document, verdicts, row_count),
        *(_details(spec, dropped) for spec in folded),
    ]
    if dropped:
        parts.append(
            f"Left out, for the length of a comment: {', '.join(dropped)}. "
            "All of it: `tonnage diff` with the same arguments."
        )
    sides = f"{document.before.name} → {document.after.name}"
    foot = f"{counts_text(document)} · {sides} · {catalog_text(document)}"
    parts.append(f"<sub>{escape(foot)}</sub>")
    return clean("\n\n".join(part for part in parts if part) + "\n")


def _title(document: DiffDocument) -> str:
    limits = limits_text(document)
    rest = f" — {limits}" if limits else ""
    return f"### tonnage: **{escape(headline(document))}**{rest}"


def _table(document: DiffDocument, row_count: int) -> str:
    """Return the rows of the specs that move the total most, in the order of their paths."""
    if not document.specs:
        return ""
    by_weight = sorted(document.specs, key=_weight, reverse=True)
    chosen = {spec.path for spec in by_weight[:row_count]}
    shown = tuple(spec for spec in document.specs if spec.path in chosen)
    table = render((overview_table(document, shown),)).rstrip("\n")
    hidden = len(document.specs) - len(shown)
    if not hidden:
        return table
    return f"{table}\n\nand {hidden} specs more, which move the total less."


def _weight(spec: SpecDiff) -> tuple[bool, Decimal]:
    """What is wrong or unknown first, then by how much a cost changes."""
    if spec.delta is None or spec.delta.usd is None:
        return True, Decimal(0)
    return False, abs(spec.delta.usd)


def _notes(
    document: DiffDocument, verdicts: Sequence[Verdict], row_count: int
) -> str:
    """Return thresholds, verdicts, what is in no total, and what catalogs did, as a list."""
    notes = []
    for verdict in document.thresholds:
        word = "**failed**" if verdict.is_exceeded else "ok"
        notes.append(f"{word}: {escape(verdict_text(verdict))}")
    notes += _verdict_notes(verdicts, row_count)
    if document.left_out:
        names = ", ".join(document.left_out[:SHOWN_ROWS])
        notes.append(f"**not in the total**: {escape(names)}")
    if document.unplanned:
        notes.append(
            f"{len(document.unplanned)} unchanged, which are in no total"
        )
    notes += [
        escape(effect_text(effect)) for effect in document.catalog_effects
    ]
    return "\n".join(f"- {note}" for note in notes)


def _verdict_notes(verdicts: Sequence[Verdict], row_count: int) -> list[str]:
    """Say how many rules pass, and of the others at most so many and why, the gravest first."""
    if not verdicts:
        return []
    told = [
        f"**{judgment}** {escape(reason_text(verdict))}"
        for judgment in ("denies", "warns", "waived")
        for verdict in verdicts
        if verdict.judgment == judgment
    ]
    hidden = len(told) - row_count
    return [
        escape(verdicts_line(verdicts)),
        *told[:row_count],
        *([f"and {hidden} verdicts more"] if hidden > 0 else []),
    ]


def _folded(spec: SpecDiff) -> _FoldedSpec:
    texts = {}
    for name, section_blocks in SECTIONS.items():
        blocks = section_blocks(spec)
        if blocks:
            texts[name] = _section_text(blocks)
    title = escape(f"{STATE_MARKS[spec.state]} {spec.path}".strip())
    return _FoldedSpec(title, texts)


def _details(spec: _FoldedSpec, dropped: tuple[str, ...]) -> str:
    """Return the sections of a spec, folded; nothing where they say nothing."""
    texts = [text for name, text in spec.texts.items() if name not in dropped]
    if not texts:
        return ""
    # A blank line lets markdown begin again inside of HTML.
    inner = "\n\n".join(texts)
    return f"<details><summary>{spec.title}</summary>\n\n{inner}\n\n</details>"


def _section_text(blocks: list[Block]) -> str:
    """Return blocks in which no line is code or an item of a list."""
    flat = tuple(
        Paragraph(block.text.strip(), block.tone)
        if isinstance(block, Paragraph)
        else block
        for block in blocks
    )
    return LIST_MARK.sub(r"\\\1 ", render(flat).rstrip("\n"))
