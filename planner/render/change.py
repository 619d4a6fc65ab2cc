"""What a plan does to a stack that stands: the change of its cost, and of each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.cost.lifetime import release_time
from planner.render import period
from planner.render.against import other_total, since_before
from planner.render.bill import total_text
from planner.render.page import LINE_WIDTH, Block, PageTable, Paragraph
from planner.render.rivals import fleet_text
from planner.spec.model import BUCKET_WEIGHTS

if TYPE_CHECKING:
    from planner.plan.types import Changes, Plan, ResourceChange

# More changes of a kind than a reader takes in are counted.
SHOWN_CHANGES: Final = 5
SHOWN_KEYS: Final = 3
INDENT: Final = "  "


def created_text(plan: Plan) -> str:
    """Return how many resources a new stack has, or why there is none."""
    if plan.unbuilt_clouds:
        names = ", ".join(plan.unbuilt_clouds)
        return f"nothing is built at {names}: apply refuses this plan"
    if plan.unbuilt_accelerators:
        names = ", ".join(plan.unbuilt_accelerators)
        return f"nothing is built with {names}: apply refuses this plan"
    count = len(plan.graph.resources)
    return f"{count} {'resource' if count == 1 else 'resources'} to create"


def change_blocks(
    plan: Plan, changes: Changes, *, full: bool = False
) -> list[Block]:
    """Return what happens to a stack that stands."""
    if changes.is_empty:
        return [
            Paragraph(
                f"stack {plan.stack.name} stands already: nothing changes"
            ),
            *_stay_lines(plan),
        ]
    return [
        Paragraph(_headline(plan, changes), "strong", LINE_WIDTH),
        *_danger_lines(plan, changes),
        *_rolling_lines(plan, changes),
        *_stay_lines(plan),
        PageTable(
            ("", "", "", ""),
            tuple(_rows(changes, full=full)),
            width=LINE_WIDTH,
        ),
        Paragraph(f"{INDENT}= {changes.unchanged} unchanged"),
    ]


def _headline(plan: Plan, changes: Changes) -> str:
    """Return since when it stands, what it costs before and after, and what was asked for anew."""
    usd_before = changes.usd_before
    since = f" since {changes.since[:10]}" if changes.since else ""
    stands = f"stack {plan.stack.name} stands{since}"
    because = _because(changes)
    if usd_before is None or changes.period_before != plan.cost.period:
        return f"{stands}, and changes{because}"
    is_partial = changes.is_partial_before
    before_text = other_total(usd_before, is_partial=is_partial)
    delta_text = since_before(plan, usd_before, is_partial=is_partial)
    rate = period.RATES[plan.cost.period]
    return (
        f"{stands}: {before_text} to {total_text(plan)}{rate} "
        f"({delta_text}){because}"
    )


def _because(changes: Changes) -> str:
    """Name the keys of the spec that are not as they were applied."""
    texts = [
        f"{change.key} {change.before or 'none'} to {change.after or 'none'}"
        for change in changes.because[:SHOWN_KEYS]
    ]
    if not texts:
        return ""
    more = len(changes.because) - len(texts)
    more_text = f" and {more} more" if more else ""
    return f", because {', '.join(texts)}{more_text}"


def _stay_lines(plan: Plan) -> list[Paragraph]:
    """Say what would be cheaper, and why what stands is not moved to it."""
    stays = plan.solution.stays
    if stays is None:
        return []
    return [
        Paragraph(
            f"{INDENT}{fleet_text(stays.fleet)} would save "
            f"{figures.dollars(stays.saves_usd_month)} a month, moving costs "
            f"{figures.dollars(stays.moving_usd)}: it stays",
            "dim",
            LINE_WIDTH,
        )
    ]


def address_change() -> str:
    """Say what it means that a service gets another address."""
    stay_s = float(release_time("address_change_s"))
    return (
        "clients must learn another address: the old one answers for "
        f"{figures.about(stay_s)} after the new one does"
    )


def _danger_lines(plan: Plan, changes: Changes) -> list[Paragraph]:
    """Return what is lost, and for how long nothing answers."""
    lines = []
    if changes.outage_s:
        lines.append(
            f"outage of about {figures.about(float(changes.outage_s))}: old machines go "
            "before new ones answer (apply asks, or --allow outage)"
        )
    elif changes.new_address:
        lines.append(f"{address_change()} (apply asks, or --allow outage)")
    if changes.empty_data:
        lines.append(
            f"data: {', '.join(changes.empty_data)} is made anew and empty"
            f"{_until_upload(plan, changes)}; the old one is kept"
        )
    if changes.deletes_data:
        lines.append(
            f"data: {', '.join(changes.deletes_data)} would be deleted; kept "
            "unless you say --allow delete-data"
        )
    return [
        Paragraph(f"{INDENT}! {line}", "warn", LINE_WIDTH) for line in lines
    ]


def _until_upload(plan: Plan, changes: Changes) -> str:
    """Say that somebody must bring what the machines load, unless they fetch it themselves."""
    if plan.workload.weights not in (None, BUCKET_WEIGHTS):
        return ""
    is_awaited = changes.new_address and not changes.outage_s
    awaited = ", for which apply waits" if is_awaited else ""
    return f" until tonnage upload {plan.stack.name} FOLDER{awaited}"


def _rolling_lines(plan: Plan, changes: Changes) -> list[Paragraph]:
    """Say what serves while machines come, go or are made anew."""
    lines = []
    for rolling in changes.rolling:
        kept_nodes = rolling.nodes - rolling.at_once
        if rolling.surge:
            noun = "machine" if rolling.surge == 1 else "machines"
            lines.append(
                f"machines of {rolling.pool} are made anew: {rolling.surge} {noun} more at a "
                "time, and an old one goes when a new one answers; it takes quota for them"
            )
        elif kept_nodes:
            share_text = (
                ""
                if rolling.peak_share is None
                else ": the limits hold up to "
                f"{figures.percentage(float(rolling.peak_share))} of the peak"
            )
            lines.append(
                f"machines of {rolling.pool} are made anew, {rolling.at_once} of "
                f"{rolling.nodes} at a time{share_text}"
            )
    is_serving = any(pool.role == "serve" for pool in plan.solution.pools)
    if not lines and not changes.outage_s and is_serving:
        lines.append("no outage: what stands serves until the change is done")
    return [Paragraph(f"{INDENT}{line}", "dim", LINE_WIDTH) for line in lines]


def _rows(changes: Changes, *, full: bool) -> list[tuple[str, str, str, str]]:
    marked_changes: tuple[tuple[str, str, tuple[ResourceChange, ...]], ...] = (
        ("-", "delete", changes.delete),
        ("=", "keep", changes.keep),
        ("-+", "replace, the old first", changes.replace_first),
        ("+-", "replace", changes.replace),
        ("~", "update", changes.update),
        ("+", "create", changes.create),
    )
    rows = []
    for mark, verb, changed in marked_changes:
        is_long = len(changed) > SHOWN_CHANGES and not full
        shown_changes = changed[: SHOWN_CHANGES - 1] if is_long else changed
        rows += [
            (f"{INDENT}{mark}", verb, change.name, change.reason)
            for change in shown_changes
        ]
        if is_long:
            hidden_count = len(changed) - len(shown_changes)
            rows.append(
                (f"{INDENT}{mark}", verb, f"{hidden_count} more", "--full")
            )
    return rows
