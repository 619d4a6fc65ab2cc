"""The page of a benchmark before it runs: its machine, its loads, and what it costs at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner import figures
from planner.render.page import (
    LINE_WIDTH,
    Page,
    PageTable,
    Paragraph,
    phrases,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.estimate.benchmark_sweep import BenchmarkSweep


class BenchFigures(Struct, frozen=True, kw_only=True):
    """What the page says of a benchmark.

    machines        such as 1 x g2-standard-4 (1 x l4)
    place           cloud and region
    expected_s      that it is predicted to take, seconds
    ttl_s           after which its machine ends whatever happens, seconds
    most_usd        at most, in all
    usd_hour        while the machine runs
    start_usd       of what starts fetch
    left_usd_hour   of what stays when the machine is gone
    awaits_weights  whether its machine waits for weights that somebody brings
    next_command    that runs it
    removal         command that deletes what stays
    """

    stack: str
    sweep: BenchmarkSweep
    machines: str
    place: str
    expected_s: float
    ttl_s: float
    most_usd: Decimal
    usd_hour: Decimal
    start_usd: Decimal
    left_usd_hour: Decimal
    awaits_weights: bool
    next_command: str
    removal: str


def bench_page(bench: BenchFigures) -> Page:
    """Return what a benchmark would do, and what it would cost at most."""
    sweep = bench.sweep
    most_text = figures.dollars(bench.most_usd, cents=True)
    hour_text = figures.dollars(bench.usd_hour, cents=True)
    start_text = figures.dollars(bench.start_usd, cents=True)
    left_text = figures.dollars(bench.left_usd_hour, cents=True)
    weights = (
        (
            Paragraph(
                "! its machine waits for the weights: bring them with --weights FOLDER, or say in "
                "model.weights where they are",
                "warn",
                LINE_WIDTH,
            ),
        )
        if bench.awaits_weights
        else ()
    )
    return (
        Paragraph(
            f"{bench.machines} for {figures.about(bench.expected_s)}, at most {most_text}",
            "strong",
        ),
        phrases(
            (
                f"{bench.place}, on demand",
                f"{sweep.model_name}, TP{sweep.layout.tp} in {sweep.layout.precision}",
                f"{sweep.prompt_tokens:,} tokens in, {sweep.answer_tokens:,} out",
            )
        ),
        PageTable(
            (">users", ">requests", ">minutes"),
            tuple(
                (
                    f"{step.user_count}",
                    f"{step.request_count}",
                    f"{step.minutes:.1f}",
                )
                for step in sweep.steps
            ),
        ),
        Paragraph(
            f"it costs {hour_text} an hour, and {start_text} for what its starts fetch; it is "
            "deleted when all is measured, on an error, on Ctrl-C and at the limit",
            width=LINE_WIDTH,
        ),
        Paragraph(
            f"its machine ends by itself, {figures.about(bench.ttl_s)} after its start at the "
            f"latest; were this computer gone then, the rest costs {left_text} an hour at most "
            f"until: {bench.removal}",
            width=LINE_WIDTH,
        ),
        *weights,
        Paragraph(f"next: {bench.next_command}", "dim"),
    )
