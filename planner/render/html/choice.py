"""What else there is: fleets that lost, limits that cost money, and time against money."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from planner import figures
from planner.render import period
from planner.render.bill import total_text
from planner.render.diff.wording import UNKNOWN
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.figure import Figure, Section
from planner.render.html.plot import Axis
from planner.render.html.points import PricedChoice, choices_drawing
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.page import PageTable, Paragraph
from planner.render.rivals import (
    EVEN_ODDS_TEXT,
    binding_blocks,
    rivals_of,
    saving_text,
)
from planner.render.training import curve_blocks, duration_text
from planner.render.variation import frontier_page
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.plan.types import Plan
    from planner.render.html.rows import BarStyle
    from planner.render.rivals import Rival
    from planner.workload.variation import Variation


def rivals_section(plan: Plan, level: int) -> Section | None:
    """Return the fleets that were not chosen, and what stops each; nothing without any."""
    rivals = rivals_of(plan)
    if not rivals:
        return None
    rows = [
        _fleet_row("the plan", plan.cost.total, "total", total_text(plan)),
        *(
            _fleet_row(
                f"{rival.location} {rival.machines}",
                rival.usd,
                "second" if rival.usd < plan.cost.total else "main",
                rival.total_text,
            )
            for rival in rivals
        ),
    ]
    rows.sort(key=lambda row: row.bars[0].end or 0.0)
    notes = (
        [
            Paragraph(
                "What is dearer is by formula: only what could be cheaper was simulated.",
                "dim",
            )
        ]
        if plan.solution.verified
        else []
    )
    return Section(
        key="others",
        title="What else there is, and what stops it",
        content=(
            Figure(
                key="fleets",
                title=f"Fleets by their cost of {period.NAMES[plan.cost.period]}",
                summary=f"The plan, and {len(rivals)} fleets that were not chosen; striped ones "
                "are cheaper, and break a wish of the spec.",
                drawing=rows_drawing(rows, axis_text.money_tick),
                table=_rival_table(plan, rivals),
                is_open=True,
            ),
            *block_markup(notes, level + 1),
        ),
    )


def _rival_table(plan: Plan, rivals: Sequence[Rival]) -> PageTable:
    return PageTable(
        (
            "fleet",
            "",
            period.TITLES[plan.cost.period],
            "what it takes, or what stops it",
        ),
        (
            ("the plan", "", total_text(plan), ""),
            *(
                (
                    rival.location,
                    rival.machines,
                    rival.total_text,
                    rival.takes,
                )
                for rival in rivals
            ),
        ),
    )


def _fleet_row(name: str, usd: Decimal, style: BarStyle, note: str) -> ChartRow:
    return ChartRow(name=name, note=note, bars=(Bar(0, float(usd), style),))


def binding_section(plan: Plan, level: int) -> Section | None:
    """Return what each wish of the spec costs; nothing of a job without any."""
    blocks = binding_blocks(plan)
    rows = [
        _saving_row(
            f"{limit.constraint}: {limit.relax_to}",
            saving_text(plan, limit),
            limit.saves_usd_month,
        )
        for limit in plan.solution.binding
        if limit.saves_usd_month is not None
    ]
    safety = plan.solution.safety
    if safety and safety.fleet and safety.usd_month:
        rows.append(
            _saving_row(
                f"confidence: {EVEN_ODDS_TEXT}",
                saving_text(plan, safety),
                safety.usd_month,
            )
        )
    first = blocks[0]
    if not rows or not isinstance(first, PageTable):
        # A job has no wishes that are relaxed.
        if plan.solution.run:
            return None
        return Section(
            key="binding",
            title="What binds, and what relaxing it saves",
            content=block_markup(blocks, level + 1),
        )
    return Section(
        key="binding",
        title="What binds, and what relaxing it saves",
        content=(
            Figure(
                key="reliefs",
                title=f"Saved in {period.NAMES[plan.cost.period]} by one change",
                summary="; ".join(f"{row.name} {row.note}" for row in rows)
                + ". One change at a time: they do not add up.",
                drawing=rows_drawing(rows, axis_text.money_tick),
                table=first,
                is_open=True,
            ),
        ),
    )


def _saving_row(name: str, saved: str, usd: Decimal) -> ChartRow:
    """Return a row of a saving; its bar has no end where prices leave it open."""
    bar = (
        Bar(0, None, "unknown")
        if saved == UNKNOWN
        else Bar(0, float(usd), "good")
    )
    return ChartRow(name=name, note=f"saves {saved}", bars=(bar,))


def frontier_section(plan: Plan, found: Sequence[Variation]) -> Section | None:
    """Return what time or each limit costs; nothing where nothing of it was planned."""
    shown = [
        *_run_figures(plan),
        *(
            _frontier_figure(plan, subject, list(group))
            for subject, group in groupby(
                sorted(found, key=lambda one: (one.subject, one.value)),
                key=lambda one: one.subject,
            )
        ),
    ]
    if not shown:
        return None
    return Section(
        key="frontier",
        title="What time and confidence cost",
        content=tuple(shown),
    )


def _run_figures(plan: Plan) -> list[Figure]:
    """Return the clusters of a training job by their time; nothing where there is one alone."""
    run = plan.solution.run
    tables = [] if run is None else curve_blocks(run.curve)
    if run is None or not tables or not isinstance(tables[0], PageTable):
        return []
    longest_s = SECONDS_PER_HOUR * max(point.hours for point in run.curve)
    unit = axis_text.time_unit(longest_s)
    choices = [
        PricedChoice(
            point.hours * SECONDS_PER_HOUR / unit.seconds,
            float(point.usd),
            "plan"
            if point.chosen
            else "other"
            if point.violates is None
            else "beyond",
        )
        for point in run.curve
    ]
    fastest = min(run.curve, key=lambda point: point.hours)
    cheapest = min(run.curve, key=lambda point: point.usd)
    return [
        Figure(
            key="clusters",
            title="What time costs",
            summary=f"From {figures.dollars(fastest.usd)} in {duration_text(fastest.hours)} to "
            f"{figures.dollars(cheapest.usd)} in {duration_text(cheapest.hours)}. "
            "The diamond is the plan; empty circles break a limit.",
            drawing=choices_drawing(
                choices,
                (
                    Axis("time of a run", unit.text_of),
                    Axis("USD of a run", axis_text.money_tick),
                ),
            ),
            table=tables[0],
        )
    ]


def _frontier_figure(
    plan: Plan, subject: str, group: list[Variation]
) -> Figure:
    """Return what other values of a wish cost, beside that of the spec."""
    is_share = group[0].quantity == "confidence"
    unit = axis_text.time_unit(float(max(one.value for one in group)))
    scale = 1.0 if is_share else unit.seconds
    choices = [
        PricedChoice(float(one.value) / scale, float(one.answer.usd), "other")
        for one in group
        if one.answer.usd is not None
    ]
    asked = _asked_value(plan, subject)
    if asked is not None:
        choices.append(
            PricedChoice(asked / scale, float(plan.cost.total), "plan")
        )
    first = frontier_page(plan, group)[0]
    if not isinstance(first, PageTable):
        raise TypeError(first)
    return Figure(
        key=subject.replace(".", "-").replace("_", "-"),
        title=f"What {subject} costs",
        summary=f"{len(choices)} values of {subject} and the cheapest fleet of each; the diamond "
        f"is the plan, {total_text(plan)}.",
        drawing=choices_drawing(
            choices,
            (
                Axis(
                    subject,
                    axis_text.share_tick if is_share else unit.text_of,
                ),
                Axis(period.AMOUNTS[plan.cost.period], axis_text.money_tick),
            ),
        ),
        table=first,
    )


def _asked_value(plan: Plan, subject: str) -> float | None:
    """Return what the spec says of a wish: a share, or seconds."""
    if subject == "confidence":
        return plan.inputs.confidence / 100
    for limit in (plan.spec.normalized.get("sla") or {}).get("limits", []):
        if subject == f"sla.{limit['metric']}_p{limit['percentile']}":
            return float(limit["seconds"])
    job = plan.spec.normalized.get("train") or plan.spec.normalized
    deadline = job.get("deadline")
    return None if deadline is None else float(deadline)
