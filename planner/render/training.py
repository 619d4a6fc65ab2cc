"""Parts of a plan's page for training jobs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.page import LINE_WIDTH, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import (
        BilledTime,
        CheckpointRule,
        CurvePoint,
        LoaderSpeed,
        Run,
        RunScenario,
        StorageSpeed,
        TrainingLayout,
    )
    from planner.render.page import Block

MIN_CURVE_POINTS: Final = 2
LOADER_WORDS: Final = {
    "text": ("tokenize", "tokens"),
    "images": ("decode", "images"),
}
SHARDING_NAMES: Final = {
    "none": "",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "FSDP",
}


def layout_line(run_entry: Run) -> str:
    """Return the layout of a run and its steps."""
    layout = run_entry.layouts[0]
    return (
        f"{layout_summary(layout)} in {layout.precision}; {run_entry.steps:,} "
        f"steps of {run_entry.global_batch:,} x {run_entry.sequence:,} tokens"
    )


def ending_line(run_entry: Run) -> str:
    """Return when a run ends, with the share of simulated runs that do."""
    return (
        f"ends within {duration_text(run_entry.hours_p50)} in half of 1,000 "
        f"simulated runs, {duration_text(run_entry.hours_p90)} in 90 % of them"
    )


def checkpoint_line(run_entry: Run) -> str:
    """Return how often a checkpoint is written, and the stops that are expected."""
    checkpoint_text = (
        f"a checkpoint of {_size_text(run_entry.checkpoint_gb)} every "
        f"{duration_text(run_entry.checkpoint_interval_s / 3600)}, "
        f"{run_entry.stops:,.1f} stops expected"
    )
    if run_entry.spares:
        checkpoint_text += (
            f", {run_entry.spares} spare "
            f"machine{'s' if run_entry.spares > 1 else ''}"
        )
    return checkpoint_text


def retention_line(rule: CheckpointRule) -> str:
    """Return a line with the checkpoints that are kept, and those that are left in the end."""
    span_text = figures.compact_seconds(Decimal(str(rule.every_s)))
    retention_text = (
        f"kept are the last {rule.last} and one every {span_text}; "
        f"{_size_text(rule.left_gb)} are left"
    )
    if rule.left_usd_month is None:
        return retention_text
    return (
        f"{retention_text}, {figures.dollars(rule.left_usd_month)} a month "
        "until they are deleted"
    )


def billed_line(billed: BilledTime) -> str:
    """Return a line with the hours that one machine is billed for, in the order of events."""
    return (
        f"each machine is billed for {duration_text(billed.total)}: "
        f"{duration_text(billed.start)} to start, {duration_text(billed.steps)} of steps, "
        f"{duration_text(billed.lost)} lost to checkpoints and stops, "
        f"{duration_text(billed.closing + billed.release)} to save and be given back"
    )


def _size_text(size_gb: float) -> str:
    if size_gb >= 1000:
        return f"{size_gb / 1000:,.1f} TB"
    return f"{figures.quantity(Decimal(str(size_gb)))} GB"


def storage_line(storage_entry: StorageSpeed) -> str:
    """Return a line with storage type, read rates and checkpoint write time."""
    storage_text = "object storage"
    if storage_entry.kind == "parallel":
        storage_text = f"a parallel file system of {storage_entry.gib:,} GiB"
    write_text = (
        f"a checkpoint is written in {storage_entry.checkpoint_write_s:,.0f} s, "
        f"loaded in {storage_entry.checkpoint_load_s:,.0f} s"
    )
    read_text = (
        f"the job reads {_rate_text(storage_entry.wanted_mb_s)} of "
        f"{_rate_text(storage_entry.given_mb_s)}"
    )
    return f"data on {storage_text}, {read_text}; {write_text}"


def loader_line(loader_entry: LoaderSpeed) -> str:
    """Return a line with what host cores prepare of what a machine trains on."""
    verb, unit = LOADER_WORDS[loader_entry.form]
    return (
        f"{figures.quantity(Decimal(str(loader_entry.cores)))} cores of a machine {verb} "
        f"{loader_entry.given_s:,.0f} {unit}/s, it trains on {loader_entry.wanted_s:,.0f}; "
        f"{loader_entry.workers} worker{'s' if loader_entry.workers > 1 else ''} of each rank "
        "that loads"
    )


def _rate_text(rate_mb_s: float) -> str:
    return (
        f"{rate_mb_s / 1000:,.1f} GB/s"
        if rate_mb_s >= 1000
        else f"{max(1, rate_mb_s):,.0f} MB/s"
    )


def layout_summary(layout_entry: TrainingLayout) -> str:
    """Return a layout as short text.

    Example: TP2 PP4x5 CP2 DP16, ZeRO-1, micro-batch 1, recomputed. PP4x5 is pp 4 with vpp 5.
    """
    degree_texts = []
    degrees = {
        "TP": layout_entry.tp,
        "PP": layout_entry.pp,
        "CP": layout_entry.cp,
        "EP": layout_entry.ep,
        "DP": layout_entry.dp,
    }
    for degree_name, degree in degrees.items():
        # A degree of 1 has no effect; DP shows the size of the job.
        if degree == 1 and degree_name != "DP":
            continue
        degree_text = f"{degree_name}{degree}"
        if degree_name == "PP" and layout_entry.vpp > 1:
            degree_text += f"x{layout_entry.vpp}"
        degree_texts.append(degree_text)
    summary_text = " ".join(degree_texts)
    sharding_text = SHARDING_NAMES[layout_entry.sharding] + (
        f" of {layout_entry.shard}" if layout_entry.shard else ""
    )
    summary_text += (
        f", {sharding_text}"
        # Shards are over DP * CP ranks; one rank has nothing to shard.
        if sharding_text and layout_entry.dp * layout_entry.cp > 1
        else ""
    )
    summary_text += f", micro-batch {layout_entry.micro_batch:g}"
    return summary_text + _recompute_text(layout_entry)


def _recompute_text(layout_entry: TrainingLayout) -> str:
    if layout_entry.recompute == "layer":
        count = layout_entry.recomputed_layers
        plural = "s" if count > 1 else ""
        of_what = "chunk" if layout_entry.vpp > 1 else "stage"
        return f", {count} layer{plural} of a {of_what} recomputed"
    return ", recomputed" if layout_entry.recompute == "full" else ""


def layout_table(layout_entries: Sequence[TrainingLayout]) -> PageTable:
    """Return a table of layouts with step time, peak memory and bottleneck."""
    table_rows = tuple(
        (
            layout_summary(layout_entry),
            f"{layout_entry.step_time_s:,.2f} s",
            f"{layout_entry.peak_gib:,.0f} GiB",
            layout_entry.limit,
        )
        for layout_entry in layout_entries
    )
    return PageTable(
        ("best layouts", ">step", ">peak", "costs most time"), table_rows
    )


def run_blocks(run_entry: Run, *, full: bool) -> list[Block]:
    """Return checkpoints, time against cost, and other ways to run on the same machines.

    A full page has storage, billed hours and the best layouts too.
    """
    run_texts = [checkpoint_line(run_entry)]
    if full:
        run_texts += [
            retention_line(run_entry.checkpoints),
            storage_line(run_entry.storage),
            *([loader_line(run_entry.loader)] if run_entry.loader else []),
            billed_line(run_entry.billed_hours),
        ]
    else:
        run_texts += _curve_texts(run_entry.curve)
    run_texts += _scenario_texts(run_entry)
    page_blocks: list[Block] = [
        Paragraph(f"  {text}", width=LINE_WIDTH) for text in run_texts
    ]
    if full:
        page_blocks += curve_blocks(run_entry.curve)
        page_blocks.append(layout_table(run_entry.layouts))
    return page_blocks


def _curve_texts(curve: Sequence[CurvePoint]) -> list[str]:
    """Return in one line what time costs around the chosen cluster, and at the knee.

    Nothing where there is one cluster alone.
    """
    if len(curve) < MIN_CURVE_POINTS:
        return []
    shown_points = [
        point
        for index, point in enumerate(curve)
        if point.knee
        or any(
            neighbor.chosen for neighbor in curve[max(0, index - 1) : index + 2]
        )
    ]
    return [f"what time costs: {'; '.join(map(_curve_text, shown_points))}"]


def _curve_text(point: CurvePoint) -> str:
    point_text = f"{duration_text(point.hours)} {figures.dollars(point.usd)}"
    remark_text = _curve_remark(point)
    return f"{point_text} ({remark_text})" if remark_text else point_text


def _curve_remark(point: CurvePoint) -> str:
    remarks = {
        "chosen": point.chosen,
        "knee": point.knee,
        f"beyond {point.violates}": point.violates is not None,
    }
    return ", ".join(remark for remark, applies in remarks.items() if applies)


def curve_blocks(curve_points: Sequence[CurvePoint]) -> list[Block]:
    """Return the table of time against cost; nothing where there is one cluster alone."""
    if len(curve_points) < MIN_CURVE_POINTS:
        return []
    column_titles = (
        "what time costs",
        ">USD",
        "",
        ">accelerators",
        "",
        ">MFU",
        "",
    )
    return [
        PageTable(
            column_titles,
            tuple(_curve_row(point) for point in curve_points),
            tuple("good" if point.chosen else "" for point in curve_points),
        )
    ]


def _curve_row(point: CurvePoint) -> tuple[str, ...]:
    return (
        duration_text(point.hours),
        figures.dollars(point.usd),
        f"{point.fleet.nodes} x {point.fleet.instance_type}",
        f"{point.accelerators:,}",
        point.purchase.replace("_", " "),
        figures.percentage(point.mfu),
        _curve_remark(point),
    )


def _scenario_texts(run_entry: Run) -> list[str]:
    """Return the other ways to run on the same machines, each with its cost and end."""
    # The first scenario is the chosen one.
    scenarios = run_entry.ways[1:]
    if not scenarios or run_entry.ways[0].usd is None:
        return []
    scenario_texts = [_scenario_text(scenario) for scenario in scenarios]
    return [f"the same machines: {'; '.join(scenario_texts)}"]


def _scenario_text(scenario: RunScenario) -> str:
    scenario_name = scenario.way.replace("_", " ")
    # Far beyond the time limit there is no cost, only a remark.
    if scenario.usd is None or scenario.hours_p90 is None:
        return f"{scenario_name}: {scenario.remark}"
    scenario_text = (
        f"{scenario_name} {figures.dollars(scenario.usd)} "
        f"in {duration_text(scenario.hours_p90)}"
    )
    return (
        f"{scenario_text} ({scenario.remark})"
        if scenario.remark
        else scenario_text
    )


def duration_text(hours: float) -> str:
    """Return hours as text: minutes below two hours, days from 48 hours on."""
    if hours < 2:
        return f"{hours * 60:,.0f} min"
    return f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"
