"""The text of a module as a machine runs it: without what people and type checkers alone read."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

# A string, which is kept, or a comment with the blanks before it.
STRING_OR_COMMENT: Final = re.compile(
    r"""
    (?P<string>
        \"{3} (?:\\.|[^\\])*? \"{3} | '{3} (?:\\.|[^\\])*? '{3}
        | " (?:\\.|[^"\\\n])* "     | ' (?:\\.|[^'\\\n])* '
    )
    | [ \t]*\#[^\n]*
    """,
    re.DOTALL | re.VERBOSE,
)

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
# Where a statement has others.
BLOCKS: Final = ("body", "handlers", "orelse", "finalbody", "cases")


class Cut(NamedTuple):
    """What goes, from a byte of a line to a byte of a line, and what takes its place.

    Lines count from 1.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    text: bytes = b""


# Many stacks are made in one process, of the same few modules.
@cache
def running_text(text: str) -> str:
    """Return a module without comments, docstrings, protocols, and annotations of functions.

    Imports that only the type checker makes go too. The text is cut and never written anew, so
    every version of Python gives the same one.
    """
    # Columns of a syntax tree count bytes.
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    # From the end, so that what is cut moves nothing that is still to be cut.
    for cut in sorted(_cuts(ast.parse(text), lines), reverse=True):
        first, last = cut.line - 1, cut.end_line - 1
        joined = (
            lines[first][: cut.column]
            + cut.text
            + lines[last][cut.end_column :]
        )
        lines[first : last + 1] = [joined]
    bare_text = STRING_OR_COMMENT.sub(
        lambda found: found["string"] or "", b"".join(lines).decode()
    )
    return "".join(
        line for line in bare_text.splitlines(keepends=True) if line.strip()
    )


def _cuts(
    node: ast.AST, lines: list[bytes], *, in_function: bool = False
) -> Iterator[Cut]:
    """Yield what goes of the statements of a node. No expression has a part that goes."""
    for child in _parts(node):
        if isinstance(node, ast.Module) and _is_for_types(child):
            yield _to_end_of_line(child, 0, lines)
            continue
        cut = _own_cut(child, lines, in_function=in_function)
        if cut is not None:
            yield cut
        yield from _cuts(
            child,
            lines,
            in_function=in_function or isinstance(child, FUNCTIONS),
        )


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a node, and the parameters of a function."""
    if isinstance(node, FUNCTIONS):
        yield from _parameters(node.args)
    for block in BLOCKS:
        yield from getattr(node, block, ())


def _parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from arguments.posonlyargs
    yield from arguments.args
    yield from arguments.kwonlyargs
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest


def _own_cut(
    node: ast.AST, lines: list[bytes], *, in_function: bool
) -> Cut | None:
    """Return the annotation of a node that goes, or the whole of it when it is a docstring."""
    if isinstance(node, ast.arg) and node.annotation is not None:
        start = node.col_offset + len(node.arg.encode())
        return _up_to(node.lineno, start, node.annotation)
    if isinstance(node, FUNCTIONS) and node.returns is not None:
        line, end = node.returns.lineno, node.returns.col_offset
        start = lines[line - 1].rindex(b")", 0, end) + 1
        return _up_to(line, start, node.returns)
    # Those of classes make their fields.
    if isinstance(node, ast.AnnAssign) and in_function and node.value:
        start = node.target.end_col_offset or 0
        return _up_to(node.target.lineno, start, node.annotation)
    if _is_docstring(node):
        start = node.col_offset
        # A body that is nothing but its docstring still needs a statement; a module does not.
        cut = _to_end_of_line(node, start, lines)
        return cut._replace(text=b"...\n" if start else b"")
    return None


def _is_for_types(statement: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a statement does nothing when the program runs."""
    if isinstance(statement, ast.ClassDef):
        return [ast.unparse(base) for base in statement.bases] == ["Protocol"]
    return (
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) == "TYPE_CHECKING"
    )


def _is_docstring(statement: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a statement is nothing but a string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _to_end_of_line(
    statement: ast.stmt, column: int, lines: list[bytes]
) -> Cut:
    """Cut from a column of the first line of a statement to the end of its last line."""
    last = statement.end_lineno or statement.lineno
    return Cut(statement.lineno, column, last, len(lines[last - 1]))


def _up_to(line: int, column: int, annotation: ast.expr) -> Cut:
    """Cut from a place to the end of an annotation."""
    return Cut(
        line,
        column,
        annotation.end_lineno or line,
        annotation.end_col_offset or 0,
    )
