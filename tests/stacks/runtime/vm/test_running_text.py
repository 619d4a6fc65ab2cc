"""What machines run is the module itself, less what is only read."""

from __future__ import annotations

import ast

import pytest

from stacks.runtime.vm.running_text import running_text
from tests.conftest import ROOT

SOURCES = [
    *sorted((ROOT / "stacks" / "runtime" / "vm" / "node").glob("*.py")),
    *sorted((ROOT / "stacks").glob("*/node.py")),
]
ODD = '''
"""Doc."""
from __future__ import annotations

def odd(
    größe: dict[str, int], *rest: str, key: str = "a: b", **more: list[
        int
    ]
) -> dict[
    str, int
]:
    """Only a docstring."""

def inner(x: int) -> int:  # a comment
    total: int = x
    def deeper(y: "int") -> "int":
        return y + total
    return deeper(x)
'''


class Bare(ast.NodeTransformer):
    """Removes annotations of functions, docstrings, protocols and imports for types."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST | None:
        if [ast.unparse(base) for base in node.bases] == ["Protocol"]:
            return None
        node.body = [
            part if isinstance(part, ast.AnnAssign) else self.visit(part)
            for part in node.body
        ]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.Assign([node.target], node.value)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return None
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_text = isinstance(node.value, ast.Constant) and isinstance(
            node.value.value, str
        )
        return ast.Expr(ast.Constant(...)) if is_text else node


def without_ellipses(text: str) -> str:
    """A syntax tree as text, without the bodies that docstrings leave."""
    ellipsis = "Expr(value=Constant(value=Ellipsis))"
    for shape in (f"{ellipsis}, ", f", {ellipsis}", ellipsis):
        text = text.replace(shape, "")
    return text


@pytest.mark.parametrize(
    "text",
    [ODD, *(path.read_text() for path in SOURCES)],
    ids=["odd", *(f"{path.parent.name}/{path.stem}" for path in SOURCES)],
)
def test_what_runs_is_what_is_written(text: str) -> None:
    written = ast.fix_missing_locations(Bare().visit(ast.parse(text)))
    assert without_ellipses(
        ast.dump(ast.parse(running_text(text)))
    ) == without_ellipses(ast.dump(ast.parse(ast.unparse(written))))


def test_nothing_that_is_only_read_is_left() -> None:
    text = running_text(ODD)
    assert "comment" not in text
    assert "docstring" not in text
    assert "->" not in text
    assert text == running_text(text)


def test_a_string_is_no_comment() -> None:
    text = '''
first = "# no comment" "\\"#"  # a comment
second = (
    'one' # a comment
    "it's # two"
    """three "quoted" # lines
    # of a string"""
)
'''
    bare = running_text(text)
    assert "a comment" not in bare
    assert ast.dump(ast.parse(bare)) == ast.dump(ast.parse(text))
