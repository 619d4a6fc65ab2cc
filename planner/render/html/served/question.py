"""The pages that ask: what if a spec were otherwise, and what differs between two files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.html.blocks import block_markup
from planner.render.html.comparison import difference_parts
from planner.render.html.document import DocumentParts
from planner.render.html.markup import element
from planner.render.html.report import decision_text
from planner.render.html.served.frame import (
    DIFF_ADDRESS,
    problem_markup,
    served_page,
)
from planner.render.plan import decision_blocks
from planner.spec.override import FLAG
from planner.workload.slider import (
    COMMIT,
    COMMIT_WORDS,
    CONFIDENCE,
    SPOT,
    SPOT_WORDS,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.errors import Problem
    from planner.plan.diff_document import DiffDocument
    from planner.plan.types import Plan
    from planner.render.html.markup import Markup
    from planner.render.html.served.frame import SiteLink
    from planner.workload.slider import Question, Slider

ANSWER: Final = "answer"
LEVEL: Final = 3


class QuestionAnswer(Struct, frozen=True, kw_only=True):
    """What a question came to: the plan of the spec, that of the question, and what differs.

    problems  why there is no plan
    """

    before: Plan | None = None
    after: Plan | None = None
    difference: DiffDocument | None = None
    problems: tuple[Problem, ...] = ()


class Comparison(Struct, frozen=True, kw_only=True):
    """Which two of the files of a folder are compared, and what differs."""

    files: tuple[str, ...]
    before: str = ""
    after: str = ""
    difference: DiffDocument | None = None
    problems: tuple[Problem, ...] = ()


def question_page(
    path: str,
    question: Question,
    answer: QuestionAnswer,
    *,
    address: str,
    near: Sequence[SiteLink],
) -> str:
    """Return the page with the sliders of a spec, and what their places come to."""
    title = f"What if: {path}"
    form = element(
        "form",
        {"method": "get", "class": "sliders", "data-live": "live"},
        *map(_slider_row, question.sliders, _amounts(question)),
        _spot_row(question),
        _commit_rows(question),
        element("p", None, element("button", {"type": "submit"}, "Plan it")),
    )
    return served_page(
        DocumentParts(
            title,
            element("h1", None, title),
            (
                element(
                    "div",
                    {"class": "asked"},
                    form,
                    _answer_part(path, question, answer),
                ),
            ),
        ),
        address=address,
        near=near,
        is_live=True,
    )


def comparison_page(comparison: Comparison) -> str:
    """Return the page that compares two files, with a form that chooses them."""
    title = "Compare"
    form = element(
        "form",
        {"method": "get", "class": "files"},
        _file_choice("from", comparison.before, comparison.files),
        _file_choice("to", comparison.after, comparison.files),
        element("p", None, element("button", {"type": "submit"}, "Compare")),
    )
    answer = (
        *(
            difference_parts(comparison.difference)
            if comparison.difference is not None
            else ()
        ),
        *problem_markup(comparison.problems),
    )
    return served_page(
        DocumentParts(title, element("h1", None, title), (form, *answer)),
        address=DIFF_ADDRESS,
    )


def command_words(path: str, question: Question, written: int) -> list[str]:
    """Return the command that plans what is asked; `written` is the confidence without asking."""
    words = ["tonnage", "plan", path]
    for override in question.overrides:
        words += [FLAG, str(override)]
    if question.confidence != written:
        words += [f"--{CONFIDENCE}", str(question.confidence)]
    return words


def _amounts(question: Question) -> list[str]:
    return [plain(question.amounts[each.name]) for each in question.sliders]


def _slider_row(slider: Slider, amount: str) -> Markup:
    key = f"slider-{slider.name}"
    unit = f" {slider.unit}" if slider.unit else ""
    return element(
        "div",
        {"class": "slider"},
        element("label", {"for": key}, slider.title),
        element(
            "input",
            {
                "type": "range",
                "id": key,
                "name": slider.name,
                "min": plain(slider.low),
                "max": plain(slider.high),
                "step": plain(slider.step),
                "value": amount,
                "aria-describedby": f"{key}-shown",
            },
        ),
        element(
            "output",
            {"for": key, "id": f"{key}-shown", "data-unit": unit},
            f"{amount}{unit}",
        ),
        element(
            "span",
            {"class": "dim"},
            f"written: {plain(slider.written)}{unit}",
        ),
    )


def _spot_row(question: Question) -> Markup:
    return element(
        "div",
        {"class": "slider"},
        element("label", {"for": SPOT}, "machines on spot"),
        element(
            "select",
            {"id": SPOT, "name": SPOT},
            *(
                element(
                    "option",
                    _chosen(
                        {"value": word},
                        "selected",
                        is_chosen=word == question.spot,
                    ),
                    word,
                )
                for word in SPOT_WORDS
            ),
        ),
    )


def _commit_rows(question: Question) -> Markup:
    return element(
        "fieldset",
        None,
        element("legend", None, "commitments that may be bought"),
        *(
            element(
                "label",
                None,
                element(
                    "input",
                    _chosen(
                        {"type": "checkbox", "name": COMMIT, "value": word},
                        "checked",
                        is_chosen=word in question.commit,
                    ),
                ),
                f" {word} ",
            )
            for word in COMMIT_WORDS
        ),
    )


def _chosen(
    attributes: dict[str, str], mark: str, *, is_chosen: bool
) -> dict[str, str]:
    return {**attributes, mark: mark} if is_chosen else attributes


def _answer_part(
    path: str, question: Question, answer: QuestionAnswer
) -> Markup:
    written = next(
        int(slider.written)
        for slider in question.sliders
        if slider.name == CONFIDENCE
    )
    words = command_words(path, question, written)
    return element(
        "section",
        {"id": ANSWER, "aria-live": "polite", "aria-labelledby": "decision"},
        element("h2", {"id": "decision"}, _decision(answer)),
        *_machine_lines(answer.after),
        *problem_markup(answer.problems),
        *(
            difference_parts(answer.difference)
            if answer.difference is not None
            else ()
        ),
        element("p", {"class": "dim"}, "the same in a terminal:"),
        element("pre", {"tabindex": "0"}, shlex.join(words)),
    )


def _machine_lines(plan: Plan | None) -> tuple[Markup, ...]:
    """Return what is bought then, and how sure it is."""
    if plan is None or not plan.is_feasible:
        return ()
    _, *lines = block_markup(decision_blocks(plan), LEVEL)
    return tuple(lines)


def _decision(answer: QuestionAnswer) -> str:
    if answer.before is None or answer.after is None:
        return "no plan"
    before, after = map(decision_text, (answer.before, answer.after))
    if answer.before.digest == answer.after.digest:
        return f"{after}, as the spec is written"
    if after == before:
        return f"{after}, as before"
    return f"{after}, instead of {before}"


def _file_choice(name: str, chosen: str, files: Sequence[str]) -> Markup:
    return element(
        "p",
        None,
        element("label", {"for": name}, f"{name} "),
        element(
            "select",
            {"id": name, "name": name},
            *(
                element(
                    "option",
                    _chosen(
                        {"value": path}, "selected", is_chosen=path == chosen
                    ),
                    path,
                )
                for path in files
            ),
        ),
    )
