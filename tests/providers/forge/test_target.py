"""Where a comment goes: what CIs say, as their references have it, and what users say instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import CredentialError, UsageError
from providers.forge.host import forge_names
from providers.forge.setting import (
    names_tried,
    token_rows,
    variable_rows,
    with_event,
)
from providers.forge.target import TargetOptions, find_target, require_login

# Variables of a job on a request, with the values of the examples in each CI's reference.
ACTIONS = {
    "GITHUB_REPOSITORY": "octocat/Hello-World",
    "GITHUB_REF": "refs/pull/12/merge",
    "GITHUB_API_URL": "https://api.github.com",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_RUN_ID": "1658821493",
    "GITHUB_RUN_ATTEMPT": "3",
    "GITHUB_SHA": "ffac537e6cbbf934b08745a378932722df287a53",
    "GITHUB_ACTOR": "octocat",
}
GITLAB = {
    "CI_API_V4_URL": "https://example.com/gitlab/api/v4",
    "CI_MERGE_REQUEST_PROJECT_PATH": "namespace/awesome-project",
    "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "namespace/awesome-project",
    "CI_MERGE_REQUEST_IID": "1",
    "CI_COMMIT_SHA": "1ecfd275763eff1d6b4844ea3168962458c9f27a",
    "CI_PIPELINE_ID": "1201",
    "CI_JOB_ID": "55",
    "CI_JOB_URL": "https://example.com/gitlab/namespace/awesome-project/-/jobs/55",
}
BITBUCKET = {
    "BITBUCKET_REPO_FULL_NAME": "acme/infra",
    "BITBUCKET_PR_ID": "7",
    "BITBUCKET_COMMIT": "7f777ed95a19224294949e1b4ce56bbffcb1fe9f",
    "BITBUCKET_BUILD_NUMBER": "401",
    "BITBUCKET_STEP_RUN_NUMBER": "1",
}
AZURE = {
    "SYSTEM_COLLECTIONURI": "https://dev.azure.com/fabrikamfiber/",
    "SYSTEM_TEAMPROJECT": "web shop",
    "BUILD_REPOSITORY_NAME": "infra",
    "SYSTEM_PULLREQUEST_PULLREQUESTID": "17",
    "SYSTEM_PULLREQUEST_SOURCECOMMITID": "7f777ed95a19224294949e1b4ce56bbffcb1fe9f",
    "SYSTEM_PULLREQUEST_ISFORK": "False",
    "BUILD_BUILDID": "908",
    "SYSTEM_JOBATTEMPT": "2",
}
NOTHING = TargetOptions()


@pytest.mark.parametrize(
    ("forge", "variables", "text", "api", "run"),
    [
        (
            "github",
            ACTIONS,
            "octocat/Hello-World#12",
            "https://api.github.com",
            (1658821493, 3),
        ),
        (
            "gitlab",
            GITLAB,
            "namespace/awesome-project!1",
            "https://example.com/gitlab/api/v4",
            (1201, 55),
        ),
        (
            "bitbucket",
            BITBUCKET,
            "acme/infra#7",
            "https://api.bitbucket.org/2.0",
            (401, 1),
        ),
        (
            "azure-devops",
            AZURE,
            "web shop/infra!17",
            "https://dev.azure.com/fabrikamfiber",
            (908, 2),
        ),
    ],
)
def test_a_job_on_a_request_says_where_its_comment_goes(
    forge: str,
    variables: dict[str, str],
    text: str,
    api: str,
    run: tuple[int, ...],
) -> None:
    target = find_target(forge, NOTHING, variables)
    assert (target.text, target.api, target.run) == (text, api, run)
    assert len(target.commit) == 40
    assert not target.is_restricted


OTHERS = [
    # A branch pipeline that has an open merge request.
    (
        "gitlab",
        {"CI_OPEN_MERGE_REQUESTS": "gitlab-org/gitlab!333,gitlab-org/x!2"},
        "gitlab-org/gitlab!333",
    ),
    (
        "github",
        {
            "CHANGE_URL": "https://github.com/acme/infra/pull/9",
            "CHANGE_ID": "9",
        },
        "acme/infra#9",
    ),
    (
        "gitlab",
        {
            "CHANGE_URL": "https://git.example.com/a/b/infra/-/merge_requests/9",
            "CHANGE_ID": "9",
        },
        "a/b/infra!9",
    ),
    (
        "bitbucket",
        {
            "CHANGE_URL": "https://git.example.com/bb/projects/ACME/repos/infra/pull-requests/9/overview",
            "CHANGE_ID": "9",
        },
        "ACME/infra#9",
    ),
    (
        "github",
        {"BASE_REPO_OWNER": "acme", "BASE_REPO_NAME": "infra", "PULL_NUM": "4"},
        "acme/infra#4",
    ),
    (
        "github",
        {
            "BUILD_REPOSITORY_NAME": "acme/infra",
            "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "5",
        },
        "acme/infra#5",
    ),
]


@pytest.mark.parametrize(("forge", "variables", "text"), OTHERS)
def test_other_cis_say_it_in_their_own_variables(
    forge: str, variables: dict[str, str], text: str
) -> None:
    assert find_target(forge, NOTHING, variables).text == text


def event(folder: Path, **document: object) -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(json.dumps(document))
    return with_event({**ACTIONS, "GITHUB_EVENT_PATH": str(path)})


def pull(repository: str) -> dict[str, object]:
    return {
        "number": 34,
        "head": {"sha": "a" * 40, "repo": {"full_name": repository}},
    }


def test_the_event_of_github_says_more_than_its_variables(
    tmp_path: Path,
) -> None:
    """On pull_request_target the ref is that of the base, on pull_request the commit a merge."""
    variables = event(tmp_path, pull_request=pull("octocat/Hello-World"))
    target = find_target("github", NOTHING, variables)
    assert target.request == 34
    assert target.commit == "a" * 40
    assert not target.is_restricted


def test_jobs_of_forks_and_of_dependabot_are_known(tmp_path: Path) -> None:
    variables = event(tmp_path, pull_request=pull("stranger/Hello-World"))
    assert find_target("github", NOTHING, variables).is_restricted
    bot = {**ACTIONS, "GITHUB_ACTOR": "dependabot[bot]"}
    assert find_target("github", NOTHING, bot).is_restricted
    fork = {**GITLAB, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "x/y"}
    assert find_target("gitlab", NOTHING, fork).is_restricted
    build = {**AZURE, "SYSTEM_PULLREQUEST_ISFORK": "True"}
    assert find_target("azure-devops", NOTHING, build).is_restricted


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_an_event_that_cannot_be_read_says_nothing(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "event.json"
    path.write_text(text)
    for name in (str(path), str(tmp_path / "none"), str(tmp_path)):
        variables = with_event({**ACTIONS, "GITHUB_EVENT_PATH": name})
        assert find_target("github", NOTHING, variables).request == 12


def test_options_come_before_the_ci() -> None:
    options = TargetOptions(
        repository="a/b", request=3, api="https://g.example.com/api/v3"
    )
    target = find_target("github", options, ACTIONS)
    assert target.text == "a/b#3"
    assert target.api == "https://g.example.com/api/v3"


@pytest.mark.parametrize("forge", forge_names())
def test_what_nothing_says_is_asked_for_with_the_variables_that_could(
    forge: str,
) -> None:
    api = "https://dev.azure.com/a"
    missing = {
        "--repo": TargetOptions(api=api),
        "--request": TargetOptions(api=api, repository="a/b"),
    }
    for flag, options in missing.items():
        with pytest.raises(UsageError) as refused:
            find_target(forge, options, {})
        (problem,) = refused.value.problems
        assert flag in problem.next_step
        field = "repository" if flag == "--repo" else "request"
        assert names_tried(forge, field)[0] in problem.cause


@pytest.mark.parametrize(
    "options",
    [
        TargetOptions(repository="infra", request=1),
        TargetOptions(repository="a/b/../c d", request=1),
        TargetOptions(repository="a/b", request=1, api="ftp://x"),
        TargetOptions(repository="a/b", request=1, api="https://"),
        TargetOptions(repository="a/b", request=1, api="https://u:p@x.example"),
        TargetOptions(
            repository="a/b", request=1, api="https://x/?token=abcdef"
        ),
    ],
)
def test_odd_places_are_refused_and_no_password_is_told(
    options: TargetOptions,
) -> None:
    with pytest.raises(UsageError) as refused:
        find_target("github", options, {})
    (problem,) = refused.value.problems
    shown = f"{problem.message} {problem.cause} {problem.next_step}"
    assert "u:p" not in shown
    assert "abcdef" not in shown


def test_every_row_names_variables_and_every_forge_has_what_it_needs() -> None:
    for row in variable_rows():
        assert row.variables, row
    for forge in forge_names():
        fields = {row.field for row in variable_rows() if row.forge == forge}
        assert {"repository", "request", "commit", "run"} <= fields
        assert [row for row in token_rows() if row.forge == forge]


@pytest.mark.parametrize("row", token_rows(), ids=lambda row: row.variable)
def test_a_token_is_sent_as_its_host_expects(row) -> None:
    variables = {row.variable: " token-1234 \n", row.user_variable: "ada"}
    login = require_login(row.forge, variables)
    kind = "Basic " if row.is_basic else "Bearer "
    assert login.header.startswith(kind)
    assert ("token-1234" in login.header) is not row.is_basic
    assert "token-1234" not in repr(login)


@pytest.mark.parametrize(
    "token", ["two\nlines-of", "tab\tbed-token", "tökén-12345"]
)
def test_letters_that_no_token_has_are_told_without_it(token: str) -> None:
    """Python's own message would have the header, and the token in it."""
    with pytest.raises(CredentialError) as refused:
        require_login("github", {"GITHUB_TOKEN": token})
    (problem,) = refused.value.problems
    assert "GITHUB_TOKEN" in problem.message
    assert token not in f"{problem} {refused.value!r}"


@pytest.mark.parametrize("forge", forge_names())
def test_without_a_token_it_says_how_one_is_given(forge: str) -> None:
    """The token of a GitLab job cannot write notes, so it is not even tried."""
    with pytest.raises(CredentialError) as refused:
        require_login(forge, {"CI_JOB_TOKEN": "glcbt-0123456789"})
    (problem,) = refused.value.problems
    names = [row.variable for row in token_rows() if row.forge == forge]
    assert all(name in problem.message for name in names)
    assert any(name in problem.next_step for name in names)
