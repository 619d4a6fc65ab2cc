"""What plans for the pages: one for each process that works, with what it learned before."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cli.account import stack_account
from planner.cli.compose import (
    SpecFile,
    found_stacks,
    open_catalog,
    open_engine,
    open_world,
)
from planner.cli.file_tree import FolderTree
from planner.cli.git import folder_reader
from planner.cli.planning import find_plan
from planner.cli.status import stack_page
from planner.errors import TonnageError, UsageError
from planner.render.html.report import PlanView
from planner.render.html.served.folder import StackList
from planner.solve.settings import Memory
from planner.spec.load import load_spec
from planner.workload.outlook import outlook

if TYPE_CHECKING:
    from pathlib import Path

    from planner.cli.compose import PlanningOptions
    from planner.cli.planning import FoundPlan
    from planner.plan.types import Plan
    from planner.render.page import Page
    from planner.spec.override import KeyOverride

# What a memory holds grows with what was planned.
PLANS_OF_MEMORY: Final = 200


class FolderTask(Struct, frozen=True, kw_only=True):
    """A spec of a folder to plan, as it is or otherwise.

    key         digest of what the files say that it names
    confidence  percent
    """

    path: str
    file_bytes: bytes
    key: str
    confidence: int
    overrides: tuple[KeyOverride, ...] = ()

    @property
    def identity(self) -> str:
        """The same for tasks that have the same plan."""
        digest = hashlib.sha256(self.file_bytes).hexdigest()
        said = " ".join(map(str, self.overrides))
        return f"{self.path} {digest} {self.key} {self.confidence} {said}"


class FolderPlanner:
    """Plans the specs of a folder, and looks at stacks. It writes nothing.

    Plans are those of new stacks, as `tonnage plan` makes them without --simulate and --stack.
    """

    def __init__(self, root: Path, options: PlanningOptions) -> None:
        self.tree = FolderTree(root)
        self.stack_options = options
        self.options = replace(
            options, simulate=None, engine=None, backend=None
        )
        self.catalog = open_catalog(
            options.catalog, open_world(options.simulate)
        )
        self.memory = Memory()
        self.planned = 0

    def plan(self, task: FolderTask) -> Plan:
        """Return the plan of a spec, without what each of its wishes costs."""
        return self._find(task).plan

    def report(self, task: FolderTask) -> PlanView:
        """Return the whole plan of a spec, with what a report draws beside it."""
        found = self._find(task)
        return PlanView(found.explained(), outlook(found.spec, found.solution))

    def stacks(self) -> StackList:
        """Return all stacks, and what is wrong with those that cannot be read."""
        try:
            return self._stacks()
        except TonnageError as error:
            # The tool of a backend, or an account, may be missing; specs need neither.
            return StackList(problems=error.problems)

    def _stacks(self) -> StackList:
        engine = open_engine(self.stack_options)
        found = list(found_stacks(engine))
        return StackList(
            stacks=tuple(
                (status, stack_account(engine, status))
                for status in found
                if not isinstance(status, UsageError)
            ),
            problems=tuple(
                problem
                for error in found
                if isinstance(error, UsageError)
                for problem in error.problems
            ),
        )

    def stack(self, name: str) -> Page:
        """Return the page of a stack. Raises MissingError without one of the name."""
        return stack_page(name, self.stack_options)

    def _find(self, task: FolderTask) -> FoundPlan:
        self.planned += 1
        if self.planned % PLANS_OF_MEMORY == 0:
            self.memory = Memory()
        spec_file = SpecFile(
            path=task.path,
            file_bytes=task.file_bytes,
            spec=load_spec(task.file_bytes, task.path, task.overrides),
            read_beside=folder_reader(self.tree, task.path),
            overrides=task.overrides,
        )
        options = replace(self.options, confidence=task.confidence)
        return find_plan(spec_file, self.catalog, options, self.memory)
