"""The budgets that keep the house readable, measured on its syntax trees."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

from tests.conftest import ROOT

PACKAGES = ("planner", "providers", "stacks")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
# The one place where any exception may be caught, and the thread that carries one over.
BROAD = {"planner/cli/main.py", "stacks/engine/pulumi.py"}


def trees() -> dict[Path, ast.Module]:
    files = [
        p for name in PACKAGES for p in sorted((ROOT / name).rglob("*.py"))
    ]
    return {path: ast.parse(path.read_text()) for path in files}


TREES = trees()
FUNCTIONS = [
    (path, item)
    for path, tree in TREES.items()
    for item in ast.walk(tree)
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
]


def length(item: ast.AST) -> int:
    return item.end_lineno - item.lineno + 1


def test_modules_are_short() -> None:
    sizes = {
        str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in TREES
    }
    assert {name: n for name, n in sizes.items() if n > 400} == {}
    assert statistics.median(sizes.values()) <= 150


def test_functions_are_short() -> None:
    # A data class in disguise, such as the table of a block, is one expression and no function.
    long = {
        f"{p.relative_to(ROOT)}:{f.name}": length(f)
        for p, f in FUNCTIONS
        if length(f) > 60
    }
    assert long == {}
    assert statistics.median(length(f) for _, f in FUNCTIONS) <= 12


def test_functions_take_few_parameters() -> None:
    def count(f: ast.FunctionDef) -> int:
        names = [a.arg for a in (*f.args.args, *f.args.kwonlyargs)]
        return len([n for n in names if n not in ("self", "cls")])

    many = {
        f"{p.relative_to(ROOT)}:{f.name}": count(f)
        for p, f in FUNCTIONS
        if count(f) > 5
    }
    assert many == {}


def test_public_functions_and_modules_say_what_they_are_for() -> None:
    silent = [
        str(p)
        for p, tree in TREES.items()
        if tree.body and not ast.get_docstring(tree)
    ]
    assert silent == []
    nested = {
        id(inner)
        for _, f in FUNCTIONS
        for inner in ast.walk(f)
        if inner is not f
    }
    public = [
        (p, f)
        for p, f in FUNCTIONS
        if not f.name.startswith("_") and id(f) not in nested
    ]
    named = [
        f"{p.relative_to(ROOT)}:{f.name}"
        for p, f in public
        if not ast.get_docstring(f)
    ]
    assert len(named) <= 0.1 * len(public), named


def test_public_names_are_short() -> None:
    names = {f.name for _, f in FUNCTIONS if not f.name.startswith("_")}
    assert statistics.fmean(len(n) for n in names) <= 13


def test_what_never_happens() -> None:
    found = []
    for path, tree in TREES.items():
        name = str(path.relative_to(ROOT))
        if path.stem in FORBIDDEN_NAMES:
            found.append(f"{name}: its name says nothing")
        for item in ast.walk(tree):
            if isinstance(item, ast.Global):
                found.append(f"{name}:{item.lineno} global")
            if (
                isinstance(item, ast.Call)
                and getattr(item.func, "id", "") == "print"
            ):
                found.append(f"{name}:{item.lineno} print")
            if isinstance(item, ast.ExceptHandler) and name not in BROAD:
                caught = ast.unparse(item.type) if item.type else ""
                if caught in ("", "Exception", "BaseException"):
                    found.append(f"{name}:{item.lineno} catches everything")
            if isinstance(item, ast.ImportFrom) and any(
                a.name == "*" for a in item.names
            ):
                found.append(f"{name}:{item.lineno} star import")
    assert found == []


def test_nesting_stays_shallow() -> None:
    def depth(item: ast.AST, level: int = 0) -> int:
        inner = [
            depth(
                c,
                level
                + isinstance(
                    c, ast.For | ast.While | ast.If | ast.With | ast.Try
                ),
            )
            for c in ast.iter_child_nodes(item)
            if not isinstance(c, ast.FunctionDef)
        ]
        return max([level, *inner])

    deep = {
        f"{p.relative_to(ROOT)}:{f.name}": depth(f)
        for p, f in FUNCTIONS
        if depth(f) > 4
    }
    assert deep == {}


def test_type_ignores_are_few_and_named() -> None:
    lines = [
        (path, line)
        for path in TREES
        for line in path.read_text().splitlines()
        if "type: ignore" in line
    ]
    assert all("type: ignore[" in line for _, line in lines)
    assert len(lines) <= 8
