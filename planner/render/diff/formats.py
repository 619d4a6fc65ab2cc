"""The formats in which a difference is written, by the name of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from planner.plan.diff_document import dump_diff
from planner.render.diff.comment import comment_body
from planner.render.diff.github import workflow_commands
from planner.render.diff.gitlab import code_quality_report
from planner.render.diff.sarif import sarif_log
from planner.render.diff.table import diff_table
from planner.render.html.comparison import diff_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planner.plan.diff_document import DiffDocument
    from planner.plan.policy.verdict import Verdict

Writer: TypeAlias = "Callable[[DiffDocument, Sequence[Verdict]], str]"


def _without_verdicts(write: Callable[[DiffDocument], str]) -> Writer:
    """Return a writer of the difference alone: what policies say is told beside it."""
    return lambda document, _verdicts: write(document)


# Text is not among them: it has colors, and the width of a terminal.
WRITERS: Final[Mapping[str, Writer]] = {
    "json": _without_verdicts(dump_diff),
    "markdown": comment_body,
    "csv": _without_verdicts(diff_table),
    "html": _without_verdicts(diff_report),
    "github": _without_verdicts(workflow_commands),
    "gitlab": _without_verdicts(code_quality_report),
    "sarif": sarif_log,
}
