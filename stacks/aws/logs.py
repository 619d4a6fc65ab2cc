"""The lines of machines in CloudWatch Logs: a stream for each of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from providers.aws.client import service
from stacks.operate.logs import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogQuery


def read_lines(query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack. Raises the errors of `providers.live.access`."""
    streams = {"logStreamNamePrefix": f"{query.group}/"} if query.group else {}
    with service("logs", query.region) as client:
        for page in client.get_paginator("filter_log_events").paginate(
            logGroupName=f"/tonnage/{query.stack}",
            startTime=int(query.since.timestamp() * 1000),
            **streams,
        ):
            for event in page["events"]:
                group, _, machine = event["logStreamName"].rpartition("/")
                source, _, text = event["message"].partition(": ")
                yield LogLine(
                    time=datetime.fromtimestamp(event["timestamp"] / 1000, UTC),
                    group=group,
                    machine=machine,
                    source=source,
                    text=text,
                )
