"""The pages of a server, each with its address."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from planner.cli.difference import file_difference, plan_key_changes
from planner.cli.served.library import address_of
from planner.cli.served.worker import FolderPlanner
from planner.errors import (
    MissingError,
    Problem,
    ResourceError,
    TonnageError,
    UsageError,
)
from planner.plan.diff_report import plans_document
from planner.render.html.report import PlanView, plan_parts
from planner.render.html.served.folder import (
    folder_page,
    stack_list_page,
    stack_page,
)
from planner.render.html.served.frame import (
    ASSETS,
    SiteLink,
    asset,
    problem_page,
    served_page,
)
from planner.render.html.served.question import (
    Comparison,
    QuestionAnswer,
    comparison_page,
    question_page,
)
from planner.workload.slider import read_question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from planner.cli.served.library import Library
    from planner.cli.tree_spec import TreeSpec
    from planner.plan.types import Plan
    from planner.workload.slider import Question

# Whoever looks at stacks; no spec is named so.
STACKS: Final = ""
OK: Final = 200
NOT_FOUND: Final = 404
WRONG: Final = 400
BUG: Final = 500
UNABLE: Final = 503


class FolderPages:
    """Answers calls from a library.

    name   of the folder
    as_of  day of the catalog that it plans with
    """

    def __init__(self, library: Library, name: str, as_of: str) -> None:
        self.library = library
        self.name = name
        self.as_of = as_of

    def app(self) -> Starlette:
        """Return the application that a server runs."""
        pages = {
            "/": self.folder,
            "/spec/{path:path}": self.spec,
            "/what-if/{path:path}": self.what_if,
            "/plan/{path:path}": self.saved_plan,
            "/diff": self.diff,
            "/stacks": self.stacks,
            "/stack/{name}": self.stack,
            "/assets/{name}": self.asset,
        }
        return Starlette(
            routes=[
                Route(address, partial(_answered, page))
                for address, page in pages.items()
            ],
            exception_handlers={NOT_FOUND: _no_page, Exception: _bug_page},
        )

    async def folder(self, _request: Request) -> Response:
        """Return the page of the folder."""
        return HTMLResponse(
            folder_page(
                self.name,
                await self.library.listed_specs(),
                self.library.listed_plans(),
                self.as_of,
            )
        )

    async def spec(self, request: Request) -> Response:
        """Return the report of a spec."""
        spec = self.library.spec(request.path_params["path"])
        view = await self.library.view(self.library.task(spec))
        return HTMLResponse(
            served_page(
                plan_parts(view),
                address=address_of("spec", spec.path),
                near=_near(spec.path),
            )
        )

    async def saved_plan(self, request: Request) -> Response:
        """Return the report of a saved plan."""
        path = request.path_params["path"]
        view = PlanView(self.library.saved_plan(path))
        near = [SiteLink(f"/diff?to={_quoted(path)}", "Compare it")]
        return HTMLResponse(served_page(plan_parts(view), near=near))

    async def what_if(self, request: Request) -> Response:
        """Return the sliders of a spec, and what their places come to."""
        spec = self.library.spec(request.path_params["path"])
        spec_file = spec.spec_file
        assert spec_file is not None  # noqa: S101 - one that is broken is raised
        question = read_question(
            spec_file.spec, self.library.confidence, _asked(request)
        )
        begun = time.perf_counter()
        answer = await self._answer(spec, question)
        took_ms = 1000 * (time.perf_counter() - begun)
        return HTMLResponse(
            question_page(
                spec.path,
                question,
                answer,
                address=address_of("what-if", spec.path),
                near=_near(spec.path),
            ),
            headers={"server-timing": f"plan;dur={took_ms:.0f}"},
        )

    async def diff(self, request: Request) -> Response:
        """Return what differs between two files of the folder."""
        files = [*self.library.specs(), *self.library.saved_plans()]
        chosen = request.query_params
        before = chosen.get("from", next(iter(files), ""))
        after = chosen.get("to", before)
        comparison = Comparison(files=tuple(files), before=before, after=after)
        if not {"from", "to"} <= set(chosen):
            return HTMLResponse(comparison_page(comparison))
        old_content, old = await self._file(before)
        new_content, new = await self._file(after)
        difference = file_difference(
            (before, after), (old_content, new_content), (old, new)
        )
        return HTMLResponse(
            comparison_page(
                Comparison(
                    files=tuple(files),
                    before=before,
                    after=after,
                    difference=difference,
                )
            )
        )

    async def stacks(self, _request: Request) -> Response:
        """Return the page of all stacks."""
        listed = await self.library.workers.run(STACKS, FolderPlanner.stacks)
        near = [
            SiteLink(address_of("stack", status.stack), status.stack)
            for status, _ in listed.stacks
        ]
        return HTMLResponse(stack_list_page(listed, near))

    async def stack(self, request: Request) -> Response:
        """Return the page of a stack."""
        name = request.path_params["name"]
        page = await self.library.workers.run(STACKS, FolderPlanner.stack, name)
        return HTMLResponse(stack_page(name, page))

    async def asset(self, request: Request) -> Response:
        """Return a file of the pages."""
        name = request.path_params["name"]
        if name not in ASSETS:
            return await _no_page(request)
        return Response(asset(name), media_type=ASSETS[name])

    async def _answer(
        self, spec: TreeSpec, question: Question
    ) -> QuestionAnswer:
        """Return the plan of a question beside that of its spec, or what is wrong with it."""
        written = self.library.task(spec)
        asked = replace(
            written,
            overrides=question.overrides,
            confidence=question.confidence,
        )
        try:
            before = await self.library.plan(written)
            after = await self.library.plan(asked)
        except TonnageError as error:
            return QuestionAnswer(problems=error.problems)
        return QuestionAnswer(
            before=before,
            after=after,
            difference=plans_document(
                (spec.path, "what is asked"),
                (before, after),
                keys=plan_key_changes((before, after), spec.path),
            ),
        )

    async def _file(self, path: str) -> tuple[bytes, Plan]:
        """Return the content of a spec or a saved plan, and its plan."""
        spec = self.library.specs().get(path)
        if spec is None:
            return self.library.tree.read(path), self.library.saved_plan(path)
        if spec.error is not None:
            raise spec.error
        # As `tonnage diff` has it: with what each wish of the spec costs.
        view = await self.library.view(self.library.task(spec))
        return spec.file_bytes, view.plan


async def _answered(
    page: Callable[[Request], Awaitable[Response]], request: Request
) -> Response:
    """Return a page, or that of what is wrong with the call."""
    try:
        return await page(request)
    except TonnageError as error:
        return _problem_response(error)


def _problem_response(error: TonnageError) -> Response:
    title, status = "No plan", OK
    # A spec that is wrong has a page that says so.
    if isinstance(error, MissingError):
        title, status = "Not found", NOT_FOUND
    elif isinstance(error, ResourceError):
        title, status = "Not now", UNABLE
    elif isinstance(error, UsageError):
        title, status = "That cannot be shown", WRONG
    return HTMLResponse(problem_page(title, error.problems), status)


def _bug_page(_request: Request, error: Exception) -> Response:
    click.echo(f"error[bug]: {type(error).__name__}: {error}", err=True)
    problem = Problem(
        code="bug",
        message="the server has a fault",
        next_step="report what it wrote on its standard error",
    )
    return HTMLResponse(problem_page("A fault", [problem]), BUG)


async def _no_page(
    _request: Request, _error: Exception | None = None
) -> Response:
    problem = Problem(
        code="address",
        message="no page has this address",
        next_step="see what there is on the first page",
    )
    return HTMLResponse(problem_page("Not found", [problem]), NOT_FOUND)


def _near(path: str) -> list[SiteLink]:
    """Return the other pages of a spec."""
    return [
        SiteLink(address_of("spec", path), "Its plan"),
        SiteLink(address_of("what-if", path), "What if"),
        SiteLink(f"/diff?from={_quoted(path)}", "Compare it"),
    ]


def _quoted(path: str) -> str:
    return quote(path, safe="")


def _asked(request: Request) -> dict[str, Any]:
    query = request.query_params
    return {name: query.getlist(name) for name in query}
