"""Page of a difference: the specs in one table, then what differs in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.errors import Place
from planner.render import period
from planner.render.diff.overview import DIFF_WIDTH, overview_table
from planner.render.diff.wording import (
    STATE_MARKS,
    amount_text,
    bound_mark,
    catalog_text,
    cause_text,
    counts_text,
    delta_text,
    effect_text,
    has_difference,
    percent_text,
    quantities_text,
    relaxation_text,
    shortened,
    side_text,
    verdict_text,
)
from planner.render.limit import CLOSE_SENTENCE, is_close
from planner.render.metric import metric_text, metric_title
from planner.render.page import (
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
    total_row_tones,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.diff import BilledEntry, PlanChange
    from planner.plan.diff_document import (
        DiffDocument,
        MetricChange,
        SideProblem,
        SpecDiff,
        SpecSide,
    )
    from planner.plan.part import Number
    from planner.plan.prediction import MetricLimit, Prediction
    from planner.spec.change import KeyChange

ARROW: Final = " -> "


def diff_page(document: DiffDocument) -> Page:
    """Return the page of a difference."""
    page_blocks: list[Block] = [_head(document)]
    differing = [spec for spec in document.specs if has_difference(spec)]
    has_table = len(document.specs) != 1 or document.before.commit is not None
    if has_table and document.specs:
        page_blocks.append(overview_table(document, document.specs))
    page_blocks += note_blocks(document)
    for spec in differing:
        if has_table:
            page_blocks.append(Heading(_section_title(spec)))
        page_blocks += spec_blocks(spec)
    if not has_table and not differing:
        spec = document.specs[0]
        page_blocks.append(
            Paragraph(f"{spec.name}: no change, {side_text(spec.after)}")
        )
    return tuple(page_blocks)


def _head(document: DiffDocument) -> Paragraph:
    phrases = [f"{document.before.name}{ARROW}{document.after.name}"]
    if document.before.commit is not None:
        phrases.append(counts_text(document))
    phrases.append(catalog_text(document))
    return Paragraph("   ".join(phrases), "dim", DIFF_WIDTH)


def note_blocks(document: DiffDocument) -> list[Block]:
    """Return what is in no total, what catalogs did, and how thresholds judge."""
    notes: list[Block] = [
        Paragraph(f"  {effect_text(effect)}", "dim", DIFF_WIDTH)
        for effect in document.catalog_effects
    ]
    if document.left_out:
        notes.append(
            Paragraph(
                f"! not in the total: {', '.join(document.left_out)}",
                "warn",
                DIFF_WIDTH,
            )
        )
    if document.unplanned:
        count = len(document.unplanned)
        noun = "spec is" if count == 1 else "specs are"
        notes.append(
            Paragraph(
                f"  {count} unchanged {noun} in no total: see --all",
                "dim",
                DIFF_WIDTH,
            )
        )
    notes += [
        Paragraph(
            f"{'!' if verdict.is_exceeded else ' '} {verdict_text(verdict)}",
            "bad" if verdict.is_exceeded else "good",
            DIFF_WIDTH,
        )
        for verdict in document.thresholds
    ]
    return notes


def _section_title(spec: SpecDiff) -> str:
    title = f"{STATE_MARKS[spec.state]} {spec.path}"
    if spec.state == "renamed" and spec.before is not None:
        return f"{title}, was {spec.before.path}"
    return title


def spec_blocks(spec: SpecDiff) -> list[Block]:
    """Return all that differs in a spec."""
    return [
        *problem_blocks(spec),
        *key_blocks(spec),
        *machine_blocks(spec),
        *bill_blocks(spec),
        *metric_blocks(spec),
    ]


def problem_blocks(spec: SpecDiff) -> list[Block]:
    """Return what keeps a side of a spec from having a cost."""
    problems: list[Block] = []
    for side_name, side in (("before", spec.before), ("after", spec.after)):
        if side is None or side.status == "planned":
            continue
        if side.status == "infeasible":
            text = f"! {side_name}: nothing meets it, which is proved"
            problems.append(Paragraph(text, "bad", DIFF_WIDTH))
        problems += [
            Paragraph(
                f"! {side_name}: {_place(problem)}  "
                f"error[{problem.code}]: {problem.message}; {problem.next_step}",
                "bad",
                DIFF_WIDTH,
            )
            for problem in side.problems
        ]
    return problems


def _place(problem: SideProblem) -> Place:
    return Place(problem.path, problem.line, problem.column)


def key_blocks(spec: SpecDiff) -> list[Block]:
    """Return what a spec, and the files that it names, say differently."""
    key_table: list[Block] = []
    if spec.keys:
        rows = tuple(
            (
                _line_text(change),
                change.key,
                shortened(change.before),
                shortened(change.after),
            )
            for change in spec.keys
        )
        titles = (">line", "key", "before", "after")
        key_table.append(PageTable(titles, rows, width=DIFF_WIDTH))
    if spec.files:
        names = ", ".join(spec.files)
        key_table.append(
            Paragraph(f"  other content: {names}", width=DIFF_WIDTH)
        )
    cause = cause_text(spec)
    if cause:
        key_table.append(Paragraph(f"  {cause}", width=DIFF_WIDTH))
    return key_table


def _line_text(change: KeyChange) -> str:
    """Return the line of a key; of one that is gone that of the old file."""
    if change.line is not None:
        return str(change.line)
    if change.line_before is None:
        return ""
    return f"was {change.line_before}"


def machine_blocks(spec: SpecDiff) -> list[Block]:
    """Return the pools that differ, and what would be cheaper."""
    lines: list[Block] = []
    for change in spec.changes:
        if change.subject != "pool":
            continue
        old, new = change.before, change.after
        machines = (_machines(old), _machines(new))
        lines.append(
            _pair_line(f"{change.mark} {change.name}  ", machines, "nothing")
        )
        layouts = (_layout(old), _layout(new))
        if layouts[0] != layouts[1]:
            lines.append(_pair_line("    replicas  ", layouts, "none"))
    relaxation = relaxation_text(spec)
    if relaxation:
        lines.append(Paragraph(f"  {relaxation}", width=DIFF_WIDTH))
    return lines


def _machines(entry: BilledEntry | None) -> str | None:
    return entry.machines if entry is not None else None


def _layout(entry: BilledEntry | None) -> str | None:
    return entry.layout if entry is not None else None


def _pair_line(
    prefix: str, texts: tuple[str | None, str | None], absent: str
) -> Paragraph:
    old, new = texts
    return Paragraph(
        f"{prefix}{old or absent}{ARROW}{new or absent}", width=DIFF_WIDTH
    )


def bill_blocks(spec: SpecDiff) -> list[Block]:
    """Return the cost of pools and the lines of the bill that differ, with the total."""
    if not spec.changes:
        return []
    old_period = spec.before.period if spec.before else None
    new_period = spec.after.period if spec.after else None
    is_comparable = old_period is None or new_period in (None, old_period)
    pool_count = sum(change.subject == "pool" for change in spec.changes)
    rows = [
        _change_row(
            change,
            "machines" if pool_count == 1 else f"machines of {change.name}",
            is_comparable=is_comparable,
        )
        for change in spec.changes
    ]
    rows.append(
        (
            "",
            "total",
            percent_text(spec.delta),
            _total_cell(spec.before),
            _total_cell(spec.after),
            delta_text(spec.delta),
        )
    )
    first_period = old_period or new_period or "month"
    then_title = ">then"
    if not is_comparable and new_period is not None:
        then_title = f">then, {period.AMOUNTS[new_period]}"
    titles = (
        "",
        spec.name,
        ">quantity",
        f">{period.AMOUNTS[first_period]}",
        then_title,
        ">change",
    )
    return [
        PageTable(titles, tuple(rows), total_row_tones(len(rows)), DIFF_WIDTH)
    ]


def _total_cell(side: SpecSide | None) -> str:
    return amount_text(side.cost) if side is not None else amount_text(None)


def _change_row(
    change: PlanChange, pool_title: str, *, is_comparable: bool
) -> tuple[str, ...]:
    return (
        change.mark,
        pool_title if change.subject == "pool" else change.name,
        quantities_text(change.before, change.after),
        amount_text(change.before.cost if change.before else None),
        amount_text(change.after.cost if change.after else None),
        delta_text(change.delta) if is_comparable else "-",
    )


def metric_blocks(spec: SpecDiff) -> list[Block]:
    """Return what is predicted on both sides, with limits and what is left of them.

    Nothing where none of it differs, as where a file has another name alone.
    """
    metrics = [metric for metric in spec.metrics if _is_shown(metric)]
    rows = [_metric_row(metric) for metric in metrics]
    if spec.after is not None and spec.after.status == "planned":
        rows += _side_rows(spec)
    if len(rows) == len(metrics) and not any(map(_is_changed, metrics)):
        return []
    titles = ("at peak", ">before", ">then", ">limit", ">headroom")
    return [
        PageTable(titles, tuple(rows), width=DIFF_WIDTH),
        *_close_blocks(spec),
    ]


def _is_changed(metric: MetricChange) -> bool:
    return (metric.before, metric.limit_before) != (
        metric.after,
        metric.limit_after,
    )


def _close_blocks(spec: SpecDiff) -> list[Block]:
    """Return the remark that a limit is near, as the page of the plan has it."""
    if spec.after is None or not is_close(spec.after.verdict):
        return []
    return [Paragraph(f"  {CLOSE_SENTENCE}", "dim", DIFF_WIDTH)]


def _is_shown(metric: MetricChange) -> bool:
    """Whether a number is one that people judge by: of percentiles, those with a limit."""
    has_limit = metric.limit_before or metric.limit_after
    return bool(has_limit) or not (
        metric.name.endswith("_ms")
        or metric.name == "memory_gib_per_accelerator"
    )


def _metric_row(metric: MetricChange) -> tuple[str, ...]:
    return (
        metric_title(metric.name),
        _value_text(metric.name, metric.before),
        _value_text(metric.name, metric.after),
        _limits_text(metric),
        _pair_text(
            _headroom_text(metric.limit_before),
            _headroom_text(metric.limit_after),
        ),
    )


def _value_text(name: str, prediction: Prediction | None) -> str:
    return metric_text(name, prediction.value) if prediction else "-"


def _limits_text(metric: MetricChange) -> str:
    return _pair_text(
        *(
            metric_text(metric.name, limit.limit) if limit else ""
            for limit in (metric.limit_before, metric.limit_after)
        )
    )


def _headroom_text(limit: MetricLimit | None) -> str:
    return figures.percentage(limit.headroom) if limit else ""


def _pair_text(before: str, after: str) -> str:
    """Return a value that may differ between the sides; once where it is the same."""
    if before == after:
        return after
    return f"{before or '-'}{ARROW}{after or '-'}"


def _side_rows(spec: SpecDiff) -> list[tuple[str, ...]]:
    """Return what holds for the whole spec: confidence, and what tokens cost."""
    before, after = _side_values(spec.before), _side_values(spec.after)
    return [
        (title, before[title], after[title], "", "")
        for title in before
        if before[title] != after[title]
    ]


def _side_values(side: SpecSide | None) -> dict[str, str]:
    confidence = side.confidence if side else None
    output_usd = side.usd_per_million_output if side else None
    blended_usd = side.usd_per_million_tokens if side else None
    mark = bound_mark(side.cost if side else None)
    return {
        "confidence": _share_text(confidence),
        "$ per million tokens out": _token_text(output_usd, mark),
        "$ per million tokens": _token_text(blended_usd, mark),
    }


def _share_text(share: Number | None) -> str:
    return "-" if share is None else figures.percentage(share)


def _token_text(price_usd: Decimal | None, mark: str) -> str:
    """Return a cost of tokens, which is a lower bound where the cost is."""
    if price_usd is None:
        return "-"
    return f"{mark}{figures.token_price(price_usd)}"
