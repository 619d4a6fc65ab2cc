"""Asks what a spec needs, one thing after the other; each answer is judged as plan would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.spec_draft import KINDS, NONE, draft, questions
from planner.errors import Problem, TonnageError
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.cli.spec_draft import DraftQuestion


def ask_for_spec(output: str | None, *, force: bool) -> tuple[str, str]:
    """Return the text of a spec, and where it is to be written.

    Whoever ends it, by Ctrl-C or the end of the input, gets click's Abort: nothing is written.
    """
    click.echo("Enter takes what is in brackets; Ctrl-C ends it.", err=True)
    kind = _ask_kind()
    answers: dict[str, str | None] = {
        question.key: question.default for question in questions(kind)
    }
    for question in questions(kind):
        answers = _answered(question, kind, answers, output, force=force)
    target_path = output or f"{answers['name']}.yaml"
    return draft(kind, answers).text, target_path


def _ask_kind() -> str:
    while True:
        kind = _ask(f"kind of work: {', '.join(KINDS)}", next(iter(KINDS)))
        if kind in KINDS:
            return kind
        similar = closest(kind, KINDS)
        hint = f"did you mean '{similar}'?" if similar else "name one of them"
        _tell([Problem(code="kind", message="not a kind", next_step=hint)])


def _answered(
    question: DraftQuestion,
    kind: str,
    answers: Mapping[str, str | None],
    output: str | None,
    *,
    force: bool,
) -> dict[str, str | None]:
    """Return the answers with one more, which nothing speaks against."""
    while True:
        answer = _ask(question.text, question.default)
        is_left_out = question.may_lack and answer == NONE
        more = {**answers, question.key: None if is_left_out else answer}
        problems = _problems(kind, question.key, more)
        target = Path(output or f"{answer}.yaml")
        if question.key == "name" and target.exists() and not force:
            problems.append(
                Problem(
                    code="exists",
                    message=f"{target} exists",
                    next_step="name another file with -o, or add --force"
                    if output
                    else "take another name, or start again with --force",
                )
            )
        if not problems:
            return more
        _tell(problems)


def _problems(
    kind: str, key: str, answers: Mapping[str, str | None]
) -> list[Problem]:
    """Return what is wrong with the answers up to that of a key.

    What the file has below is asked later: what does not go with it is told then.
    """
    from planner.cli.compose import spec_folder_reader
    from planner.spec.load import load_spec
    from planner.workload.solver import check

    path = f"{answers['name']}.yaml"
    made = draft(kind, answers)
    try:
        spec = load_spec(made.text.encode(), path)
        check(spec, spec_folder_reader(path))
    except TonnageError as error:
        later = set(list(answers)[list(answers).index(key) + 1 :])
        later_lines = {made.lines[name] for name in later & set(made.lines)}
        return [
            problem
            for problem in error.problems
            if problem.place is None or problem.place.line not in later_lines
        ]
    return []


def _ask(text: str, default: str) -> str:
    # Standard output is for the spec.
    answer: str = click.prompt(text, default=default, err=True)
    return answer.strip()


def _tell(problems: Sequence[Problem]) -> None:
    from planner.render.clean import clean

    for problem in problems:
        words = (problem.message, problem.cause, problem.next_step)
        click.echo(clean(f"  {'; '.join(filter(None, words))}"), err=True)
