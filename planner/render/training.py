"""Parts of a plan's page for training jobs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.page import PageTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import (
        Run,
        RunScenario,
        StorageSpeed,
        TrainingLayout,
    )
    from planner.render.page import Block

RECOMPUTE_SUFFIXES: Final = {
    "none": "",
    "layer": ", half recomputed",
    "full": ", recomputed",
}
SHARDING_NAMES: Final = {
    "none": "",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "FSDP",
}


def run_lines(run_entry: Run) -> list[str]:
    """Return lines for layout, checkpoints, storage and end of a run."""
    layout_entry = run_entry.layouts[0]
    steps_text = (
        f"{run_entry.steps:,} steps of {run_entry.global_batch:,} x "
        f"{run_entry.sequence:,} tokens"
    )
    checkpoint_text = (
        "a checkpoint of "
        f"{figures.quantity(Decimal(str(run_entry.checkpoint_gb)))} GB every "
    )
    checkpoint_text += (
        f"{run_entry.checkpoint_interval_s / 60:,.0f} min, "
        f"{run_entry.stops:,.1f} stops expected"
    )
    if run_entry.spares:
        checkpoint_text += (
            f", {run_entry.spares} spare "
            f"machine{'s' if run_entry.spares > 1 else ''}"
        )
    ending_text = (
        f"ends within {duration_text(run_entry.hours_p50)} in half of 1,000 "
        "simulated runs "
    )
    ending_text += (
        f"({figures.dollars(run_entry.usd_p50)}), "
        f"{duration_text(run_entry.hours_p90)} in 90 % of them "
    )
    ending_text += f"({figures.dollars(run_entry.usd_p90)})"
    layout_text = f"{layout_summary(layout_entry)} in {layout_entry.precision}; {steps_text}"
    return [
        layout_text,
        checkpoint_text,
        storage_line(run_entry.storage),
        ending_text,
    ]


def storage_line(storage_entry: StorageSpeed) -> str:
    """Return a line with storage type, read rates and checkpoint write time."""
    storage_text = "object storage"
    if storage_entry.kind == "parallel":
        storage_text = f"a parallel file system of {storage_entry.gib:,} GiB"
    write_text = (
        f"a checkpoint is written in {storage_entry.checkpoint_write_s:,.0f} s"
    )
    read_text = (
        f"the job reads {_rate_text(storage_entry.wanted_mb_s)} of "
        f"{_rate_text(storage_entry.given_mb_s)}"
    )
    return f"data on {storage_text}, {read_text}; {write_text}"


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
    return summary_text + RECOMPUTE_SUFFIXES[layout_entry.recompute]


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


def run_blocks(run_entry: Run) -> list[Block]:
    """Return the tables of the best layouts and of the scenarios of the same job."""
    run_tables: list[Block] = [layout_table(run_entry.layouts)]
    # Differences are against the first scenario, the chosen one.
    base_usd = run_entry.ways[0].usd if run_entry.ways else None
    if len(run_entry.ways) > 1 and base_usd is not None:
        run_tables.append(
            PageTable(
                (
                    "the same machines",
                    ">USD",
                    ">difference",
                    ">ends within (90 %)",
                    "",
                ),
                tuple(
                    _scenario_row(scenario, base_usd)
                    for scenario in run_entry.ways
                ),
            )
        )
    return run_tables


def _scenario_row(scenario: RunScenario, base_usd: Decimal) -> tuple[str, ...]:
    # Far beyond the time limit there is no cost, only a remark.
    if scenario.usd is None or scenario.hours_p90 is None:
        return (
            scenario.way.replace("_", " "),
            "",
            "",
            "",
            scenario.remark,
        )
    extra_usd = scenario.usd - base_usd
    change_text = "" if not extra_usd else figures.signed_dollars(extra_usd)
    scenario_name = scenario.way.replace("_", " ")
    return (
        scenario_name,
        figures.dollars(scenario.usd),
        change_text,
        duration_text(scenario.hours_p90),
        scenario.remark,
    )


def duration_text(hours: float) -> str:
    """Return hours as text; from 48 hours on as days."""
    return f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"
