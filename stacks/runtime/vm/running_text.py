"""The text of a module as a machine runs it: without what people and type checkers alone read."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Tokens after which a string alone is a docstring.
STATEMENT_STARTS: Final = (
    tokenize.ENCODING,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
)


class Span(NamedTuple):
    """A part of a text, from a byte of a line to a byte of a line. Lines count from 1."""

    line: int
    column: int
    end_line: int
    end_column: int


def running_text(text: str) -> str:
    """Return a module without comments, docstrings, protocols, and annotations of functions.

    Imports that only the type checker makes go too. The text is cut and never written anew, so
    every version of Python gives the same one.
    """
    bare_text = _without_annotations(text)
    lines = bare_text.splitlines(keepends=True)
    tokens = list(tokenize.tokenize(io.BytesIO(bare_text.encode()).readline))
    for before, token, after in zip(
        tokens, tokens[1:], tokens[2:], strict=False
    ):
        (first, start), last = token.start, token.end[0]
        if token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][:start].rstrip() + "\n"
        elif (
            token.type == tokenize.STRING
            and before.type in STATEMENT_STARTS
            and after.type == tokenize.NEWLINE
        ):
            # A body that is nothing but its docstring still needs a statement; a module does not.
            indent = lines[first - 1][:start]
            lines[first - 1] = f"{indent}...\n" if indent else ""
            lines[first:last] = [""] * (last - first)
    for statement in ast.parse(bare_text).body:
        if _is_for_types(statement):
            first, last = statement.lineno, statement.end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join(line for line in lines if line.strip())


def _is_for_types(statement: ast.stmt) -> bool:
    """Whether a statement does nothing when the program runs."""
    if isinstance(statement, ast.ClassDef):
        return [ast.unparse(base) for base in statement.bases] == ["Protocol"]
    return (
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) == "TYPE_CHECKING"
    )


def _without_annotations(text: str) -> str:
    """Return a module without the annotations of functions; those of classes make their fields."""
    # Columns of a syntax tree count bytes.
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    spans = [
        span
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        for span in _annotations(node, lines)
    ]
    # From the end, so that what is cut moves nothing that is still to be cut.
    for span in sorted(set(spans), reverse=True):
        first, last = span.line - 1, span.end_line - 1
        joined = lines[first][: span.column] + lines[last][span.end_column :]
        lines[first : last + 1] = [joined]
    return b"".join(lines).decode()


def _annotations(
    function: ast.FunctionDef, lines: list[bytes]
) -> Iterator[Span]:
    """Yield the annotations of a function: of its arguments, its variables and its answer."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.annotation is not None:
            start = node.col_offset + len(node.arg.encode())
            yield _up_to(node.lineno, start, node.annotation)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            start = node.target.end_col_offset or 0
            yield _up_to(node.target.lineno, start, node.annotation)
    if function.returns is not None:
        line = function.returns.lineno
        start = lines[line - 1].rindex(b")", 0, function.returns.col_offset) + 1
        yield _up_to(line, start, function.returns)


def _up_to(line: int, column: int, annotation: ast.expr) -> Span:
    """Return the span from a place to the end of an annotation."""
    return Span(
        line,
        column,
        annotation.end_lineno or line,
        annotation.end_col_offset or 0,
    )
