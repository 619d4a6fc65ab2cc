"""A difference as commands of GitHub's workflows: each is an annotation of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.render.diff.finding import diff_findings
from planner.render.diff.wording import headline

if TYPE_CHECKING:
    from planner.plan.diff_document import DiffDocument
    from planner.render.diff.finding import DiffFinding, Level

# GitHub shows so many of each kind for a step, and drops the others without a word.
MOST_OF_A_KIND: Final = 10
COMMANDS: Final[dict[Level, str]] = {
    "error": "error",
    "warning": "warning",
    "note": "notice",
}


def workflow_commands(document: DiffDocument) -> str:
    """Return annotations: the total first, then at most ten of each kind with what is left out."""
    findings = diff_findings(document)
    lines = [_command("notice", "tonnage", headline(document), "")]
    for level, command in COMMANDS.items():
        of_level = [entry for entry in findings if entry.level == level]
        # The total is a notice too.
        most = MOST_OF_A_KIND - (command == "notice")
        if len(of_level) > most:
            of_level, hidden = of_level[: most - 1], of_level[most - 1 :]
            text = f"{len(hidden)} more: see tonnage diff"
            lines.append(_command(command, "tonnage", text, ""))
        lines += [_annotation(finding, command) for finding in of_level]
    return "".join(f"{line}\n" for line in lines)


def _annotation(finding: DiffFinding, command: str) -> str:
    title = f"tonnage {finding.rule}"
    if finding.path is None:
        return _command(command, title, finding.message, "")
    place = (
        f"file={_property(finding.path)},line={finding.line},"
        f"col={finding.column},"
    )
    return _command(command, title, finding.message, place)


def _command(command: str, title: str, message: str, place: str) -> str:
    return f"::{command} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Return a text in which nothing ends a command, or begins another one."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return a text in which nothing ends a property."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
