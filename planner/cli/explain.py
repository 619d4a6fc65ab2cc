"""tonnage explain: why this, why not that, what would more traffic cost."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import (
    Options,
    Source,
    beside,
    make_plan,
    open_catalog,
    open_world,
    read_file,
)
from planner.errors import Place, Problem, StaleError


@click.command("explain")
@click.argument("path", metavar="PLAN|SPEC")
@click.argument("offer", required=False)
@click.option(
    "--traffic",
    metavar="FACTOR",
    help="What so much more traffic costs, such as 2x.",
)
@option.simulate
@option.catalog
@option.formats("text", "markdown")
@option.color
def command(
    path: str, offer: str | None, traffic: str | None, **values: Any
) -> int:
    """Explain a plan: why this fleet; why not OFFER (a machine type or accelerator, * allowed).

    Example: tonnage explain chat.yaml g5.12xlarge && tonnage explain chat.yaml --traffic 2x
    """
    from planner.render import explain
    from planner.solve.answer import Solver
    from planner.solve.question import what_if, why_not
    from stacks.site import unsupported

    catalog = open_catalog(values["catalog"], open_world(values["simulate"]))
    plan, source = _planned(path, catalog)
    if offer is None and traffic is None:
        page = explain.reasons(plan)
    else:
        spec = _spec(plan, source)
        solver = Solver(
            catalog=catalog, built=unsupported, read=beside(spec.path)
        )
        if offer is not None:
            page = explain.refused(plan, why_not(spec.spec, solver, offer))
        else:
            factor = _factor(traffic or "")
            page = explain.scaled(
                plan, factor, what_if(spec.spec, solver, factor)
            )
    option.show(page, values["format"], values["color"])
    return 0


def _planned(path: str, catalog: Any) -> tuple[dict[str, Any], Source | None]:
    from planner.plan.canonical import is_plan, parse
    from planner.spec.load import load

    raw = read_file(path)
    if is_plan(raw):
        return parse(raw, path), None
    source = Source(path=path, raw=raw, spec=load(raw, path))
    return make_plan(source, catalog, Options()), source


def _spec(plan: dict[str, Any], source: Source | None) -> Source:
    """The spec of a plan, as long as it is still the one that was planned."""
    from planner.spec.load import load

    if source is not None:
        return source
    path = plan["spec"]["path"]
    raw = read_file(path)
    if hashlib.sha256(raw).hexdigest() != plan["spec"]["sha256"]:
        problem = Problem(
            code="stale",
            message="the spec has changed since the plan was made",
            place=Place(path),
            next_step=f"ask about the spec: tonnage explain {path}",
        )
        raise StaleError(problem)
    return Source(path=path, raw=raw, spec=load(raw, path))


def _factor(text: str) -> float:
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)x?", text.strip().lower())
    if not found or float(found[1]) == 0:
        raise click.BadParameter(
            "write a factor such as 2x or 1.5", param_hint="--traffic"
        )
    return float(found[1])
