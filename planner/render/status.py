"""Pages of existing stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.facts.cloud import clouds
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Page,
    PageTable,
    Paragraph,
    phrases,
)
from planner.units import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.plan.account import (
        Basis,
        PastRun,
        StackAccount,
        StackHealth,
    )
    from planner.plan.status import (
        BatchJob,
        Operation,
        ResourceRef,
        StackStatus,
    )

# Of a time such as 2026-11-23T20:32:17, up to the minute.
MINUTE_LENGTH: Final = 16
# Seconds of a unit and of the next smaller one, with how each is written.
TIME_UNITS: Final = (
    (SECONDS_PER_DAY, "days", SECONDS_PER_HOUR, "h"),
    (SECONDS_PER_HOUR, "h", SECONDS_PER_MINUTE, "min"),
    (SECONDS_PER_MINUTE, "min", 1, "s"),
)
SPENT_TEXTS: Final[dict[Basis, str]] = {
    "metered": "{spent} so far",
    "machines": "about {spent} so far, by the hours of its machines",
    "plan": "about {spent} so far, by the plan",
}
OPERATION_PHRASES: Final[dict[Operation, str]] = {
    "applied": "complete",
    "applying": "INCOMPLETE: the last apply did not end well",
    "destroying": "HALF DESTROYED: the last destroy did not end well",
    "destroyed": "destroyed, but for its data",
}


def shown_outputs(status: StackStatus) -> tuple[tuple[str, str], ...]:
    """Return what a stack tells, as people use it: a dashboard is a page."""
    outputs = {name: str(value) for name, value in status.outputs.items()}
    facts = status.facts
    dashboard_id = outputs.get("dashboard")
    if facts is not None and dashboard_id:
        outputs["dashboard"] = clouds()[facts.provider].dashboard_page.format(
            id=dashboard_id,
            name=dashboard_id.rpartition("/")[2],
            region=facts.region,
        )
    return tuple(sorted(outputs.items()))


def wake_rows(status: StackStatus) -> tuple[tuple[str, str], ...]:
    """Return what brings the machines of a service back that has none while nobody asks."""
    pools = status.facts.pools if status.facts is not None else ()
    if not any(pool.elastic and not pool.elastic.least_share for pool in pools):
        return ()
    return (("wake it", f"tonnage start {status.stack}"),)


def stacks_page(stacks: Sequence[tuple[StackStatus, StackAccount]]) -> Page:
    """Return the page of all stacks: where they are, what they cost, how they are."""
    if not stacks:
        return (Paragraph("no stack exists"),)
    return (
        PageTable(
            ("stack", "where", "machines", ">USD an hour", ">so far", ""),
            tuple(_stack_row(status, account) for status, account in stacks),
        ),
    )


def _stack_row(
    status: StackStatus, account: StackAccount
) -> tuple[str, str, str, str, str, str]:
    facts = status.facts
    is_gone = status.operation == "destroyed"
    pools = facts.pools if facts and not is_gone else ()
    return (
        status.stack,
        f"{facts.provider} {facts.region}" if facts else "",
        ", ".join(f"{pool.nodes} x {pool.instance_type}" for pool in pools),
        _optional_dollars(account.usd_hour),
        _optional_dollars(account.spent_usd),
        OPERATION_PHRASES[status.operation],
    )


def _minute(time: str) -> str:
    """Return a time in ISO 8601 up to its minute."""
    return time[:MINUTE_LENGTH].replace("T", " ")


def _optional_dollars(usd: Decimal | None) -> str:
    return "" if usd is None else figures.dollars(usd, cents=True)


def call_lines(
    endpoint: str, model_name: str, *, has_key: bool, points_to: str = ""
) -> tuple[str, ...]:
    """Return a command that asks a service something, as lines that can be copied.

    `points_to` is where the name in the endpoint has to point, empty where it is an address.
    """
    key_words = '  -H "Authorization: Bearer $KEY" \\' if has_key else ""
    return tuple(
        filter(
            None,
            (
                f"# {_record(points_to)} lets the name point to {points_to}"
                if points_to
                else "",
                f"curl {endpoint}/v1/completions \\",
                "  -H 'content-type: application/json' \\",
                key_words,
                f'  -d \'{{"model": "{model_name}", "prompt": "Hello"}}\'',
            ),
        )
    )


def _record(target: str) -> str:
    """Return the record of a zone with which a name points to an address or to another name."""
    is_address = target.replace(".", "").isdigit()
    return "an A record" if is_address else "a CNAME"


def history_page(runs: Sequence[PastRun]) -> Page:
    """Return the page of what was done with a stack, the newest last."""
    return (
        PageTable(
            ("when", "who", "what", ">changes", ">USD an hour", "how it ended"),
            tuple(
                (
                    _minute(run.began),
                    run.by,
                    run.verb,
                    str(run.changes),
                    _optional_dollars(run.usd_hour),
                    run.outcome,
                )
                for run in runs
            ),
        ),
    )


def status_page(
    stack_status: StackStatus,
    account: StackAccount,
    health: StackHealth,
    *,
    events: Sequence[str] = (),
    calls: Sequence[str] = (),
    full: bool = False,
) -> Page:
    """Return the page of one stack: since when it stands, what it costs, how it is.

    `events` are lines of simulated clouds, the newest last. `calls` are those of a command that
    asks a service something. `full` lists the resources.
    """
    headline = (
        f"{stack_status.stack}  ·  {len(stack_status.resources)} resources  "
        f"·  {OPERATION_PHRASES[stack_status.operation]}"
    )
    page_blocks: list[Block] = [
        Paragraph(headline, "strong" if stack_status.complete else "bad"),
        *_account_lines(stack_status, account),
    ]
    is_gone = stack_status.operation == "destroyed"
    if not is_gone:
        page_blocks += _machine_blocks(stack_status)
        page_blocks += _health_lines(health)
    page_blocks += [Paragraph(f"  {line}") for line in events]
    if stack_status.pending:
        page_blocks.append(
            Paragraph(
                "! a run was cut off, and it is not known what came of: "
                f"{', '.join(stack_status.pending)}",
                "warn",
                LINE_WIDTH,
            )
        )
    if stack_status.retained:
        page_blocks.append(
            _resource_table("kept for its data", stack_status.retained)
        )
    output_rows = shown_outputs(stack_status)
    if output_rows and not is_gone:
        call_rows = tuple(
            ("" if number else "call it", line)
            for number, line in enumerate(calls)
        )
        page_blocks.append(
            PageTable(
                ("output", "value"),
                output_rows + call_rows + wake_rows(stack_status),
            )
        )
    if full:
        page_blocks.append(_resource_table("resource", stack_status.resources))
    return tuple(page_blocks)


def _account_lines(
    stack_status: StackStatus, account: StackAccount
) -> list[Block]:
    """Say since when it stands, what it has cost and costs now, and when it ends."""
    if account.age_s is None:
        return []
    words = [f"since {_long_time(account.age_s)}"]
    if account.spent_usd is not None:
        spent = figures.dollars(account.spent_usd, cents=True)
        words.append(SPENT_TEXTS[account.spent_basis].format(spent=spent))
        if account.spent_basis != "plan" and account.planned_usd is not None:
            planned = figures.dollars(account.planned_usd, cents=True)
            words[-1] += f" (plan: {planned}, with traffic and logs)"
    if account.usd_hour is not None:
        machine_word = "machine" if account.nodes == 1 else "machines"
        now_text = f"{figures.dollars(account.usd_hour, cents=True)} an hour"
        words.append(
            now_text
            if account.nodes is None
            else f"{account.nodes} {machine_word}, {now_text}"
        )
    if account.left_s is not None:
        words.append(
            f"ends in {_long_time(account.left_s)}"
            if account.left_s > 0
            else "ended"
        )
    elif stack_status.operation != "destroyed":
        words.append("no TTL")
    return [phrases(words, indent="  "), *_prepaid_lines(account)]


def _prepaid_lines(account: StackAccount) -> list[Block]:
    """Say on which machines the price counts that a person has bought, and what it is without."""
    if not account.prepaid:
        return []
    text = (
        f"  counts on what is bought beside the stack: {account.prepaid_text}"
    )
    if account.unbought_usd_hour is not None:
        usd = figures.dollars(account.unbought_usd_hour, cents=True)
        text += f"; without it {usd} an hour"
    return [Paragraph(text, width=LINE_WIDTH)]


def _long_time(seconds: float) -> str:
    """Return a time in its two largest units: 12 days 3 h, 5 h 20 min, 3 min 36 s."""
    for unit_s, unit, part_s, part in TIME_UNITS:
        if seconds >= unit_s:
            count, rest_s = divmod(seconds, unit_s)
            return f"{count:.0f} {unit} {rest_s // part_s:.0f} {part}"
    return figures.duration(seconds)


def _machine_blocks(stack_status: StackStatus) -> list[Block]:
    stack_facts = stack_status.facts
    if stack_facts is None:
        return []
    cost_text = f"{figures.dollars(stack_facts.usd_hour, cents=True)}/h"
    # The cost is that of all pools together.
    is_one = len(stack_facts.pools) == 1
    rows = [
        (
            f"{pool.provider} {pool.region}",
            f"{pool.nodes} x {pool.instance_type}",
            pool.purchase_text,
            cost_text if is_one else "",
        )
        for pool in stack_facts.pools
    ]
    if not is_one:
        rows.append(("total", "", "", cost_text))
    return [PageTable(("", "", "", ">"), tuple(rows))]


def _health_lines(health: StackHealth) -> list[Block]:
    """Say which machines live, and why others have ended."""
    if health.problem:
        return [
            Paragraph(
                f"! the machines could not be asked: {health.problem}",
                "warn",
                LINE_WIDTH,
            )
        ]
    lines: list[Block] = []
    for found in health.groups:
        machine_word = "machine" if found.alive == 1 else "machines"
        lines.append(
            Paragraph(
                f"  {found.group}: {found.alive} {machine_word} alive, "
                f"heard {_long_time(found.heard_s)} ago"
            )
        )
    lines += [
        Paragraph(
            f"  {_minute(event.at)}  {event.group} {event.machine} "
            f"{event.outcome}: {event.reason}"
        )
        for event in health.events
    ]
    return lines


def _resource_table(title: str, resources: Sequence[ResourceRef]) -> PageTable:
    return PageTable(
        (title, "type"),
        tuple((resource.name, resource.type) for resource in resources),
    )


def batch_page(stack_name: str, jobs: Sequence[BatchJob]) -> Page:
    """Return the page of the batches of a stack."""
    if not jobs:
        return (Paragraph(f"{stack_name} has no batch yet"),)
    return (
        PageTable(
            ("batch", ">files", ">begun", ">answered", ">with errors", ""),
            tuple(
                (
                    job.name,
                    str(job.arrived if job.files is None else job.files),
                    str(job.begun),
                    str(job.answered),
                    str(job.failed),
                    job.state,
                )
                for job in jobs
            ),
        ),
    )
