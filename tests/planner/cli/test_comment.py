"""The command: what it posts, what it says, and what becomes of a comment that it may not post."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from planner.cli import posting
from planner.render.comment import read_marker
from tests.conftest import ROOT
from tests.planner.cli.conftest import Command
from tests.providers.forge.conftest import QuickClock
from tests.providers.forge.hosts import (
    HEAD,
    HOSTS,
    TOKEN,
    FakeHost,
    Fault,
    Reply,
    serving,
)

pytestmark = pytest.mark.enable_socket
FORGES = {
    "github": "github",
    "gitlab": "gitlab",
    "bitbucket-cloud": "bitbucket",
    "bitbucket-data-center": "bitbucket",
    "azure-devops": "azure-devops",
}
TOKENS = {
    "github": "GITHUB_TOKEN",
    "gitlab": "GITLAB_TOKEN",
    "bitbucket": "BITBUCKET_TOKEN",
    "azure-devops": "SYSTEM_ACCESSTOKEN",
}
# Variables by which some CI would say where a comment goes.
CI_PREFIXES = (
    "GITHUB_",
    "GH_",
    "GITLAB_",
    "CI_",
    "BITBUCKET_",
    "SYSTEM_",
    "BUILD_",
    "AZURE_",
    "CHANGE_",
    "BASE_REPO_",
    "PULL_",
    "HEAD_",
    "GIT_",
)
READ_ONLY = Reply(
    403,
    {
        "message": "Resource not accessible by integration",
        "documentation_url": "https://docs.github.com/rest",
        "status": "403",
    },
)


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(CI_PREFIXES):
            monkeypatch.delenv(name)
    monkeypatch.setattr(posting, "new_clock", QuickClock)


@pytest.fixture(params=sorted(HOSTS))
def host(request: pytest.FixtureRequest) -> Iterator[FakeHost]:
    fake = HOSTS[request.param]()
    with serving(fake):
        yield fake


@pytest.fixture
def github() -> Iterator[FakeHost]:
    fake = HOSTS["github"]()
    with serving(fake):
        yield fake


@pytest.fixture
def body(here: Path) -> str:
    (here / "body.md").write_text("### +$4,125 a month\n\ntext\n")
    return "body.md"


def place(host: FakeHost) -> list[str]:
    return ["--repo", host.repository, "--request", "12", "--api", host.api]


def test_a_body_is_posted_and_the_address_is_printed(
    tonnage: Command,
    host: FakeHost,
    body: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forge = FORGES[host.service]
    monkeypatch.setenv(TOKENS[forge], TOKEN)
    code, out, err = tonnage("comment", forge, body, *place(host))
    assert (code, err) == (0, "")
    assert out.startswith("posted: http")
    (text,) = host.texts()
    assert "### +$4,125 a month" in text
    code, out, _ = tonnage(
        "comment", forge, body, *place(host), "--format", "json"
    )
    document = json.loads(out)
    assert document["deed"] == "unchanged"
    assert document["request"] == 12
    assert len(host.texts()) == 1


def test_a_body_comes_from_standard_input(
    tonnage: Command, github: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    stream = io.TextIOWrapper(io.BytesIO("\ufeff# 💰 grün\r\n".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert tonnage("comment", "github", "-", *place(github))[0] == 0
    assert github.texts()[0].endswith("\n\n# 💰 grün\n")


def test_a_dry_run_sends_nothing_and_needs_no_token(
    tonnage: Command, host: FakeHost, body: str
) -> None:
    forge = FORGES[host.service]
    code, out, err = tonnage(
        "comment", forge, body, *place(host), "--dry-run", "--tag", "gpu"
    )
    assert code == 0
    assert host.asked == []
    marker = read_marker(out)
    assert marker is not None
    assert marker.tag == "gpu"
    assert "dry run: update at" in err
    assert (
        out
        == tonnage(
            "comment", forge, body, *place(host), "--dry-run", "--tag", "gpu"
        )[1]
    )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["github"], "BODY or --from-artifact"),
        (["github", "a", "--from-artifact", "b"], "not both"),
        (["forge", "a"], "'github', 'gitlab'"),
        (["github", "a", "--tag", "No Tag"], "lower-case"),
        (["github", "a", "--timeout", "soon"], "time span"),
        (["github", "a", "--behavior", "replace"], "hide-and-new"),
        (["github", "a", "--request", "0"], "--request"),
    ],
)
def test_odd_command_lines_are_refused(
    tonnage: Command, argv: list[str], said: str
) -> None:
    code, out, err = tonnage("comment", *argv)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"\xff\xfe\x00", "UTF-8")],
)
def test_a_body_that_is_no_text_is_refused(
    tonnage: Command, here: Path, content: bytes, said: str
) -> None:
    (here / "body.md").write_bytes(content)
    code, _, err = tonnage("comment", "github", "body.md")
    assert code == 2
    assert said in err
    assert tonnage("comment", "github", "none.md")[0] == 6


def github_job(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: FakeHost,
    **event: object,
) -> None:
    """The environment of a job of GitHub Actions."""
    (folder / "event.json").write_text(json.dumps(event))
    for name, value in {
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_REPOSITORY": host.repository,
        "GITHUB_API_URL": host.api,
        "GITHUB_REF": "refs/pull/12/merge",
        "GITHUB_RUN_ID": "77",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }.items():
        monkeypatch.setenv(name, value)


def pull(repository: str) -> dict[str, object]:
    head = {"sha": HEAD, "repo": {"full_name": repository}}
    return {"number": 12, "head": head}


def run_of(repository: str, commit: str = HEAD) -> dict[str, object]:
    return {
        "head_sha": commit,
        "head_repository": {"full_name": repository},
        # GitHub names no request of a fork here.
        "pull_requests": [],
    }


def test_a_job_of_a_request_needs_no_options(
    tonnage: Command,
    github: FakeHost,
    body: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    github_job(here, monkeypatch, github, pull_request=pull("acme/infra"))
    assert tonnage("comment", "github", body)[0] == 0
    marker = read_marker(github.texts()[0])
    assert marker is not None
    assert (marker.run, marker.commit) == ((77, 1), HEAD)


def test_the_comment_of_a_fork_is_held_and_posted_by_a_second_job(
    tonnage: Command,
    github: FakeHost,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (here / "body.md").write_text("### +$1\n\ncc @acme/admins\n\n/merge\n")
    github_job(here, monkeypatch, github, pull_request=pull("fork/infra"))
    github.faults = [Fault("POST", READ_ONLY, path="/comments")]
    code, out, err = tonnage(
        "comment", "github", "body.md", "--hold", "held.json", "--tag", "gpu"
    )
    assert (code, out) == (0, "")
    assert "next: post it from a job that may write" in err
    assert "### +$1" in (here / "summary.md").read_text()
    assert github.comments == {}

    github_job(here, monkeypatch, github, workflow_run=run_of("fork/infra"))
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    code, out, err = tonnage(
        "comment", "github", "--from-artifact", "held.json"
    )
    assert (code, err) == (0, "")
    (text,) = github.texts()
    marker = read_marker(text)
    assert marker is not None
    assert marker.tag == "gpu"
    assert "> Computed by a job that runs the code of `fork/infra`" in text
    assert "@acme" not in text
    assert "\n/merge" not in text


@pytest.mark.parametrize(
    ("run", "head", "code"),
    [
        # The request has moved on: its newest run posts.
        (run_of("fork/infra"), "0" * 40, 11),
        # The file names the request of somebody else.
        (run_of("evil/infra"), HEAD, 11),
        (run_of("fork/infra", "1" * 40), HEAD, 11),
        # Nothing that can be trusted says which commit it is.
        ({}, HEAD, 2),
    ],
)
def test_a_held_comment_is_posted_to_its_own_request_alone(
    tonnage: Command,
    github: FakeHost,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: dict[str, object],
    head: str,
    code: int,
) -> None:
    held = {
        "schema": "tonnage.comment/1",
        "request": 12,
        "commit": HEAD,
        "tag": "cost",
        "behavior": "update",
        "body": "forged",
    }
    (here / "held.json").write_text(json.dumps(held))
    github_job(here, monkeypatch, github, workflow_run=run)
    github.head = head
    found, out, err = tonnage(
        "comment", "github", "--from-artifact", "held.json"
    )
    assert (found, out) == (code, "")
    assert "next: " in err
    assert github.comments == {}


def test_without_a_file_a_fork_is_an_error_with_the_comment_in_the_summary(
    tonnage: Command,
    github: FakeHost,
    body: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    github_job(here, monkeypatch, github, pull_request=pull("fork/infra"))
    github.faults = [Fault("POST", READ_ONLY, path="/comments")]
    code, _, err = tonnage("comment", "github", body)
    assert code == 3
    assert "the comment is in the summary of the job" in err
    assert err.count("next: ") == 1
    assert "--hold FILE" in err
    assert "### +$4,125" in (here / "summary.md").read_text()


def test_a_missing_permission_is_not_taken_for_a_fork(
    tonnage: Command,
    github: FakeHost,
    body: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    github_job(here, monkeypatch, github, pull_request=pull("acme/infra"))
    github.faults = [Fault("POST", READ_ONLY, path="/comments")]
    code, _, err = tonnage("comment", "github", body, "--hold", "held.json")
    assert code == 3
    assert "next: give the job permissions of pull-requests: write" in err


def test_a_fork_of_gitlab_has_no_token_at_all(
    tonnage: Command, body: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CI_MERGE_REQUEST_PROJECT_PATH": "acme/infra",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "fork/infra",
        "CI_MERGE_REQUEST_IID": "12",
        "CI_COMMIT_SHA": HEAD,
    }.items():
        monkeypatch.setenv(name, value)
    code, _, err = tonnage("comment", "gitlab", body, "--hold", "held.json")
    assert code == 0
    assert "held for acme/infra!12 in held.json" in err
    assert json.loads((here / "held.json").read_text())["commit"] == HEAD


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 500])
def test_the_token_is_in_no_output_under_any_fault(
    tonnage: Command,
    host: FakeHost,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    """The body quotes the token, and the service repeats it."""
    forge = FORGES[host.service]
    monkeypatch.setenv(TOKENS[forge], TOKEN)
    (here / "body.md").write_text(f"leaked {TOKEN}\n")
    echo = Reply(status, {"message": f"bad {TOKEN}", "errors": [TOKEN]})
    for method in ("GET", "POST"):
        host.faults = [Fault(method, echo) for _ in range(40)]
        code, out, err = tonnage(
            "comment", forge, "body.md", *place(host), "--hold", "held.json"
        )
        assert code in (3, 4, 6)
        assert err.startswith("error[comment]: ")
        assert err.count("next: ") == 1
        assert TOKEN not in out + err
        assert all(len(line) < 400 for line in err.splitlines())
    host.faults = []
    assert tonnage("comment", forge, "body.md", *place(host))[0] == 0
    for path in here.iterdir():
        if path.name != "body.md":
            assert TOKEN not in path.read_text()
    assert all(TOKEN not in text for text in host.texts())


def test_a_token_on_an_open_way_is_warned_of(
    tonnage: Command, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    code, _, err = tonnage(
        "comment",
        "github",
        body,
        "--repo",
        "a/b",
        "--request",
        "1",
        "--api",
        "http://ghe.example.invalid/api/v3",
    )
    assert code == 4
    assert err.startswith("warning: ")
    assert "error[comment]" in err


def test_a_long_pause_is_told_and_a_short_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    told_clock = posting.TellingClock()
    told_clock.wait(1.2)
    told_clock.wait(61.4)
    assert waited == [1.2, 61.4]
    assert capsys.readouterr().err == "the code host is busy: waiting 61 s\n"


def test_the_job_that_posts_for_forks_never_has_their_code() -> None:
    """The pipelines of the page: only the first one checks out, and only the second one posts."""
    page = (ROOT / "docs" / "comment.md").read_text()
    pipelines = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    first, second = map(yaml.safe_load, pipelines)
    # YAML 1.1 takes the key on for a truth value.
    assert first[True] == "pull_request"
    assert "workflow_run" in second[True]
    (job,) = second["jobs"].values()
    used = [step.get("uses", "") for step in job["steps"]]
    assert not any("checkout" in name for name in used)
    for pipeline in (first, second):
        assert pipeline["permissions"]["pull-requests"] == "write"


def test_earlier_comments_are_counted(
    tonnage: Command,
    github: FakeHost,
    body: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    for behavior, said in (
        ("update", "posted: "),
        ("hide-and-new", "1 earlier hidden"),
        ("delete-and-new", "1 earlier deleted"),
    ):
        code, out, _ = tonnage(
            "comment", "github", body, *place(github), "--behavior", behavior
        )
        assert code == 0
        assert said in out
