"""The body of a comment: short enough, headline first, and what is left out is told."""

from __future__ import annotations

import re

import pytest

from planner.render.diff.comment import (
    COMMENT_MARKER,
    DROPPED_FIRST,
    MOST_LETTERS,
    SECTIONS,
    comment_body,
)
from tests.planner.render.differences import (
    EXCEEDED,
    HOSTILE,
    amount,
    document,
    spec,
)


def many(count: int, lines: int = 30):
    return document(
        *(
            spec(f"s{n}.yaml", amount(n), amount(3 * n), line_count=lines)
            for n in range(1, count + 1)
        ),
        thresholds=(EXCEEDED,),
    )


@pytest.mark.parametrize("count", [1, 20, 60, 500])
def test_a_body_is_short_enough_and_keeps_its_headline(count: int) -> None:
    body = comment_body(many(count))
    assert len(body) <= MOST_LETTERS
    first, second = [line for line in body.splitlines() if line][:2]
    assert first == COMMENT_MARKER
    total = count * (count + 1)
    assert second.startswith(f"### tonnage: **+${total:,}.00 a month")
    assert "**failed**: above +10%" in body


def test_whole_sections_go_in_a_fixed_order_and_that_is_told() -> None:
    assert set(DROPPED_FIRST) == set(SECTIONS)
    told = many(4, lines=8)
    whole = comment_body(told, most_letters=10**9)
    assert "Left out" not in whole
    seen = []
    for most in range(len(whole), 200, -50):
        found = re.search(
            r"Left out, .*: (.*)\. All", comment_body(told, most_letters=most)
        )
        names = found[1].split(", ") if found else []
        assert names == list(DROPPED_FIRST[: len(names)])
        seen.append(len(names))
    assert seen == sorted(seen)
    assert seen[-1] == len(DROPPED_FIRST)


def test_rows_that_do_not_fit_are_counted() -> None:
    body = comment_body(many(300, lines=1))
    rows = [row for row in body.splitlines() if row.startswith("| ~ | s")]
    hidden = re.search(r"and (\d+) specs more", body)
    assert hidden is not None
    assert len(rows) + int(hidden[1]) == 300
    # Those that move the total most are shown.
    assert "s300.yaml" in body
    assert "| s1.yaml |" not in body


def test_what_somebody_wrote_stays_text() -> None:
    body = comment_body(
        document(
            spec(f"{HOSTILE}.yaml", amount(1), amount(2), value=HOSTILE),
            spec("b.yaml", amount(1), None),
        )
    )
    assert "<img" not in body
    assert not any(row.startswith("::") for row in body.splitlines())
    assert "[l](u)" not in body
    assert not re.search(r"(?<!\\)@all", body)
    # Tags are those that fold the details, and nothing else.
    assert set(re.findall(r"</?([a-z]+)", body)) == {
        "details",
        "summary",
        "sub",
    }
    assert body.count("<details>") == body.count("</details>") == 2
    # Every row of a table has as many cells as its head.
    for table in re.findall(r"(?:^\|.*\n)+", body, re.MULTILINE):
        widths = {
            len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()
        }
        assert len(widths) == 1
