"""An error as a document: what a command that was asked for JSON answers when it fails.

The type is the contract; the JSON Schema of `tonnage schema error` is generated from it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from planner.plan.part import DocumentPart, Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.errors import Problem

ERROR_SCHEMA: Final = "tonnage.error/1"


class ErrorProblem(DocumentPart, frozen=True, kw_only=True):
    """One thing that is wrong, and what helps."""

    code: Annotated[str, Meta(description="short name of the problem")]
    message: Annotated[str, Meta(description="what is wrong")]
    cause: Annotated[str | None, Meta(description="why, where that is known")]
    next_step: Annotated[str, Meta(description="what helps")]
    path: Annotated[str | None, Meta(description="file that it is in")]
    line: Annotated[
        int | None, Meta(description="from 1; none for the whole file")
    ]
    column: Annotated[
        int | None, Meta(description="from 1; none for the whole line")
    ]


class ErrorDocument(DocumentPart, frozen=True, kw_only=True):
    """Why a command has failed."""

    schema: Annotated[
        Literal["tonnage.error/1"],
        Meta(description="kind and version of the document"),
    ] = ERROR_SCHEMA
    event: Annotated[
        Literal["refused"],
        Meta(description="so that the last line of events looks like the rest"),
    ] = "refused"
    exit_code: Annotated[int, Meta(description="with which the program ends")]
    problems: Annotated[
        tuple[ErrorProblem, ...],
        Meta(description="all that is wrong, as far as it is known"),
    ]


def error_document(
    problems: Iterable[Problem], exit_code: int
) -> ErrorDocument:
    """Return the document of problems."""
    return ErrorDocument(
        exit_code=exit_code, problems=tuple(map(_error_problem, problems))
    )


def _error_problem(problem: Problem) -> ErrorProblem:
    place = problem.place
    return ErrorProblem(
        code=problem.code,
        message=problem.message,
        cause=problem.cause or None,
        next_step=problem.next_step,
        path=place.path if place else None,
        line=(place.line or None) if place else None,
        column=(place.column or None) if place else None,
    )


def dump_error(document: ErrorDocument) -> str:
    """Return the document as one line of JSON: events are lines too."""
    return json.dumps(msgspec.to_builtins(document), sort_keys=True) + "\n"


def error_schema() -> Properties:
    """Return the JSON Schema (draft 2020-12) of the document of an error."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": ERROR_SCHEMA,
        **msgspec.json.schema(ErrorDocument),
    }
