"""Comments: found again by a line that nobody sees, cut at whole sections, no command to a bot."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from planner.render.comment import (
    TAG,
    CommentMarker,
    comment_text,
    folded_text,
    from_fork,
    marker_line,
    read_marker,
    without_html,
    without_marker,
)
from planner.render.comment_cut import (
    comment_blocks,
    cut_comment,
    open_fence,
    utf16_size,
)

COMMONMARK = MarkdownIt("commonmark", {"html": True}).enable("table")
MARKER = CommentMarker(tag="cost", run=(12, 1), commit="91c77aa", key="a1")
markers = st.builds(
    CommentMarker,
    tag=st.text("abz019-", min_size=1, max_size=40).filter(TAG.fullmatch),
    run=st.lists(st.integers(0, 10**12), max_size=3).map(tuple),
    commit=st.text("0189abcdef", max_size=40),
    key=st.text("0189abcdef", max_size=16),
    state=st.sampled_from(["", "hidden"]),
)
# Text as reports have it: headings, folds, code, tables, emoji, and lines that look like these.
pieces = st.sampled_from(
    [
        "# head",
        "## part",
        "words and *more* words",
        "| a | b |\n|---|--:|\n| x | 1 |",
        "```\n## no heading\n```",
        "<details><summary>More</summary>\n\n## inner\n\ntext\n\n</details>",
        "💰 " * 20,
        "x" * 300,
        "~~~\nnever closed",
        "</details>",
    ]
)
bodies = st.lists(pieces, min_size=1, max_size=12).map("\n\n".join)


@given(markers, st.booleans())
def test_a_marker_is_read_as_it_was_written(
    marker: CommentMarker, has_html: bool
) -> None:
    line = marker_line(marker, has_html=has_html)
    assert read_marker(f"{line}\n\ntext") == marker
    assert read_marker(f"{line}\r\n\r\ntext") == marker
    assert "\n" not in line


@given(bodies, st.booleans())
def test_only_the_first_line_marks_a_comment(body: str, has_html: bool) -> None:
    line = marker_line(MARKER, has_html=has_html)
    assert read_marker(body) is None
    assert read_marker(f"quoted:\n\n{line}\n\n{body}") is None
    assert read_marker(f"> {line}") is None


@given(markers)
def test_a_reader_does_not_see_a_marker(marker: CommentMarker) -> None:
    """As a parser of CommonMark shows it that we did not write."""
    shown = COMMONMARK.render(f"{marker_line(marker, has_html=False)}\n\ntext")
    assert shown == "<p>text</p>\n"
    line = marker_line(marker, has_html=True)
    assert COMMONMARK.render(f"{line}\n\ntext") == f"{line}\n<p>text</p>\n"


@given(bodies)
def test_blocks_are_those_of_commonmark(body: str) -> None:
    """None is cut in its middle: shown one by one, they are what is shown of the whole."""
    shown = [
        COMMONMARK.render(f"{block.text}\n") for block in comment_blocks(body)
    ]
    assert "".join(shown) == COMMONMARK.render(f"{body}\n")


def test_an_escaped_command_looks_as_it_was_written() -> None:
    text = comment_text("/merge now", MARKER, has_html=True, limit=1000)
    assert COMMONMARK.render(text).endswith("<p>/merge now</p>\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- tonnage:comment:v2 tag=cost -->",
        "<!-- other:comment:v1 tag=cost -->",
        "<!-- tonnage:comment:v1 tag=COST! -->",
    ],
)
def test_markers_of_other_forms_are_not_ours(text: str) -> None:
    assert read_marker(text) is None


def test_what_a_host_does_to_a_text_does_not_hide_its_marker() -> None:
    """GitHub sends carriage returns back, GitLab cuts the ends off, people edit below."""
    text = comment_text("one", MARKER, has_html=True, limit=1000)
    for kept in (text.strip(), text.replace("\n", "\r\n"), text + "edited"):
        assert read_marker(kept) == MARKER
    assert without_marker(text.replace("\n", "\r\n")) == "one"


def test_a_comment_is_cut_from_one_character_above_its_limit() -> None:
    whole = comment_text("words\n\n" * 90, MARKER, has_html=True, limit=9999)
    size = utf16_size(whole)
    for limit in (size, size - 1):
        text = comment_text(
            "words\n\n" * 90, MARKER, has_html=True, limit=limit
        )
        assert utf16_size(text) <= limit
        assert (text == whole) == (limit == size)


@given(bodies, st.integers(200, 2000), st.booleans())
def test_a_comment_never_exceeds_its_limit(
    body: str, limit: int, has_html: bool
) -> None:
    text = comment_text(
        body,
        MARKER,
        has_html=has_html,
        limit=limit,
        report_url="https://ci.example.com/1",
    )
    # The note and the marker alone take some room.
    assert utf16_size(text) <= max(limit, 330)
    assert read_marker(text) == MARKER


@given(bodies)
def test_a_text_is_its_blocks(body: str) -> None:
    joined = "\n\n".join(block.text for block in comment_blocks(body))
    assert re.sub(r"\n+", "\n", joined) == re.sub(
        r"\n+", "\n", body.strip("\n")
    )


@given(bodies, st.integers(250, 1500))
def test_what_is_cut_is_whole(body: str, room: int) -> None:
    """Code stays closed, folds too, and every block is there as a whole or not at all."""
    cut = cut_comment(body, room, room, "")
    blocks = [block.text for block in comment_blocks(body)]
    if cut != body and blocks[0] in cut:
        *kept, note = comment_blocks(cut)
        assert note.text.startswith("*Left out: ")
        closed = {block.text for block in kept} - set(blocks)
        # What was never closed takes all that follows it, and is closed.
        assert {text.removesuffix("\n~~~") for text in closed} <= set(blocks)
    if cut != body:
        fence = ""
        for line in cut.split("\n"):
            fence = open_fence(line, fence)
        assert fence == ""


def test_folds_go_first_then_sections_from_the_end_and_the_headline_never() -> (
    None
):
    text = "\n\n".join(
        [
            "# +$4,125 a month",
            "intro",
            "<details><summary>A</summary>\n\n" + "a" * 400 + "\n\n</details>",
            "## one",
            "b" * 400,
            "## two",
            "c" * 400,
        ]
    )
    parts = {
        "fold": "<summary>A",
        "one": "bbb",
        "two": "ccc",
        "intro": "intro",
        "head": "# +$4,125",
    }
    left = [
        {name for name, part in parts.items() if part in cut}
        for cut in (
            cut_comment(text, room, 65_536, "")
            for room in (5000, 1200, 700, 250, 200)
        )
    ]
    assert left[0] == set(parts)
    assert left[1] == {"one", "two", "intro", "head"}
    assert left[2] == {"one", "intro", "head"}
    assert left[3] == {"intro", "head"}
    assert all(later <= earlier for earlier, later in pairwise(left))
    assert all("head" in names for names in left)


def test_a_note_says_how_much_is_left_out_and_where_it_is() -> None:
    text = "# a\n\n" + "\n\n".join(f"## {n}\n\n{'x' * 100}" for n in range(40))
    cut = cut_comment(text, 800, 65_536, "https://ci.example.com/1")
    assert re.search(
        r"\*Left out: \d+ parts, as a comment has at most 65,536 characters"
        r": \[the whole report\]\(https://ci.example.com/1\)\*$",
        cut,
    )


def test_of_one_long_table_the_first_rows_stay() -> None:
    rows = "\n".join(f"| stack-{n} | 1 |" for n in range(5000))
    cut = cut_comment(f"| a | b |\n|---|---|\n{rows}", 3000, 65_536, "")
    assert cut.startswith("| a | b |\n|---|---|\n| stack-0 | 1 |\n")
    assert "Left out: the end" in cut


def test_a_long_report_is_cut_in_time_that_grows_with_its_length() -> None:
    """Of twenty thousand sections all but some hundred are left out."""
    text = "\n\n".join(f"## {n}\n\n{'words ' * 20}" for n in range(20_000))
    assert utf16_size(cut_comment(text, 65_536, 65_536, "")) <= 65_536


COMMANDS = ["/merge", "/approve", "  /close", "/label ~x", "/lgtm"]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_line_is_a_command_to_a_bot(line: str) -> None:
    """Quick actions of GitLab run with the rights of whoever posts: ours."""
    text = comment_text(
        f"head\n\n{line}\n\n```\n{line}\n```",
        MARKER,
        has_html=True,
        limit=5000,
    )
    outside, _, code = text.partition("```")
    assert not re.search(r"(?m)^\s*/[a-z]", outside)
    # As GitLab says: in code they are none. There the text stays as it is.
    assert line in code


def test_controls_and_secrets_of_addresses_are_not_posted() -> None:
    text = comment_text(
        "a\x1b[31mb\u202ec https://user:pass@example.com/x",
        MARKER,
        has_html=True,
        limit=5000,
    )
    assert "\u202e" not in text
    assert "pass@" not in text


def test_a_host_without_html_gets_open_folds() -> None:
    body = (
        "<details><summary>More</summary>\n\na<br>b <sub>c</sub>\n\n"
        "```\n<details>\n```\n\n</details>\n<!-- note -->"
    )
    text = without_html(body)
    assert "**More**" in text
    assert "a b c" in text
    assert "```\n<details>\n```" in text
    assert text.count("<") == 1


@given(bodies)
def test_open_folds_take_no_more_room(body: str) -> None:
    assert len(without_html(body)) <= len(body)


def test_an_outdated_comment_shows_one_line_and_keeps_the_rest() -> None:
    text = comment_text("# old\n\ntext", MARKER, has_html=True, limit=5000)
    hidden = CommentMarker(tag="cost", run=(12, 1), state="hidden")
    folded = folded_text(text, hidden, 5000)
    found = read_marker(folded)
    assert found is not None
    assert found.state == "hidden"
    assert "<details><summary>Outdated" in folded
    assert "# old\n\ntext" in folded
    long_text = comment_text("x" * 9000, MARKER, has_html=True, limit=5000)
    assert utf16_size(folded_text(long_text, hidden, 5000)) <= 5000


def test_what_a_fork_wrote_says_so_and_calls_nobody() -> None:
    body = from_fork(
        "cc @acme/admins and \\@ada\n\n```\n@decorator\n```",
        "ada/infra",
        "9" * 40,
    )
    assert body.startswith(
        "> Computed by a job that runs the code of `ada/infra`"
    )
    assert "@acme" not in body
    assert "@ada" not in body
    assert "```\n@decorator\n```" in body
