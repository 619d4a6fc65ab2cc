"""The lines of machines in CloudWatch Logs: a stream for each of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from stacks.operate.logs import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogQuery

REFUSALS: Final = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
)


def read_lines(query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack. Raises OSError, of the kinds of `stacks.operate.rest`."""
    try:
        yield from _pages(query)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in REFUSALS:
            raise PermissionError(str(error)) from error
        if code == "ResourceNotFoundException":
            raise FileNotFoundError(str(error)) from error
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        is_unknown = "redential" in str(error) or "profile" in str(error)
        kind = PermissionError if is_unknown else OSError
        raise kind(str(error)) from error


def _pages(query: LogQuery) -> Iterator[LogLine]:
    client = Session(region_name=query.region).client(
        "logs", config=Config(retries={"mode": "adaptive", "max_attempts": 8})
    )
    streams = {"logStreamNamePrefix": f"{query.group}/"} if query.group else {}
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
