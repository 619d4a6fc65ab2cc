"""Logs, asked for with the real clients at services that answer as the clouds do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from planner.errors import (
    CredentialError,
    MissingError,
    ResourceError,
    TonnageError,
)
from stacks.operate.logs import LogLine, LogQuery, log_query, read_lines
from tests.loopback import Answer, Cloud
from tests.stacks.operate.test_standing import status_of

START = datetime(2026, 11, 23, 12, tzinfo=UTC)
TEXTS = ["ready", "GET /v1: 200", "sagt: \u201eja\u201c", "", "bye"]
WORKSPACE = "6c1d7b9e-0000-0000-0000-000000000001"


def expected(group: str = "chat-serve") -> list[LogLine]:
    return [
        LogLine(
            time=START + timedelta(seconds=number),
            group=group,
            machine="4711",
            source="tonnage-serve",
            text=text,
        )
        for number, text in enumerate(TEXTS)
    ]


def aws_answer(request: dict[str, Any]) -> Answer:
    """Two pages, of which the first is empty."""
    assert request["logGroupName"] == "/tonnage/chat"
    assert request["startTime"] == int(START.timestamp() * 1000)
    assert request.get("logStreamNamePrefix") in (None, "chat-serve/")
    if "nextToken" not in request:
        return 200, {"events": [], "nextToken": "more"}
    events = [
        {
            "logStreamName": f"{line.group}/{line.machine}",
            "timestamp": int(line.time.timestamp() * 1000),
            "message": f"{line.source}: {line.text}",
        }
        for line in expected()
    ]
    return 200, {"events": events}


def gcp_answer(request: dict[str, Any]) -> Answer:
    assert request["resourceNames"] == ["projects/proj"]
    assert 'logName = "projects/proj/logs/tonnage"' in request["filter"]
    assert 'labels.stack = "chat"' in request["filter"]
    assert 'timestamp >= "2026-11-23T12:00:00+00:00"' in request["filter"]
    if "pageToken" not in request:
        return 200, {"nextPageToken": "more"}
    entries = [
        {
            "timestamp": line.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "resource": {"labels": {"instance_id": line.machine}},
            "labels": {"group": line.group, "source": line.source},
            # What is empty is left out.
            **({"textPayload": line.text} if line.text else {}),
        }
        for line in expected()
    ]
    return 200, {"entries": entries}


def azure_answer(request: dict[str, Any]) -> Answer:
    words = request["query"].split(" | ")
    assert words[0] == "Tonnage_CL"
    assert "TimeGenerated >= datetime(2026-11-23T12:00:00+00:00)" in words[1]
    names = words[-1].removeprefix("project ").split(", ")
    rows = [
        {
            "TimeGenerated": line.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "Pool": line.group,
            "Machine": line.machine,
            "Source": line.source,
            "Line": line.text,
        }
        for line in expected()
    ]
    return 200, {
        "tables": [{"rows": [[row[name] for name in names] for row in rows]}]
    }


ANSWERS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "aws": aws_answer,
    "gcp": gcp_answer,
    "azure": azure_answer,
}


def question(group: str = "") -> LogQuery:
    return LogQuery(
        stack="chat",
        region="us-east-1",
        since=START,
        group=group,
        workspace=WORKSPACE,
    )


@pytest.mark.enable_socket
@pytest.mark.parametrize("group", ["", "chat-serve"])
@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_lines_are_those_that_machines_wrote(
    provider: str, group: str, cloud: Cloud
) -> None:
    cloud.answer = lambda request: ANSWERS[provider](request.document())
    assert list(read_lines(provider, question(group))) == expected()
    if provider == "azure":
        [request] = cloud.asked
        assert request.path == f"/v1/workspaces/{WORKSPACE}/query"


AWS_CODES = {
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    500: "InternalFailure",
}


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, CredentialError), (404, MissingError), (500, ResourceError)],
)
@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_what_a_cloud_refuses_is_an_error_with_a_next_step(
    provider: str,
    status: int,
    kind: type[TonnageError],
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    # AWS tells the kind of an error by its name.
    code = status if provider != "aws" else max(400, status - status % 100)
    cloud.answer = lambda _: (
        code,
        {"__type": AWS_CODES[status], "message": "no"},
    )
    with pytest.raises(kind) as caught:
        list(read_lines(provider, question()))
    assert caught.value.problems[0].next_step


def test_a_pool_is_asked_for_by_the_name_of_its_group(tonnage) -> None:
    status = status_of(tonnage, "chat-8b")
    assert log_query(status, "serve", START).group == "chat-8b-serve"
    assert log_query(status, "", START).group == ""
    with pytest.raises(MissingError, match="no pool prefill"):
        log_query(status, "prefill", START)


def test_simulated_machines_write_nothing(tonnage) -> None:
    status_of(tonnage, "chat-8b")
    code, out, err = tonnage("logs", "chat-8b", "--simulate")
    assert (code, out, "write nothing" in err) == (2, "", True)
    code, _, err = tonnage("logs", "chat-8b", "--since", "soon", "--simulate")
    assert (code, "write a time span" in err) == (2, True)
