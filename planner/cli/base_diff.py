"""diff --base: two revisions of a repository, what they are planned with, and their difference."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec.structs import replace

from planner.cli import option
from planner.cli.compose import open_catalog, open_catalogs
from planner.cli.git import WorkingTree, find_repository, open_tree
from planner.cli.revision import (
    SideInputs,
    compare_trees,
    read_specs,
    saved_plans,
)
from planner.errors import UsageError
from planner.plan.diff_document import SideRef
from planner.plan.diff_report import diff_document
from planner.plan.types import CatalogRef

if TYPE_CHECKING:
    from planner.cli.compose import PlanningOptions
    from planner.cli.file_tree import FileTree
    from planner.cli.git import GitRepository
    from planner.cli.option import OptionValues
    from planner.market.offer import Catalog
    from planner.plan.diff_document import DiffDocument
    from planner.plan.diff_report import FoundSide
    from planner.plan.types import Plan

# File of a spec, and its plan on the new side; None where there is none.
NewPlan: TypeAlias = "tuple[str, Plan | None]"


def compare_revisions(
    paths: tuple[str, ...], option_values: OptionValues
) -> tuple[DiffDocument, list[NewPlan]]:
    """Compare the specs of a repository below some paths; without paths all of them.

    Returns the difference, and the plan of the new side of each spec.
    """
    repository = find_repository(Path.cwd())
    before, after = _sides(repository, option_values)
    wanted = [repository.from_root(path) for path in paths]
    trees = read_specs(before, after, wanted)
    if trees.skipped:
        noun = "file is no spec" if trees.skipped == 1 else "files are no specs"
        click.echo(f"{trees.skipped} YAML {noun}: skipped", err=True)
    catalog = open_catalog(option_values["catalog"], None)
    # What would have been chosen otherwise is in no difference.
    options = replace(option.planning_options(option_values), alternatives=0)
    inputs = (
        _side_inputs(before, (before, after), catalog, options),
        _side_inputs(after, (before, after), catalog, options),
    )
    past_name = option_values["base_catalog"]
    comparison = compare_trees(
        trees,
        inputs,
        plans_all=option_values["all"],
        past=(
            replace(inputs[0], catalog=_past_catalog(past_name))
            if past_name
            else None
        ),
        saved={} if past_name else saved_plans(before, wanted),
    )
    document = diff_document(
        (
            SideRef(name=before.name, commit=before.commit),
            SideRef(name=after.name, commit=after.commit),
        ),
        comparison.compared,
        catalog=CatalogRef(sha256=catalog.sha256, as_of=catalog.as_of),
        unplanned=comparison.unplanned,
        earlier=comparison.earlier,
        thresholds=option_values["fail_if"],
    )
    return document, [
        _new_plan(repository, compared.after)
        for compared in comparison.compared
    ]


def _new_plan(repository: GitRepository, side: FoundSide | None) -> NewPlan:
    """Return the plan of the new side of a spec, with its file as seen from the working folder."""
    if side is None:
        return "", None
    return os.path.relpath(repository.root / side.path), side.feasible_plan


def _sides(
    repository: GitRepository, option_values: OptionValues
) -> tuple[FileTree, FileTree]:
    """Return the files of both sides; a repository without files has its last commit."""
    base_name, head_name = option_values["base"], option_values["head"]
    if head_name is None and repository.is_bare:
        head_name = "HEAD"
    base_commit = repository.resolve(base_name)
    if option_values["merge_base"]:
        base_commit = repository.merge_base(
            base_commit, repository.resolve(head_name or "HEAD")
        )
    before = open_tree(repository, base_name, base_commit)
    if head_name is None:
        return before, WorkingTree(repository)
    head_commit = repository.resolve(head_name)
    return before, open_tree(repository, head_name, head_commit)


def _side_inputs(
    side: FileTree,
    sides: tuple[FileTree, FileTree],
    catalog: Catalog,
    options: PlanningOptions,
) -> SideInputs:
    """Return what the specs of a side are planned with.

    A file of --prices or --calibration that the repository has is that of the side. One that it
    does not have is the same on both sides.
    """
    changes: dict[str, str | None] = {}
    contents: dict[str, bytes] = {}
    digests: list[str | None] = []
    for flag in ("prices", "calibration"):
        path: str | None = getattr(options, flag)
        content = None
        if path is not None:
            content = _own_content(path, side, sides, options)
            if content is None:
                changes[flag] = None
            else:
                contents[path] = content
        digests.append(
            hashlib.sha256(content).hexdigest() if content is not None else None
        )
    return SideInputs(
        catalog=catalog,
        options=replace(options, contents=contents, **changes),
        digests=(digests[0], digests[1]),
    )


def _own_content(
    path: str,
    side: FileTree,
    sides: tuple[FileTree, FileTree],
    options: PlanningOptions,
) -> bytes | None:
    """Return what a file of a flag holds on a side; None where only the other side has it."""
    try:
        inner_path = find_repository(Path.cwd()).from_root(path)
    except UsageError:
        return options.read_own(path)
    found = [
        tree.read_many([inner_path]).get(inner_path) for tree in (side, *sides)
    ]
    if not any(content is not None for content in found):
        return options.read_own(path)
    # A flag names a file of the new side; the old one may not have it yet.
    if found[0] is None and side is sides[1]:
        return side.read(inner_path)
    return found[0]


def _past_catalog(name: str) -> Catalog:
    """Return a catalog by its name, or by the path of its manifest."""
    if name.endswith(".json"):
        return open_catalog(name, None)
    return open_catalog(str(open_catalogs().manifest_path(name)), None)
