"""tonnage doctor: what stands between a spec or a plan and its apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import complete, option
from planner.cli.compose import (
    open_catalog,
    open_engine,
    open_world,
    read_file,
    read_spec,
)
from planner.cli.planning import make_plan
from planner.cli.progress import waiting
from planner.errors import (
    CapacityError,
    CredentialError,
    ResourceError,
    TonnageError,
)
from planner.facts.cloud import clouds
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.cli.compose import PlanningOptions
    from planner.market.offer import Catalog, Instance
    from planner.plan.pool import Pool
    from planner.plan.symptom import Symptom
    from planner.plan.types import Plan

LOGIN_KINDS: Final = frozenset({"credentials", "permission"})
MACHINE_KINDS: Final = frozenset({"quota", "capacity"})


@click.command("doctor")
@click.argument(
    "subject",
    required=False,
    metavar="[SPEC|PLAN]",
    shell_complete=complete.file_names,
)
@option.planning_flags
@option.format_option("text", "json", "markdown")
@option.color
def command(subject: str | None, **option_values: Any) -> int:
    """Look at all that an apply needs: logins, rights, quotas, zones, engine, locks and clock.

    Without a SPEC or a PLAN, at what all need. Nothing is changed. Exit 3 where a login or a right
    is missing, 14 where a quota or machines are, 4 for anything else that would stop an apply.

    Example: tonnage doctor chat.plan.json
    """
    from planner.render.doctor import doctor_page

    options = option.planning_options(option_values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    plan = None if subject is None else _plan_of(subject, catalog, options)
    with waiting("asking clouds and engine"):
        symptoms = list(_symptoms(plan, catalog, options))
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(dump_document({"symptoms": to_builtins(symptoms)}))
    else:
        option.print_page(
            doctor_page(symptoms),
            option_values["format"],
            option_values["color"],
        )
    return _exit_code(symptoms)


def _plan_of(path: str, catalog: Catalog, options: PlanningOptions) -> Plan:
    """Return the plan of a file, or that of a spec."""
    from planner.plan.canonical import is_plan, parse_plan

    file_bytes = read_file(path, MAX_DOCUMENT_BYTES)
    if is_plan(file_bytes):
        return parse_plan(file_bytes, path)
    return make_plan(read_spec(path), catalog, options)


def _symptoms(
    plan: Plan | None, catalog: Catalog, options: PlanningOptions
) -> Iterator[Symptom]:
    """Yield what is found: of real clouds, or of the simulated ones that the options name."""
    from planner.market.price_age import age_days
    from stacks.engine.checkup import (
        catalog_symptom,
        cloud_symptoms,
        engine_symptoms,
        network_symptom,
        refusal_symptom,
    )

    engine_found = list(engine_symptoms(lambda: open_engine(options), plan))
    is_simulated = options.simulate is not None
    if not is_simulated:
        # The cloud of the plan comes first.
        provider = plan.graph.provider if plan is not None else ""
        for cloud in sorted(clouds(), key=lambda name: name != provider):
            yield from cloud_symptoms(
                cloud,
                plan,
                _standing_pools(plan, options) if cloud == provider else (),
                _instances(catalog, cloud),
            )
            if provider in ("", cloud):
                yield network_symptom(cloud)
    yield from engine_found
    if is_simulated and plan is not None and plan.is_feasible:
        for refusal in open_engine(options).preflight(plan):
            yield refusal_symptom("simulated", refusal)
    yield catalog_symptom(
        catalog.as_of, age_days(catalog.as_of, option.today()) or 0
    )


def _standing_pools(
    plan: Plan | None, options: PlanningOptions
) -> tuple[Pool, ...]:
    """Return the pools that stand: they are used of a quota already. None where nobody knows."""
    if plan is None:
        return ()
    try:
        status = open_engine(options).stack_status(plan.stack.name)
    except TonnageError:
        # The line of the engine says why.
        return ()
    facts = status.facts if status is not None else None
    if facts is None or facts.provider != plan.graph.provider:
        return ()
    return facts.pools


def _instances(catalog: Catalog, cloud: str) -> dict[str, Instance]:
    return {
        offer.instance.instance_type: offer.instance
        for offer in (*catalog.offers, *catalog.unlisted)
        if offer.instance.provider == cloud
    }


def _exit_code(symptoms: Sequence[Symptom]) -> int:
    """Return the code of what is to fix: logins and rights first, then machines, then the rest."""
    kinds = {symptom.kind for symptom in symptoms if symptom.state == "fix"}
    if kinds & LOGIN_KINDS:
        return CredentialError.exit_code
    if kinds & MACHINE_KINDS:
        return CapacityError.exit_code
    return ResourceError.exit_code if kinds else 0
