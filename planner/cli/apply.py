"""tonnage apply: create or change a stack from a reviewed plan."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from planner import figures
from planner.cli import budget, complete, option, policy
from planner.cli.account import engine_now
from planner.cli.binding import find_spec, present_inputs, refuse_underived
from planner.cli.closed_hours import tell_closed_hours
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    open_catalog,
    open_engine,
    open_world,
    read_file,
    read_spec,
)
from planner.cli.planning import make_plan, taken_ranges
from planner.cli.refusal import (
    refuse_high_cost,
    refuse_infeasible,
    refuse_many_changes,
    refuse_old_prices,
    refuse_past_block,
    refuse_unbought,
    refuse_unbuilt,
)
from planner.cli.run import run_engine
from planner.errors import (
    CapacityError,
    PolicyError,
    Problem,
    StaleError,
    UsageError,
)
from planner.plan.staleness import check_staleness
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.cli.option import OptionValues
    from planner.market.offer import Catalog
    from planner.plan.status import StackStatus
    from planner.plan.types import Changes, Plan
    from stacks.engine.protocol import Lives, RunControl, StackEngine
    from stacks.operate.machine import Trouble

# What a saved plan has already settled.
PLANNING_FLAGS = (
    "stack",
    "alternatives",
    "calibration",
    "confidence",
    "prices",
    "stops_after",
)


@click.command("apply")
@click.argument("path", metavar="PLAN|SPEC", shell_complete=complete.file_names)
@option.planning_flags
@option.allow
@budget.FLAG
@policy.FLAG
@policy.PACK_FLAG
@click.option(
    "--require-approval",
    metavar="SIGNERS",
    type=click.Path(exists=True, dir_okay=False),
    help="Apply a PLAN only if one of these signers of SSH has approved it.",
)
@click.option(
    "--max-cost-per-hour",
    metavar="USD",
    type=click.FloatRange(min=0),
    help="Refuse what costs more an hour (exit 5).",
)
@click.option(
    "--max-changes",
    metavar="N",
    type=click.IntRange(min=0),
    help="Refuse what changes more resources of a standing stack (exit 5).",
)
@click.option(
    "--max-price-age",
    metavar="DAYS",
    type=click.IntRange(min=0),
    help="Refuse a plan with a price of machines that is older (exit 13).",
)
@click.option(
    "--commitments-bought",
    is_flag=True,
    help="Say that the commitments are bought whose prices the plan has.",
)
@click.option(
    "--buy-capacity-blocks",
    is_flag=True,
    help="Buy the capacity block that the plan has; nobody takes it back.",
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="End when the cloud has a new template, and take none back that fails.",
)
@option.format_option("text", "json", is_stream=True)
@option.color
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask for a SPEC.")
@click.pass_context
def command(context: click.Context, /, path: str, **option_values: Any) -> int:
    """Create or change a stack. A PLAN asks only before an outage; a SPEC shows its plan and asks.

    A plan that no longer matches what it was made from is refused (exit 11), and nothing is
    touched. A second apply changes nothing, and one after a crash goes on from there. What holds
    data is kept, unless --allow delete-data.

    Example: tonnage apply chat.plan.json --simulate
    """
    from planner.plan.canonical import is_plan, parse_plan

    options = option.planning_options(option_values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    file_bytes = read_file(path, MAX_DOCUMENT_BYTES)
    # A saved plan is the approval, so only a spec needs a question.
    is_saved = is_plan(file_bytes)
    if is_saved:
        _refuse_planning_flags(context)
        plan = parse_plan(file_bytes, path)
        spec_file = find_spec(plan, path)
    else:
        spec_file = _parsed_spec(path, file_bytes)
        policy.check_policies(option_values["policy"], [path])
        reviewed_plan = _plan_and_confirm(
            spec_file, catalog, options, option_values
        )
        if reviewed_plan is None:
            click.echo("declined: nothing was done", err=True)
            return 0
        plan = reviewed_plan
    refuse_infeasible(plan)
    refuse_unbuilt(plan)
    if is_saved:
        # It may have been made before a rule was.
        policy.refuse_denied(
            policy.judge_specs(option_values["policy"], [(plan, spec_file)])
        )
    engine = open_engine(options)
    now = engine_now(engine)
    refuse_past_block(plan, now)
    # A saved plan may have been applied before.
    if is_saved and engine.stack_status(plan.stack.name) is None:
        tell_closed_hours(plan, now)
    if option_values["require_approval"]:
        _check_approval(path, file_bytes, option_values["require_approval"])
    refuse_high_cost(plan, _most_usd(option_values))
    if not option_values["commitments_bought"]:
        refuse_unbought(plan)
    budget.refuse_overspending(
        option_values["budgets"], [plan], options, counts_stacks=True
    )
    if option_values["max_price_age"] is not None:
        refuse_old_prices(plan, option_values["max_price_age"])
    return _carry_out(
        plan, spec_file, catalog, options, option_values, is_saved=is_saved
    )


def _carry_out(
    plan: Plan,
    spec_file: SpecFile | None,
    catalog: Catalog,
    options: PlanningOptions,
    option_values: OptionValues,
    *,
    is_saved: bool,
) -> int:
    """Check a plan against all that it was made from, and apply it."""
    from stacks.engine.guard import refuse_purchase
    from stacks.engine.ladder import standing_rung
    from stacks.engine.roll import apply_and_watch, begin_roll

    if is_saved and spec_file is None and not option_values["require_approval"]:
        raise _underivable(plan)
    engine = open_engine(options)
    stack_status = engine.stack_status(plan.stack.name)
    check_staleness(
        plan, present_inputs(plan, spec_file, catalog), stack_status
    )
    _tell_shared_addresses(plan, engine, stack_status)
    _tell_kept_sizes(plan, stack_status)
    # A spec was planned this moment; a document may say anything.
    if is_saved and spec_file is not None:
        refuse_underived(plan, spec_file, catalog, options)
    # A second apply goes on with the fallback that stands.
    variant = plan.on_rung(standing_rung(plan, stack_status))
    changes = _confirmed_changes(variant, engine, stack_status, option_values)
    if options.policy_pack and stack_status is None:
        # An update alone would meet what a pack refuses when a part is made already.
        engine.preview(variant)
    if not option_values["buy_capacity_blocks"]:
        refuse_purchase(variant, changes)
    preflight(engine, variant)
    if engine.simulated_world() is None:
        ask_account(variant, stack_status, catalog)

    def check(stack_status: StackStatus | None) -> None:
        # Files may have changed while somebody was asked, or while a lock was waited for.
        fresh_spec = (
            read_spec(spec_file.path)
            if spec_file is not None and spec_file.path != "-"
            else spec_file
        )
        check_staleness(
            plan, present_inputs(plan, fresh_spec, catalog), stack_status
        )

    control = replace(_control(option_values), check=check)
    roll = (
        None
        if option_values["no_wait"]
        else begin_roll(engine, plan, stack_status, changes, control)
    )
    return run_engine(
        engine,
        lambda listener, stop: apply_and_watch(
            engine, plan, roll, listener, replace(control, stop=stop)
        ),
        "apply",
        plan.stack.name,
        options,
        expected_steps=changes.count if changes else len(plan.graph.resources),
        output_format=option_values["format"],
        plan=plan,
    )


def _control(option_values: OptionValues) -> RunControl:
    """Return what a run has to heed, as far as options say it."""
    from stacks.engine.protocol import RunControl

    return RunControl(
        allow=option_values["allow"],
        most_usd_hour=_most_usd(option_values),
        lives=_seen_lives,
        troubles=_seen_troubles,
    )


def _seen_lives(provider: str, bucket: str, region: str) -> Lives:
    """Ask a real bucket for the machines that live."""
    from stacks.operate.bucket import Bucket
    from stacks.operate.machine import lives_in

    return lives_in(
        Bucket(provider=provider, name=bucket, region=region),
        datetime.now(UTC),
    )


def _seen_troubles(
    provider: str, bucket: str, region: str, since: datetime
) -> list[Trouble]:
    """Ask a real bucket for the machines that were given back in trouble."""
    from stacks.operate.bucket import Bucket
    from stacks.operate.health import troubles_since

    return troubles_since(
        Bucket(provider=provider, name=bucket, region=region), since
    )


def _confirmed_changes(
    plan: Plan,
    engine: StackEngine,
    stack_status: StackStatus | None,
    option_values: OptionValues,
) -> Changes | None:
    """Return what a plan does to a stack, once everybody who has to be asked agrees.

    Nothing where no stack stands. What the document says of changes was true when it was made,
    if ever.
    """
    from stacks.engine.impact import changes_of

    if stack_status is None:
        return None
    changes = changes_of(plan, engine.preview(plan), stack_status)
    refuse_many_changes(plan, changes, option_values["max_changes"])
    # A run that was cut goes on with what was agreed to before it began.
    goes_on = (
        stack_status.operation == "applying"
        and stack_status.plan == plan.digest
    )
    if goes_on:
        return changes
    if any(
        (
            changes.delete,
            changes.replace,
            changes.replace_first,
            changes.outage_s,
            changes.new_address,
        )
    ):
        _check_production(stack_status, option_values)
    _confirm_outage(plan, changes, option_values)
    return changes


def preflight(engine: StackEngine, plan: Plan) -> None:
    """Raise everything that the clouds would refuse, before anything is made.

    Where only machines are lacking, a fallback that nothing is lacking for is enough.
    """
    from stacks.engine.failure import combined_error

    refusals = engine.preflight(plan)
    if not refusals:
        return
    error = combined_error(refusals, "would be refused", "nothing was made yet")
    if isinstance(error, CapacityError) and not all(
        engine.preflight(plan.on_rung(rung))
        for rung in range(1, len(plan.fallbacks) + 1)
    ):
        return
    raise error


def ask_account(
    plan: Plan, stack_status: StackStatus | None, catalog: Catalog
) -> None:
    """Raise everything that the account of the user would refuse, before anything is made.

    Where only machines are lacking and the plan has fallbacks, apply walks down to them.
    """
    from planner.cli.progress import waiting
    from stacks.engine.account import account_refusals
    from stacks.engine.failure import combined_error

    facts = stack_status.facts if stack_status is not None else None
    stands_there = facts is not None and facts.provider == plan.graph.provider
    instances = {
        offer.instance.instance_type: offer.instance
        for offer in (*catalog.offers, *catalog.unlisted)
        if offer.instance.provider == plan.graph.provider
    }
    with waiting(f"asking the account of {plan.graph.provider}"):
        refusals = account_refusals(
            plan,
            facts.pools if facts is not None and stands_there else (),
            instances,
            lambda text: click.echo(f"note: {text}", err=True),
        )
    if not refusals:
        return
    error = combined_error(refusals, "would be refused", "nothing was made yet")
    if isinstance(error, CapacityError) and plan.fallbacks:
        for problem in error.problems:
            click.echo(
                f"note: {problem.message}; fallbacks are tried", err=True
            )
        return
    raise error


def _tell_shared_addresses(
    plan: Plan, engine: StackEngine, stack_status: StackStatus | None
) -> None:
    """Say it when another stack has the addresses of a new one: their networks cannot be joined.

    A plan that was made without the state of the stacks does not know them.
    """
    from planner.plan.status import StackFacts
    from planner.spec.network import overlaps_any

    network = plan.spec.normalized.get("network") or {}
    if stack_status is not None or network.get("id"):
        return
    own_range = StackFacts.of(plan).network_range
    if overlaps_any(own_range, taken_ranges(engine, plan.stack.name)):
        click.echo(
            f"note: another stack has addresses of {own_range} too, so the networks of both "
            f"cannot be joined; tonnage plan --stack {plan.stack.name} chooses others",
            err=True,
        )


def _tell_kept_sizes(plan: Plan, stack_status: StackStatus | None) -> None:
    """Say it when the disks of a workspace have another size than a plan: they keep theirs."""
    facts = stack_status.facts if stack_status is not None else None
    before = facts.spec.get("disk") if facts is not None else None
    after = plan.spec.normalized.get("disk")
    if before is not None and after is not None and before != after:
        click.echo(
            f"note: disks of {plan.stack.name} that there are keep their size, "
            f"{figures.byte_size(int(before))}; the bill counts {figures.byte_size(int(after))}",
            err=True,
        )


def _underivable(plan: Plan) -> StaleError:
    return StaleError(
        Problem(
            code="derived",
            message=f"{plan.spec.path} is not here, so the plan cannot be derived again",
            cause="without its spec, only a signature tells that it was reviewed",
            next_step="apply it beside its spec, or sign it with tonnage approve "
            "and apply with --require-approval",
        )
    )


def _parsed_spec(path: str, file_bytes: bytes) -> SpecFile:
    from planner.spec.load import load_spec

    return SpecFile(
        path=path, file_bytes=file_bytes, spec=load_spec(file_bytes, path)
    )


def _refuse_planning_flags(context: click.Context) -> None:
    """Raise UsageError for a flag that would change how a saved plan is made."""
    for name in PLANNING_FLAGS:
        if context.get_parameter_source(name) in (
            ParameterSource.COMMANDLINE,
            ParameterSource.ENVIRONMENT,
        ):
            raise UsageError(
                Problem(
                    code="flag",
                    message=f"--{name} changes how a plan is made, and this one is",
                    cause=f"it may also come from TONNAGE_APPLY_{name.upper()}",
                    next_step="leave it out, or plan again with it: tonnage plan SPEC",
                )
            )


def _check_approval(path: str, file_bytes: bytes, signers_path: str) -> None:
    """Say who approved a plan. Raises PolicyError when nobody did who may."""
    from stacks.operate.signature import verify

    signer = verify(Path(path), file_bytes, Path(signers_path))
    click.echo(f"approved by {signer}", err=True)


def _most_usd(option_values: OptionValues) -> Decimal | None:
    """Return what a caller allows to spend in an hour; none: any amount."""
    most_usd = option_values["max_cost_per_hour"]
    return None if most_usd is None else Decimal(str(most_usd))


def _check_production(
    stack_status: StackStatus, option_values: OptionValues
) -> None:
    """Raise PolicyError where parts of a stack in production would go and nobody is asked."""
    from stacks.engine.guard import refuse_production

    if not option.can_ask(option_values):
        refuse_production(
            stack_status.stack,
            stack_status.facts,
            option_values["allow"],
            "parts of it would be deleted or made anew",
        )


def _confirm_outage(
    plan: Plan, changes: Changes, option_values: OptionValues
) -> None:
    """Ask before nothing answers for a while, or not where it did.

    Raises PolicyError where nobody can be asked.
    """
    from planner.render.change import address_change

    if "outage" in option_values["allow"]:
        return
    if changes.outage_s:
        duration = figures.about(float(changes.outage_s))
        outage_text = f"nothing answers for about {duration}"
        cause = "old machines go before new ones answer"
    elif changes.new_address:
        outage_text = address_change()
        cause = "it moves to another place, and its old machines go then"
    else:
        return
    if option.can_ask(option_values) and click.confirm(
        f"{outage_text}. Go on?", default=False, err=True
    ):
        return
    raise PolicyError(
        Problem(
            code="outage",
            message=f"{plan.stack.name}: {outage_text}",
            cause=cause,
            next_step="apply it when that is all right: --allow outage",
        )
    )


def _plan_and_confirm(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    option_values: OptionValues,
) -> Plan | None:
    """Plan a spec on its stack, show the plan and ask; None when the answer is no."""
    from planner.render.plan import plan_page

    plan = make_plan(
        spec_file,
        catalog,
        # A stack name makes the plan start from the state of that stack.
        replace(options, stack=options.stack or spec_file.spec.name),
    )
    # As JSON, standard output has events and nothing else.
    if option_values["format"] == "text":
        shown_page = plan_page(plan, today=option.today())
        option.print_page(shown_page, "text", option_values["color"])
    # An infeasible plan is shown; the caller then refuses it.
    if not plan.solution.pools or plan.is_compared_only:
        return plan
    # Nobody is asked for what is denied.
    policy.refuse_denied(
        policy.judge_specs(option_values["policy"], [(plan, spec_file)])
    )
    tell_closed_hours(plan, engine_now(open_engine(options)))
    if option_values["yes"]:
        return plan
    if option_values["no_input"]:
        problem = Problem(
            code="confirm",
            message="apply of a spec asks, and --no-input forbids asking",
            next_step="review a plan and apply it: tonnage plan SPEC -o FILE",
        )
        raise UsageError(problem)
    return (
        plan if click.confirm("Create this?", default=False, err=True) else None
    )
