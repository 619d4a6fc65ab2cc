"""The specs of two sides of a repository: found, paired, planned, and compared."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from planner.cli import progress
from planner.cli.compose import load_confidence, own_live_catalog
from planner.cli.difference import clean_key_changes
from planner.cli.parallel import results_in_order
from planner.cli.planning import find_plan
from planner.cli.tree_spec import (
    PLAN_SUFFIX,
    SPEC_ERRORS,
    SPEC_MARK,
    TreeSpec,
    is_below,
    is_wanted,
    read_tree_spec,
    yaml_files,
)
from planner.errors import MissingError, Problem, UsageError
from planner.plan.canonical import parse_plan
from planner.plan.diff_report import (
    ComparedSpec,
    EarlierPlan,
    FoundSide,
    PlannedStep,
)
from planner.plan.spec_pair import pair_specs
from planner.render.clean import clean
from planner.solve.settings import Memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner.cli.compose import PlanningOptions
    from planner.cli.file_tree import FileTree
    from planner.errors import TonnageError
    from planner.market.offer import Catalog
    from planner.plan.diff_document import Origin, SpecState
    from planner.plan.spec_pair import SpecIdentity, SpecPair
    from planner.plan.types import Plan
    from planner.spec.change import KeyChange


class SideInputs(Struct, frozen=True, kw_only=True):
    """What the specs of a side are planned with.

    digests  SHA-256 of the files of --prices and --calibration; None: there is none
    """

    catalog: Catalog
    options: PlanningOptions
    digests: tuple[str | None, str | None]

    @property
    def key(self) -> str:
        """What makes plans of the same spec differ."""
        return f"{self.catalog.sha256} {self.digests}"


class SpecTrees(Struct, frozen=True, kw_only=True):
    """The specs of both sides by path, and the files that are none."""

    before: dict[str, TreeSpec]
    after: dict[str, TreeSpec]
    skipped: int


class TreeComparison(Struct, frozen=True, kw_only=True):
    """What was compared.

    unplanned  unchanged specs that were not planned
    earlier    plans of the old side by catalogs of the past
    """

    compared: tuple[ComparedSpec, ...]
    unplanned: tuple[str, ...]
    earlier: tuple[EarlierPlan, ...]


class PlanTask(Struct, frozen=True, kw_only=True):
    """A spec to plan: with what, and whether the reasons are wanted too."""

    spec: TreeSpec
    inputs: SideInputs
    is_explained: bool

    @property
    def key(self) -> str:
        """The same for tasks that have the same plan."""
        return f"{self.spec.key} {self.inputs.key}"


class _Pending(Struct, frozen=True, kw_only=True):
    """A pair that is compared when its specs are planned."""

    pair: SpecPair
    state: SpecState
    before: TreeSpec | None
    after: TreeSpec | None
    files: tuple[str, ...]


def read_specs(
    before: FileTree, after: FileTree, paths: Sequence[str]
) -> SpecTrees:
    """Return the specs of both sides below some paths; without paths all of them.

    A file that is a spec on one side is read on the other too. Other YAML files are counted. A
    file that is named itself is taken for a spec. Raises MissingError for a path that has none.
    """
    contents = [yaml_files(tree, paths) for tree in (before, after)]
    marked = {
        path
        for files in contents
        for path, content in files.items()
        if SPEC_MARK.search(content) or path in paths
    }
    all_files = {*contents[0], *contents[1]}
    for path in paths:
        if not any(is_below(name, path) for name in marked):
            raise MissingError(
                Problem(
                    code="file",
                    message=f"no spec is at {path or '.'} on either side",
                    next_step="check the path; a spec says apiVersion: tonnage/v1",
                )
            )
    old, new = (
        {
            path: read_tree_spec(tree, path, files[path])
            for path in sorted(marked & set(files))
        }
        for tree, files in zip((before, after), contents, strict=True)
    )
    return SpecTrees(
        before=old, after=new, skipped=len(all_files) - len(marked)
    )


def compare_trees(
    trees: SpecTrees,
    inputs: tuple[SideInputs, SideInputs],
    *,
    plans_all: bool,
    past: SideInputs | None,
    saved: Mapping[str, Plan],
) -> TreeComparison:
    """Plan what differs between two sides, each plan once, and compare it.

    plans_all  whether what is unchanged is planned too
    past       with what the old side is planned once more, to tell what a catalog did
    saved      plans of the old side by the SHA-256 of their spec, which tell it as well
    """
    unplanned = []
    pending = []
    for entry in map(
        partial(_pending, trees=trees, inputs=inputs),
        pair_specs(_identities(trees.before), _identities(trees.after)),
    ):
        is_broken = entry.after is not None and entry.after.spec_file is None
        # What is broken on both sides is nobody's change.
        if entry.state == "unchanged" and (is_broken or not plans_all):
            unplanned.append(entry.pair.path)
        else:
            pending.append(entry)
    steps = _steps_between(*inputs)
    tasks = [
        task for entry in pending for task in _tasks(entry, inputs, steps, past)
    ]
    plans = _plan_all(tasks)
    return TreeComparison(
        compared=tuple(
            _compared(entry, inputs, steps, plans) for entry in pending
        ),
        unplanned=tuple(unplanned),
        earlier=tuple(_earlier(pending, inputs[0], past, plans, saved)),
    )


def saved_plans(tree: FileTree, paths: Sequence[str]) -> dict[str, Plan]:
    """Return the plans that a side has saved beside its specs, by the SHA-256 of their spec."""
    names = [
        path
        for path in tree.paths()
        if path.endswith(PLAN_SUFFIX) and is_wanted(path, paths)
    ]
    plans = {}
    for path, content in tree.read_many(names).items():
        try:
            plan = parse_plan(content, path)
        except UsageError as error:
            # It says only less of the past.
            click.echo(clean(f"{path} is not read: {error}"), err=True)
            continue
        plans[plan.spec.sha256] = plan
    return plans


def _identities(specs: Mapping[str, TreeSpec]) -> dict[str, SpecIdentity]:
    return {path: spec.identity for path, spec in specs.items()}


def _pending(
    pair: SpecPair, *, trees: SpecTrees, inputs: tuple[SideInputs, SideInputs]
) -> _Pending:
    before = trees.before[pair.before] if pair.before is not None else None
    after = trees.after[pair.after] if pair.after is not None else None
    state: SpecState = "changed"
    files: list[str] = []
    if before is None:
        state = "added"
    elif after is None:
        state = "removed"
    else:
        files = [
            name
            for name in sorted({*before.digests, *after.digests})
            if before.digests.get(name) != after.digests.get(name)
        ]
        files += _changed_flags(*inputs)
        if pair.before != pair.after:
            state = "renamed"
        elif before.key == after.key and not files:
            state = "unchanged"
    return _Pending(
        pair=pair, state=state, before=before, after=after, files=tuple(files)
    )


def _changed_flags(before: SideInputs, after: SideInputs) -> list[str]:
    """Return the files of flags that differ between the sides."""
    paths = (after.options.prices, after.options.calibration)
    return [
        path
        for path, old, new in zip(
            paths, before.digests, after.digests, strict=True
        )
        if path is not None and old != new
    ]


def _steps_between(
    before: SideInputs, after: SideInputs
) -> tuple[tuple[Origin, SideInputs], ...]:
    """Return what the old specs are planned with on the way to the new side: model, then price."""
    steps: list[tuple[Origin, SideInputs]] = []
    old_prices, old_calibration = before.digests
    new_prices, new_calibration = after.digests
    if old_calibration != new_calibration:
        options = replace(
            after.options,
            prices=before.options.prices,
            contents=_merged(before, after),
        )
        steps.append(
            (
                "model",
                SideInputs(
                    catalog=after.catalog,
                    options=options,
                    digests=(old_prices, new_calibration),
                ),
            )
        )
    if old_prices != new_prices:
        steps.append(("price", after))
    return tuple(steps)


def _merged(before: SideInputs, after: SideInputs) -> dict[str, bytes]:
    """Return the old prices and the new calibration."""
    contents = dict(after.options.contents)
    prices = before.options.prices
    if prices is not None and prices in before.options.contents:
        contents[prices] = before.options.contents[prices]
    return contents


def _tasks(
    entry: _Pending,
    inputs: tuple[SideInputs, SideInputs],
    steps: tuple[tuple[Origin, SideInputs], ...],
    past: SideInputs | None,
) -> Iterable[PlanTask]:
    """Yield what is to be planned for a pair."""
    old, new = entry.before, entry.after
    if old is not None and old.spec_file is not None:
        yield PlanTask(spec=old, inputs=inputs[0], is_explained=False)
        if past is not None:
            yield PlanTask(spec=old, inputs=past, is_explained=False)
        for _, step_inputs in steps if new is not None else ():
            yield PlanTask(spec=old, inputs=step_inputs, is_explained=False)
    if new is not None and new.spec_file is not None:
        yield PlanTask(
            spec=new, inputs=inputs[1], is_explained=entry.state != "unchanged"
        )


def _plan_all(
    tasks: Sequence[PlanTask],
) -> dict[str, Plan | TonnageError]:
    """Plan each task once, on all cores; of a spec that is wrong the error is kept."""
    unique: dict[str, PlanTask] = {}
    for task in tasks:
        if task.key not in unique or task.is_explained:
            unique[task.key] = task
    # Inputs that cannot be used are no fault of a spec.
    for inputs in {task.inputs.key: task.inputs for task in tasks}.values():
        own_live_catalog(inputs.catalog, inputs.options, None)
        load_confidence(inputs.options)
    memories = {task.inputs.key: Memory() for task in tasks}
    results = results_in_order(
        [
            partial(_try_to_plan, task, memories[task.inputs.key])
            for task in unique.values()
        ]
    )
    plans: dict[str, Plan | TonnageError] = {}
    with progress.counting(len(unique)) as count:
        for (key, task), result in zip(unique.items(), results, strict=True):
            plans[key] = result
            count(f"planned {task.spec.path}")
    return plans


def _try_to_plan(task: PlanTask, memory: Memory) -> Plan | TonnageError:
    spec_file = task.spec.spec_file
    assert spec_file is not None  # noqa: S101 - what is wrong is no task
    try:
        found = find_plan(
            spec_file, task.inputs.catalog, task.inputs.options, memory
        )
        return found.explained() if task.is_explained else found.plan
    except SPEC_ERRORS as error:
        return error


def _compared(
    entry: _Pending,
    inputs: tuple[SideInputs, SideInputs],
    steps: tuple[tuple[Origin, SideInputs], ...],
    plans: Mapping[str, Plan | TonnageError],
) -> ComparedSpec:
    before = _found_side(entry.before, inputs[0], plans)
    after = _found_side(entry.after, inputs[1], plans)
    return ComparedSpec(
        state=entry.state,
        before=before,
        after=after,
        keys=_key_changes(entry.before, entry.after),
        files=entry.files,
        steps=_planned_steps(entry, steps, after, plans),
    )


def _planned_steps(
    entry: _Pending,
    steps: tuple[tuple[Origin, SideInputs], ...],
    after: FoundSide | None,
    plans: Mapping[str, Plan | TonnageError],
) -> tuple[PlannedStep, ...]:
    """Return the plans between two sides; nothing where only the spec differs."""
    if not steps or entry.before is None or after is None or not after.plan:
        return ()
    planned = []
    for origin, inputs in steps:
        plan = plans.get(f"{entry.before.key} {inputs.key}")
        # What cannot be planned in between cannot be divided.
        if plan is None or isinstance(plan, Exception):
            return ()
        planned.append(PlannedStep(origin, plan))
    return (*planned, PlannedStep("spec", after.plan))


def _found_side(
    spec: TreeSpec | None,
    inputs: SideInputs,
    plans: Mapping[str, Plan | TonnageError],
) -> FoundSide | None:
    if spec is None:
        return None
    if spec.spec_file is None:
        return FoundSide(path=spec.path, error=spec.error)
    name = spec.spec_file.spec.name
    plan = plans[f"{spec.key} {inputs.key}"]
    if isinstance(plan, Exception):
        return FoundSide(path=spec.path, name=name, error=plan)
    return FoundSide(path=spec.path, name=name, plan=plan)


def _key_changes(
    before: TreeSpec | None, after: TreeSpec | None
) -> tuple[KeyChange, ...]:
    """Return what a spec says differently; nothing for one that cannot be read."""
    if before is None or after is None:
        return ()
    return clean_key_changes(before.file_bytes, after.file_bytes, after.path)


def _earlier(
    pending: Iterable[_Pending],
    inputs: SideInputs,
    past: SideInputs | None,
    plans: Mapping[str, Plan | TonnageError],
    saved: Mapping[str, Plan],
) -> Iterable[EarlierPlan]:
    """Yield the plans of the old side by a catalog of the past, with those of the present."""
    for entry in pending:
        spec = entry.before
        now = plans.get(f"{spec.key} {inputs.key}") if spec else None
        if spec is None or now is None or isinstance(now, Exception):
            continue
        earlier = saved.get(hashlib.sha256(spec.file_bytes).hexdigest())
        if past is not None:
            planned = plans[f"{spec.key} {past.key}"]
            earlier = planned if not isinstance(planned, Exception) else None
        if earlier is not None:
            yield EarlierPlan(spec.path, earlier, now)
