"""What a folder has, as it is now: specs with their plans, and saved plans.

Files are read anew for each page; what was planned is kept by their content.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from planner.cli.served.worker import FolderPlanner, FolderTask
from planner.cli.tree_spec import (
    SPEC_MARK,
    SPEC_SUFFIXES,
    read_tree_spec,
    yaml_files,
)
from planner.errors import MissingError, Place, Problem, TonnageError
from planner.plan.canonical import SCHEMA, parse_plan
from planner.render.html.served.folder import ListedPlan, ListedSpec
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from planner.cli.file_tree import FolderTree
    from planner.cli.tree_spec import TreeSpec
    from planner.plan.types import Plan
    from planner.render.html.report import PlanView

PLAN_SUFFIX: Final = ".json"
PLAN_MARK: Final = SCHEMA.encode()
# Of a folder of 20 specs, each with some questions.
MOST_KEPT: Final = 256
AnswerT = TypeVar("AnswerT")


class PlannerWorkers(Protocol):
    """What lets a planner work, here or elsewhere."""

    async def run(
        self, home: str, work: Callable[..., AnswerT], *arguments: object
    ) -> AnswerT:
        """Return what a method of a planner returns; raises what it raises.

        What is asked for one home is answered by one planner.
        """


class Library:
    """The files of a folder, read anew for each page, and the plans that were made of them.

    confidence  with which specs are planned, percent
    """

    def __init__(
        self, tree: FolderTree, workers: PlannerWorkers, confidence: int
    ) -> None:
        self.tree = tree
        self.workers = workers
        self.confidence = confidence
        self._plans: dict[str, asyncio.Task[Plan]] = {}
        self._views: dict[str, asyncio.Task[PlanView]] = {}
        self._saved: dict[str, Plan | TonnageError] = {}

    def specs(self) -> dict[str, TreeSpec]:
        """Return the specs of the folder by path, also those that are broken."""
        return {
            path: read_tree_spec(self.tree, path, content)
            for path, content in yaml_files(self.tree, ()).items()
            if SPEC_MARK.search(content)
        }

    def spec(self, path: str) -> TreeSpec:
        """Return a spec of the folder. Raises MissingError, and what is wrong with it."""
        if path not in self.tree.paths() or not path.endswith(SPEC_SUFFIXES):
            raise _missing(path, "spec")
        content = self.tree.read(path)
        if not SPEC_MARK.search(content):
            raise _missing(path, "spec")
        spec = read_tree_spec(self.tree, path, content)
        if spec.error is not None:
            raise spec.error
        return spec

    def saved_plans(self) -> dict[str, Plan | TonnageError]:
        """Return the saved plans of the folder by path, or what is wrong with each."""
        contents = self.tree.read_many(
            path for path in self.tree.paths() if path.endswith(PLAN_SUFFIX)
        )
        return {
            path: self._parsed(path, content)
            for path, content in contents.items()
            if len(content) <= MAX_DOCUMENT_BYTES and PLAN_MARK in content
        }

    def saved_plan(self, path: str) -> Plan:
        """Return a saved plan. Raises MissingError, and what is wrong with it."""
        found = self.saved_plans().get(path)
        if found is None:
            raise _missing(path, "saved plan")
        if isinstance(found, TonnageError):
            raise found
        return found

    def task(self, spec: TreeSpec) -> FolderTask:
        """Return what makes the plan of a spec as it is written."""
        return FolderTask(
            path=spec.path,
            file_bytes=spec.file_bytes,
            key=spec.key,
            confidence=self.confidence,
        )

    async def plan(self, task: FolderTask) -> Plan:
        """Return the plan of a task, without what each wish costs."""
        return await self._made(self._plans, FolderPlanner.plan, task)

    async def view(self, task: FolderTask) -> PlanView:
        """Return the whole plan of a task, with what a report draws beside it."""
        return await self._made(self._views, FolderPlanner.report, task)

    async def _made(
        self,
        kept: dict[str, asyncio.Task[AnswerT]],
        work: Callable[[FolderPlanner, FolderTask], AnswerT],
        task: FolderTask,
    ) -> AnswerT:
        """Return what comes of a task, made once; several who ask wait for the same."""
        key = task.identity
        making = kept.pop(key, None)
        if making is None or _has_failed(making):
            making = asyncio.ensure_future(
                self.workers.run(task.path, work, task)
            )
        # What was asked for last is kept longest.
        kept[key] = making
        while len(kept) > MOST_KEPT:
            kept.pop(next(iter(kept)))
        # Whoever leaves does not stop what others wait for.
        return await asyncio.shield(making)

    async def listed_specs(
        self, count: Callable[[str], None] = lambda _: None
    ) -> list[ListedSpec]:
        """Return all specs with their plans; `count` hears of each that is done."""

        async def listed(spec: TreeSpec) -> ListedSpec:
            result = await _settled(self._plan_of(spec))
            verb = (
                "not planned" if isinstance(result, TonnageError) else "planned"
            )
            count(f"{verb} {spec.path}")
            found = ListedSpec(
                path=spec.path,
                address=address_of("spec", spec.path),
                ask=address_of("what-if", spec.path),
            )
            if isinstance(result, TonnageError):
                return replace(found, problems=result.problems)
            return replace(found, plan=result)

        return await asyncio.gather(*map(listed, self.specs().values()))

    def listed_plans(self) -> list[ListedPlan]:
        """Return all saved plans, each with how its spec is now."""
        specs = {
            path: hashlib.sha256(spec.file_bytes).hexdigest()
            for path, spec in self.specs().items()
        }
        return [
            ListedPlan(
                path=path,
                address=address_of("plan", path),
                problems=found.problems,
            )
            if isinstance(found, TonnageError)
            else ListedPlan(
                path=path,
                address=address_of("plan", path),
                made_of=_made_of(found, specs),
                plan=found,
            )
            for path, found in self.saved_plans().items()
        ]

    async def _plan_of(self, spec: TreeSpec) -> Plan:
        if spec.error is not None:
            raise spec.error
        return await self.plan(self.task(spec))

    def _parsed(self, path: str, content: bytes) -> Plan | TonnageError:
        key = f"{path} {hashlib.sha256(content).hexdigest()}"
        if key not in self._saved:
            self._saved[key] = _parse(content, path)
        while len(self._saved) > MOST_KEPT:
            self._saved.pop(next(iter(self._saved)))
        return self._saved[key]


def _has_failed(making: asyncio.Task[AnswerT]) -> bool:
    """Whether a plan has to be made again: what failed may work the next time."""
    return making.done() and (
        making.cancelled() or making.exception() is not None
    )


def address_of(page: str, path: str) -> str:
    """Return the address of a page of a file, whatever letters its path has."""
    return f"/{page}/{quote(path)}"


async def _settled(making: Awaitable[Plan]) -> Plan | TonnageError:
    """Return a plan, or why there is none."""
    try:
        return await making
    except TonnageError as error:
        return error


def _parse(content: bytes, path: str) -> Plan | TonnageError:
    try:
        return parse_plan(content, path)
    except TonnageError as error:
        return error


def _made_of(plan: Plan, specs: Mapping[str, str]) -> str:
    """Say how the spec of a saved plan is now; `specs` has digests by path."""
    same: Sequence[str] = [
        path for path, sha256 in specs.items() if sha256 == plan.spec.sha256
    ]
    if same:
        return f"{same[0]} as it is"
    if plan.spec.path in specs:
        return f"{plan.spec.path}, which has changed since"
    return f"{plan.spec.path}, which is not here"


def _missing(path: str, noun: str) -> MissingError:
    return MissingError(
        Problem(
            code="file",
            message=f"no {noun} of this name is in the folder",
            place=Place(path),
            next_step="see what there is on the first page",
        )
    )
