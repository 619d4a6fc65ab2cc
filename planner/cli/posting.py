"""Posting of a comment, and what is done with it when the token may only read."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from planner.cli import option
from planner.errors import CredentialError, Problem, StaleError, UsageError
from planner.render.comment import CommentMarker, comment_text, from_fork
from planner.render.comment_cut import cut_comment
from providers.forge.fault import READ_ONLY, ForgeRefusal
from providers.forge.held import (
    COMMIT,
    HeldComment,
    dump_held,
    parse_held,
    same_commit,
)
from providers.forge.host import summary_sizes
from providers.forge.publish import (
    Behavior,
    CommentDraft,
    CommentOutcome,
    Publisher,
    expected_shapes,
)
from providers.forge.registry import open_request
from providers.forge.setting import read_setting, with_event
from providers.forge.target import (
    RequestTarget,
    TargetOptions,
    find_target,
    require_login,
)
from providers.forge.transport import SystemClock, Transport, WaitingClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.forge.protocol import Forge
    from providers.forge.setting import ForgeLogin

HELD_DOCS: Final = "docs/comment.md"
KEY_BYTES: Final = 8
TOLD_PAUSE_S: Final = 5
# A letter of UTF-16 takes at most so many bytes in UTF-8.
BYTES_PER_UNIT: Final = 3
DONE: Final = {
    "created": "posted",
    "updated": "updated",
    "unchanged": "unchanged",
    "superseded": "a newer run has posted",
}


class PostingOptions(Struct, frozen=True, kw_only=True):
    """What a user asks for. `hold` is a file, or empty."""

    forge: str
    target: TargetOptions
    tag: str
    behavior: Behavior
    hold: str
    timeout_s: float
    is_dry_run: bool
    format: str


class TellingClock(SystemClock):
    """The clock of this machine, which says when it waits for long."""

    def wait(self, pause_s: float) -> None:
        """Return after a pause."""
        if pause_s >= TOLD_PAUSE_S:
            click.echo(
                f"the code host is busy: waiting {pause_s:.0f} s", err=True
            )
        super().wait(pause_s)


def new_clock() -> WaitingClock:
    """Return the clock that requests wait on."""
    return TellingClock()


def post_body(
    body: str, options: PostingOptions, environment: Mapping[str, str]
) -> int:
    """Post markdown to a request, or hold it, and return the exit code.

    Raises CredentialError for a token that may only read, unless the comment is held for a fork.
    """
    variables = with_event(environment)
    target = find_target(options.forge, options.target, variables)
    draft = _draft(body, options, target)
    if options.is_dry_run:
        return _show(draft, target, options)
    try:
        login = require_login(options.forge, variables)
        # A report may quote what a job has printed.
        draft = replace(draft, body=login.masked(body))
        outcome = _publish(_open(target, options, login), target, draft)
    except CredentialError as error:
        if not _may_only_read(error, target):
            raise
        return _keep(draft.body, error, target, options, variables)
    return _tell(outcome, target, options)


def post_held(
    content: bytes,
    path: str,
    options: PostingOptions,
    environment: Mapping[str, str],
) -> int:
    """Post the comment in a file, if its request still is at the commit that it is about.

    Which commit that is, the event says that started this job: the file comes from the code of a
    fork. Raises UsageError when nothing says it, StaleError when the request is elsewhere.
    """
    held = parse_held(content, path)
    variables = with_event(environment)
    asked = replace(options.target, request=held.request)
    target = find_target(options.forge, asked, variables)
    commit = options.target.commit or read_setting(
        options.forge, "event_commit", variables
    )
    if not commit:
        raise _untrusted(path)
    repository = read_setting(options.forge, "event_repository", variables)
    body = from_fork(held.body, repository, commit)
    options = replace(options, tag=held.tag, behavior=held.behavior)
    draft = _draft(body, options, replace(target, commit=commit))
    if options.is_dry_run:
        return _show(draft, target, options)
    login = require_login(options.forge, variables)
    forge = _open(target, options, login)
    _check_head(forge, held, target, commit, repository)
    return _tell(_publish(forge, target, draft), target, options)


def _draft(
    body: str, options: PostingOptions, target: RequestTarget
) -> CommentDraft:
    marker = CommentMarker(
        tag=options.tag,
        run=target.run,
        commit=target.commit if target.commit.isalnum() else "",
        # What is only shown is the same each time.
        key="" if options.is_dry_run else secrets.token_hex(KEY_BYTES),
    )
    return CommentDraft(
        body=body,
        marker=marker,
        behavior=options.behavior,
        report_url=target.report_url,
    )


def _open(
    target: RequestTarget,
    options: PostingOptions,
    login: ForgeLogin,
) -> Forge:
    if target.is_readable_on_the_way:
        click.echo(
            "warning: the address of the API begins with http: the token travels readably",
            err=True,
        )
    transport = Transport(
        target.host,
        target.api,
        login,
        timeout_s=options.timeout_s,
        clock=new_clock(),
        authority_file=target.authority,
    )
    return open_request(transport, target.repository, target.request)


def _publish(
    forge: Forge, target: RequestTarget, draft: CommentDraft
) -> CommentOutcome:
    try:
        with expected_shapes():
            return Publisher(forge, target.host, draft).publish()
    except ForgeRefusal as error:
        raise error.error(target.text) from error


def _check_head(
    forge: Forge,
    held: HeldComment,
    target: RequestTarget,
    commit: str,
    repository: str,
) -> None:
    """Raise StaleError unless the request is at the commit that started this job."""
    try:
        with expected_shapes():
            head = forge.head()
    except ForgeRefusal as error:
        raise error.error(target.text) from error
    is_same = same_commit(head.commit, commit)
    is_same = is_same and same_commit(held.commit, commit)
    if repository and head.repository:
        is_same = is_same and repository == head.repository
    if not is_same:
        raise StaleError(
            Problem(
                code="comment-commit",
                message=f"{target.text} is not at {commit[:12]} any more, or never was",
                cause=f"it is at {head.commit[:12]}; the comment is about {held.commit[:12]}",
                next_step="let the run of its newest commit post",
            )
        )


def _untrusted(path: str) -> UsageError:
    return UsageError(
        Problem(
            code="comment-commit",
            message=f"nothing says which commit {path} may be about",
            cause="the file itself comes from the code of a fork",
            next_step="run on the event workflow_run, or name the commit: --commit SHA",
        )
    )


def _may_only_read(error: CredentialError, target: RequestTarget) -> bool:
    """Whether a token is refused as one of a fork is; there a job may have none at all."""
    cause = error.__cause__
    if isinstance(cause, ForgeRefusal) and cause.meaning == READ_ONLY:
        return True
    return target.is_restricted


def _keep(
    body: str,
    error: CredentialError,
    target: RequestTarget,
    options: PostingOptions,
    variables: Mapping[str, str],
) -> int:
    """Write a comment where the job shows it, and into a file for a job that may post it."""
    is_shown = _summarize(body, target, variables)
    if options.hold:
        option.write_output(_held_text(body, target, options), options.hold)
    if not options.hold or not target.is_restricted:
        problems = (
            _with_step(problem, target, is_shown=is_shown)
            for problem in error.problems
        )
        raise CredentialError(*problems) from error
    click.echo(
        f"held for {target.text} in {options.hold}: the job of a fork may only read",
        err=True,
    )
    click.echo(
        "  next: post it from a job that may write: "
        f"tonnage comment {options.forge} --from-artifact {options.hold}",
        err=True,
    )
    return 0


def _held_text(
    body: str, target: RequestTarget, options: PostingOptions
) -> str:
    if not COMMIT.fullmatch(target.commit):
        raise UsageError(
            Problem(
                code="comment-commit",
                message="nothing says which commit the comment is about",
                next_step="name it: --commit SHA",
            )
        )
    return dump_held(
        HeldComment(
            request=target.request,
            commit=target.commit,
            tag=options.tag,
            behavior=options.behavior,
            body=body,
        )
    )


def _with_step(
    problem: Problem, target: RequestTarget, *, is_shown: bool
) -> Problem:
    """Return a problem that says where the comment is shown, and how forks are served."""
    causes = [problem.cause] if problem.cause else []
    if is_shown:
        causes.append("the comment is in the summary of the job")
    next_step = problem.next_step
    if target.is_restricted:
        next_step = (
            f"hold it for a job that may write: --hold FILE, see {HELD_DOCS}"
        )
    return replace(problem, cause="; ".join(causes), next_step=next_step)


def _summarize(
    body: str, target: RequestTarget, variables: Mapping[str, str]
) -> bool:
    """Append a comment to the summary of a job; return whether the job has one."""
    for variable, most_bytes in summary_sizes().items():
        path = variables.get(variable)
        if path:
            limit = most_bytes // BYTES_PER_UNIT
            shown = cut_comment(body, limit, limit, target.report_url)
            with Path(path).open("a", encoding="utf-8") as summary:
                summary.write(f"{shown}{os.linesep}")
            return True
    return False


def _show(
    draft: CommentDraft, target: RequestTarget, options: PostingOptions
) -> int:
    """Print a comment as it would be posted."""
    text = comment_text(
        draft.body,
        draft.marker,
        has_html=target.host.has_html,
        limit=target.host.characters,
        report_url=draft.report_url,
    )
    click.echo(
        f"dry run: {options.behavior} at {target.text}, {target.api}", err=True
    )
    option.write_output(text)
    return 0


def _tell(
    outcome: CommentOutcome, target: RequestTarget, options: PostingOptions
) -> int:
    if options.format == "json":
        document = {
            "schema": "tonnage.comment-outcome/1",
            "repository": target.repository,
            "request": target.request,
            "tag": options.tag,
            **to_builtins(outcome),
        }
        option.write_output(json.dumps(document, indent=2) + "\n")
        return 0
    lines = [f"{DONE[outcome.deed]}: {outcome.url}"]
    for count, deed in (
        (outcome.hidden, "hidden"),
        (outcome.deleted, "deleted"),
    ):
        if count:
            lines.append(f"  {count} earlier {deed}")
    option.write_output("\n".join(lines) + "\n")
    return 0
