"""The text of a comment in a pull request: its marker, and what the code host shows of it.

Comments are found again by their first line, which nobody sees. What is posted obeys no command
of a bot, and has neither secrets of URLs nor control characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.clean import clean
from planner.render.comment_cut import cut_comment, open_fence

if TYPE_CHECKING:
    from collections.abc import Callable

# Of a later form nothing is read: an old program does not touch what a new one wrote.
FORM: Final = "tonnage:comment:v1"
TAG_HINT: Final = "lower-case letters, digits and dashes, at most 40"
TAG: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
MARKER: Final = re.compile(
    rf"\s*(?:<!--|\[//\]: # \() ?{FORM} ([a-z0-9=. -]*?) ?(?:-->|\))[^\S\n]*\n?"
)
HIDDEN: Final = "hidden"
# A word after a slash at the start of a line is a command to GitLab and to many bots.
COMMAND: Final = re.compile(r"^(\s{0,3})/(?=[A-Za-z])")
MENTION: Final = re.compile(r"\\?@(?=\w)")
# A mark that takes no room keeps a name from being called.
UNCALLED: Final = "@&#8203;"
SUMMARY: Final = re.compile(r"<summary>(.*?)</summary>")
BREAK: Final = re.compile(r"<br ?/?>")
ELEMENT: Final = re.compile(
    r"</?(?:details|summary|sub|sup|small|b|i|em|strong|p|div|span)(?: [^<>]*)?>|<!--.*?-->"
)
FOLDED: Final = "Outdated: a newer comment follows"


class CommentMarker(Struct, frozen=True, kw_only=True):
    """Whose comment it is, and which run wrote it.

    tag      tells reports of the same request apart
    run      number of the run, and of its attempt; empty where a person has written it
    commit   of the request that it was computed from
    key      a word that no other comment has
    state    empty, or hidden
    """

    tag: str
    run: tuple[int, ...] = ()
    commit: str = ""
    key: str = ""
    state: str = ""


def marker_line(marker: CommentMarker, *, has_html: bool) -> str:
    """Return the line that marks a comment, and that is not shown.

    A code host that escapes HTML shows no definition of a link that nothing uses.
    """
    fields = {
        "tag": marker.tag,
        "run": ".".join(map(str, marker.run)),
        "commit": marker.commit,
        "id": marker.key,
        "state": marker.state,
    }
    words = " ".join(f"{name}={word}" for name, word in fields.items() if word)
    if has_html:
        return f"<!-- {FORM} {words} -->"
    return f"[//]: # ({FORM} {words})"


def read_marker(text: str) -> CommentMarker | None:
    """Return the marker in the first line of a comment; none in one of somebody else."""
    marker_match = MARKER.match(text)
    if marker_match is None:
        return None
    fields = dict(
        word.split("=", 1) for word in marker_match[1].split() if "=" in word
    )
    numbers = fields.get("run", "").split(".")
    return CommentMarker(
        tag=fields.get("tag", ""),
        run=tuple(int(number) for number in numbers if number.isdecimal()),
        commit=fields.get("commit", ""),
        key=fields.get("id", ""),
        state=fields.get("state", ""),
    )


def without_marker(text: str) -> str:
    """Return what a comment says, as it was before it was posted."""
    plain_text = text.replace("\r\n", "\n")
    return MARKER.sub("", plain_text, count=1).strip()


def comment_text(
    body: str,
    marker: CommentMarker,
    *,
    has_html: bool,
    limit: int,
    report_url: str = "",
) -> str:
    """Return a comment of at most `limit` UTF-16 units, cut at whole sections."""
    first_line = marker_line(marker, has_html=has_html)
    # Two ends of lines before the text, and one after it.
    room = limit - len(first_line) - 3
    safe_text = without_commands(clean(body.replace("\r\n", "\n")))
    shown = cut_comment(safe_text.strip(), room, limit, report_url)
    if not has_html:
        # What replaces HTML is shorter than it.
        shown = without_html(shown)
    return f"{first_line}\n\n{shown}\n"


def folded_text(text: str, marker: CommentMarker, limit: int) -> str:
    """Return an outdated comment that shows one line, and the rest to those who open it."""
    first_line = marker_line(marker, has_html=True)
    opening = f"<details><summary>{FOLDED}</summary>"
    frame_size = len(first_line) + len(opening) + len("</details>") + 8
    shown = cut_comment(without_marker(text), limit - frame_size, limit, "")
    return f"{first_line}\n{opening}\n\n{shown}\n\n</details>\n"


def from_fork(body: str, repository: str, commit: str) -> str:
    """Return what the job of a fork wrote, with a line that says so; it calls nobody."""
    source = f"`{repository}` at `{commit[:12]}`" if repository else "a fork"
    quiet_body = _outside_code(
        body, lambda line: MENTION.sub(UNCALLED, line)
    ).strip()
    return (
        f"> Computed by a job that runs the code of {source}.\n\n{quiet_body}\n"
    )


def without_commands(text: str) -> str:
    """Return a text in which no line is a command to GitLab or to a bot."""
    return _outside_code(text, lambda line: COMMAND.sub(r"\1\/", line))


def without_html(text: str) -> str:
    """Return a text for code hosts that show HTML as it is written: folds are open."""
    return _outside_code(text, _plain_line)


def _plain_line(line: str) -> str:
    bold_line = SUMMARY.sub(r"**\1**", line)
    return ELEMENT.sub("", BREAK.sub(" ", bold_line))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change the lines of a text that are not in a block of code."""
    lines = []
    fence = ""
    for line in text.split("\n"):
        was_code = bool(fence)
        fence = open_fence(line, fence)
        lines.append(line if was_code or fence else change(line))
    return "\n".join(lines)
