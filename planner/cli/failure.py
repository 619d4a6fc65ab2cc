"""Reports what ended a command: as sentences for people, and as JSON where that was asked for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from planner.errors import Place, Problem, TonnageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.cli.answer import CommandAnswer

CANCELLED_EXIT_CODE: Final = 8
USAGE_EXIT_CODE: Final = 2
BUG_EXIT_CODE: Final = 1
TERRAFORM_ERROR_CODE: Final = 1
FORMAT_FLAGS: Final = ("-f", "--format")
CANCELLED: Final = Problem(
    code="cancelled",
    message="cancelled: nothing more is done",
    next_step="run the same command again",
)


def report(
    error: BaseException, answer: CommandAnswer, argv: Sequence[str]
) -> int:
    """Write what ended a command, and return its exit code.

    Sentences go to standard error. A command that was asked for JSON answers with a document on
    standard output; where a result stands there already, the document is the last line of standard
    error. Raises the error itself where a developer wants its traceback.
    """
    problems = _problems_of(error)
    exit_code = exit_code_of(error, argv)
    _write_sentences(error, problems)
    if _wants_json(error, answer, argv, os.environ):
        from planner.plan.error_document import dump_error, error_document

        is_free = answer.is_stream or not answer.has_result
        click.echo(
            dump_error(error_document(map(_cleaned, problems), exit_code)),
            nl=False,
            err=not is_free,
        )
    return exit_code


def exit_code_of(error: BaseException, argv: Sequence[str]) -> int:
    """Return the exit code of an error: by Terraform's convention all errors have one."""
    if "--detailed-exitcode" in argv:
        return TERRAFORM_ERROR_CODE
    match error:
        case KeyboardInterrupt() | click.Abort():
            return CANCELLED_EXIT_CODE
        case TonnageError() | click.ClickException():
            return error.exit_code
        case OSError():
            return USAGE_EXIT_CODE
        case _:
            return BUG_EXIT_CODE


def _problems_of(error: BaseException) -> tuple[Problem, ...]:
    """Return what is wrong by an error."""
    match error:
        case KeyboardInterrupt() | click.Abort():
            return (CANCELLED,)
        case TonnageError():
            return error.problems
        case click.ClickException():
            return (_usage_problem(error),)
        case OSError():
            problem = Problem(
                code="file",
                message=error.strerror or str(error),
                place=Place(str(error.filename)) if error.filename else None,
                next_step="check the path and its permissions",
            )
        case _:
            problem = Problem(
                code="bug",
                message=f"{type(error).__name__}: {error}",
                next_step="report it, with TONNAGE_TRACEBACK=1 set",
            )
    return (problem,)


def _cleaned(problem: Problem) -> Problem:
    """Return a problem whose texts are safe in the log of a pipeline."""
    from planner.render.clean import clean

    return replace(
        problem,
        message=clean(problem.message),
        cause=clean(problem.cause),
        next_step=clean(problem.next_step),
    )


def _usage_problem(error: click.ClickException) -> Problem:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "tonnage"
    return Problem(
        code="usage",
        message=" ".join(error.format_message().split()),
        next_step=f"see: {command} --help",
    )


def _write_sentences(error: BaseException, problems: Sequence[Problem]) -> None:
    match error:
        case KeyboardInterrupt() | click.Abort():
            click.echo(CANCELLED.message, err=True)
        case click.ClickException():
            # With the usage of the command.
            error.show(sys.stderr)
        case OSError() | TonnageError():
            print_problems(problems)
        case _:
            if os.environ.get("TONNAGE_TRACEBACK"):
                raise error
            print_problems(problems)


def _wants_json(
    error: BaseException,
    answer: CommandAnswer,
    argv: Sequence[str],
    environment: Mapping[str, str],
) -> bool:
    """Whether a command was asked for JSON, also where its command line could not be read."""
    if answer.format:
        return answer.format == "json"
    asked = _asked_format(argv)
    if asked is None and isinstance(error, click.UsageError) and error.ctx:
        prefix = error.ctx.auto_envvar_prefix
        asked = environment.get(f"{prefix}_FORMAT")
    return asked == "json"


def _asked_format(argv: Sequence[str]) -> str | None:
    """Return the last format of a command line, as click would read it."""
    asked = None
    words = iter(argv)
    for word in words:
        if word == "--":
            break
        if word in FORMAT_FLAGS:
            asked = next(words, None)
        elif word.startswith("--format="):
            asked = word.removeprefix("--format=")
        elif word.startswith("-f") and len(word) > len("-f"):
            asked = word.removeprefix("-f")
    return asked


def print_problems(problems: Sequence[Problem]) -> None:
    """Write problems to standard error."""
    for problem in problems:
        click.echo(problem_text(problem), err=True)


def problem_text(problem: Problem) -> str:
    """Return a problem as a user sees it: place, code, cause and next step."""
    place_prefix = f"{problem.place}  " if problem.place else ""
    problem_lines = [f"{place_prefix}error[{problem.code}]: {problem.message}"]
    if problem.cause:
        problem_lines.append(f"  cause: {problem.cause}")
    problem_lines.append(f"  next: {problem.next_step}")
    from planner.render.clean import clean

    return clean("\n".join(problem_lines))
