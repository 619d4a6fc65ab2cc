"""tonnage comment: a report in a pull request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from planner.cli import complete, option
from planner.cli.compose import read_file
from planner.errors import Problem, UsageError
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.cli.posting import PostingOptions

BEGIN = "write one with: tonnage diff A B -f markdown > comment.md"


def _check_tag(
    _context: click.Context, _parameter: click.Parameter, tag_text: str
) -> str:
    """Return a tag; raises BadParameter for what cannot stand in a marker."""
    from planner.render.comment import TAG, TAG_HINT

    if not TAG.fullmatch(tag_text):
        raise click.BadParameter(f"use {TAG_HINT}")
    return tag_text


def _parse_timeout(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> float:
    from planner.spec.unit import parse_seconds

    try:
        return float(parse_seconds(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("comment")
@click.argument(
    "forge",
    metavar="FORGE",
    type=click.Choice(["github", "gitlab", "bitbucket", "azure-devops"]),
)
@click.argument(
    "body", metavar="BODY", required=False, shell_complete=complete.file_names
)
@click.option(
    "--from-artifact",
    "artifact",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Post the comment that a job with --hold wrote.",
)
@click.option(
    "--repo",
    "repository",
    metavar="NAME",
    default="",
    help="Repository, as the host writes it.",
)
@click.option(
    "--request",
    type=click.IntRange(min=1),
    metavar="N",
    default=None,
    help="Number of the pull request or merge request.",
)
@click.option(
    "--api",
    metavar="URL",
    default="",
    help="Address of the API of an own instance, also below a path.",
)
@click.option(
    "--commit",
    metavar="SHA",
    default="",
    help="Commit of the request that the report is about.",
)
@click.option(
    "--tag",
    metavar="NAME",
    default="cost",
    callback=_check_tag,
    help="Tells reports of one request apart (cost).",
)
@click.option(
    "--behavior",
    type=click.Choice(["update", "new", "hide-and-new", "delete-and-new"]),
    default="update",
    help="What becomes of an earlier comment with the tag (update).",
)
@click.option(
    "--hold",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Write the comment here when the token may only read, as for forks.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    default="5m",
    callback=_parse_timeout,
    help="How long to wait for a host that is busy (5m).",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the comment; send nothing."
)
@option.format_option("text", "json")
def command(
    forge: str, body: str | None, artifact: str | None, **option_values: Any
) -> int:
    """Post BODY, a markdown file or - for standard input, to a pull request.

    FORGE is github, gitlab, bitbucket or azure-devops. Options say where it goes, else the
    variables of the CI. The token comes from the environment alone: GITHUB_TOKEN, GITLAB_TOKEN,
    BITBUCKET_TOKEN or SYSTEM_ACCESSTOKEN.

    Example: tonnage diff main.yaml branch.yaml -f markdown | tonnage comment github -
    """
    from planner.cli import posting

    if (body is None) == (artifact is None):
        raise click.UsageError(
            "name BODY or --from-artifact FILE, and not both"
        )
    options = _posting_options(forge, option_values)
    variables = dict(os.environ)
    if artifact is not None:
        content = read_file(artifact, MAX_DOCUMENT_BYTES)
        return posting.post_held(content, artifact, options, variables)
    content = read_file(str(body), MAX_DOCUMENT_BYTES, begin=BEGIN)
    return posting.post_body(_text(content, str(body)), options, variables)


def _posting_options(
    forge: str, option_values: option.OptionValues
) -> PostingOptions:
    from planner.cli.posting import PostingOptions
    from providers.forge.target import TargetOptions

    return PostingOptions(
        forge=forge,
        target=TargetOptions(
            repository=option_values["repository"],
            request=option_values["request"] or 0,
            api=option_values["api"],
            commit=option_values["commit"],
        ),
        tag=option_values["tag"],
        behavior=option_values["behavior"],
        hold=option_values["hold"] or "",
        timeout_s=option_values["timeout"],
        is_dry_run=option_values["dry_run"],
        format=option_values["format"],
    )


def _text(content: bytes, path: str) -> str:
    """Return the markdown of a file. Raises UsageError for one that is empty, or no text."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unusable(path, "is no text in UTF-8") from error
    if not text.strip():
        raise _unusable(path, "is empty")
    return text


def _unusable(path: str, reason: str) -> UsageError:
    name = "standard input" if path == "-" else path
    return UsageError(
        Problem(
            code="comment-body",
            message=f"{name} {reason}",
            next_step=BEGIN,
        )
    )
