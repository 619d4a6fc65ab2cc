"""The lines of machines in the Log Analytics workspace of their stack: one table."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from providers.azure.client import open_session
from providers.live.rest import send
from stacks.operate.logs import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogQuery

QUERY_URL: Final = "https://api.loganalytics.azure.com/v1/workspaces"
COLUMNS: Final = ("TimeGenerated", "Pool", "Machine", "Source", "Line")
# Azure answers with so many rows at most.
MOST_ROWS: Final = 30_000


def read_lines(query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack. Raises the errors of `providers.live.access`."""
    if not query.workspace:
        raise FileNotFoundError("the stack has no workspace of logs")
    answer = send(
        open_session("https://api.loganalytics.io"),
        "POST",
        f"{QUERY_URL}/{query.workspace}/query",
        {"query": _question(query)},
    )
    [table] = answer["tables"]
    for time, group, machine, source, text in table["rows"]:
        yield LogLine(
            time=datetime.fromisoformat(time),
            group=group,
            machine=machine,
            source=source,
            text=text,
        )


def _question(query: LogQuery) -> str:
    """The question in the language of Azure. A line that is there twice has one `Key`."""
    conditions = [f"TimeGenerated >= datetime({query.since.isoformat()})"]
    if query.group:
        conditions.append(f'Pool == "{query.group}"')
    return (
        f"Tonnage_CL | where {' and '.join(conditions)} "
        "| summarize arg_min(TimeGenerated, *) by Key "
        f"| top {MOST_ROWS} by TimeGenerated asc | project {', '.join(COLUMNS)}"
    )
