"""The lines of machines in Cloud Logging: one log of the project, with labels."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from providers.gcp.client import open_account
from providers.live.rest import send
from stacks.operate.logs import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogQuery

LIST_URL: Final = "https://logging.googleapis.com/v2/entries:list"
PAGE_SIZE: Final = 1000


def read_lines(query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack. Raises the errors of `providers.live.access`."""
    account = open_account()
    question: dict[str, Any] = {
        "resourceNames": [f"projects/{account.project}"],
        "filter": _filter(query, account.project),
        "orderBy": "timestamp asc",
        "pageSize": PAGE_SIZE,
    }
    while True:
        page = send(account.session, "POST", LIST_URL, question)
        yield from map(_line, page.get("entries", []))
        # A page may be empty and still not be the last.
        if not page.get("nextPageToken"):
            return
        question["pageToken"] = page["nextPageToken"]


def _filter(query: LogQuery, project: str) -> str:
    conditions = {
        "logName": f"projects/{project}/logs/tonnage",
        "labels.stack": query.stack,
        **({"labels.group": query.group} if query.group else {}),
    }
    return " AND ".join(
        [
            *(
                f"{name} = {json.dumps(text)}"
                for name, text in conditions.items()
            ),
            f'timestamp >= "{query.since.isoformat()}"',
        ]
    )


def _line(entry: dict[str, Any]) -> LogLine:
    labels = entry.get("labels", {})
    return LogLine(
        time=datetime.fromisoformat(entry["timestamp"]),
        group=labels.get("group", ""),
        machine=entry["resource"]["labels"]["instance_id"],
        source=labels.get("source", ""),
        text=entry.get("textPayload", ""),
    )
