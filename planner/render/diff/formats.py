"""The formats in which a difference is written, by the name of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.diff_document import dump_diff
from planner.render.diff.comment import comment_body
from planner.render.diff.github import workflow_commands
from planner.render.diff.gitlab import code_quality_report
from planner.render.diff.sarif import sarif_log
from planner.render.diff.table import diff_table
from planner.render.html.comparison import diff_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.plan.diff_document import DiffDocument

# Text is not among them: it has colors, and the width of a terminal.
WRITERS: Final[Mapping[str, Callable[[DiffDocument], str]]] = {
    "json": dump_diff,
    "markdown": comment_body,
    "csv": diff_table,
    "html": diff_report,
    "github": workflow_commands,
    "gitlab": code_quality_report,
    "sarif": sarif_log,
}
