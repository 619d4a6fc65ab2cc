"""The lines of machines in Cloud Logging: one log of the project, with labels."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from stacks.operate.logs import LogLine
from stacks.operate.rest import ask, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogQuery

LIST_URL: Final = "https://logging.googleapis.com/v2/entries:list"
SCOPE: Final = "https://www.googleapis.com/auth/logging.read"
PAGE_SIZE: Final = 1000


def read_lines(query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack. Raises OSError, of the kinds of `stacks.operate.rest`."""
    try:
        credentials, project = google.auth.default(scopes=[SCOPE])
        if not project:
            raise PermissionError(
                "no project is chosen: gcloud config set project PROJECT"
            )
        session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        with_retries(session)
        question: dict[str, Any] = {
            "resourceNames": [f"projects/{project}"],
            "filter": _filter(query, project),
            "orderBy": "timestamp asc",
            "pageSize": PAGE_SIZE,
        }
        while True:
            page = ask(session, LIST_URL, question)
            yield from map(_line, page.get("entries", []))
            # A page may be empty and still not be the last.
            if not page.get("nextPageToken"):
                return
            question["pageToken"] = page["nextPageToken"]
    except GoogleAuthError as error:
        raise PermissionError(str(error)) from error


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
