"""What apply buys where a cloud does not have the first choice, on the page of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render import period
from planner.render.page import LINE_WIDTH, Block, PageTable, Paragraph

if TYPE_CHECKING:
    from planner.plan.types import Fallback, Plan, Pool, Prediction
    from planner.solve.solution import FallbackKind

# Rows of the default page; the rest is on the full one.
DEFAULT_ROWS: Final = 4
# Other zones have a line of their own: the fleet and its bill are the same there.
KIND_TEXTS: Final[dict[FallbackKind, str]] = {
    "type": "another machine type",
    "region": "in another region",
    "purchase": "bought in another way",
    "cloud": "of another cloud",
}
# The number that a reader knows a fleet by, and how it is written; the first that there is.
SHOWN_METRICS: Final = {
    "ttft_p95_ms": "TTFT p95",
    "ttft_p99_ms": "TTFT p99",
    "tpot_p95_ms": "TPOT p95",
    "duration_days": "",
}


def fallback_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return what groups may start instead, and what apply tries and may buy, in its order."""
    lines = [
        Paragraph(_stand_in_text(pool))
        for pool in plan.solution.pools
        if pool.stand_ins
    ]
    # Of two pools one may have more zones: the first ones are then tried again with each of them.
    zones = dict.fromkeys(
        f"{rung.zone}{_chance_text(rung)}"
        for rung in plan.fallbacks
        if rung.zone is not None
    )
    if zones:
        first = plan.solution.pools[0].zones[0]
        lines.append(
            Paragraph(
                f"  where {first} has no machines, apply tries {', '.join(zones)}",
                width=LINE_WIDTH,
            )
        )
    if any(rung.chance is not None for rung in plan.fallbacks):
        lines.append(
            Paragraph(
                "  zones begin with the likeliest, and what is less likely than even comes last, "
                "by the scores of clouds for machines on spot",
                width=LINE_WIDTH,
            )
        )
    others = [rung for rung in plan.fallbacks if rung.zone is None]
    if not others:
        return [Paragraph(""), *lines] if lines else []
    shown = others if full else others[:DEFAULT_ROWS]
    rows = [_row(fallback) for fallback in shown]
    hidden_count = len(others) - len(shown)
    if hidden_count:
        rows.append((f"{hidden_count} more", "", "", "--full"))
    return [
        Paragraph(""),
        PageTable(
            (
                "where a cloud has none, apply buys",
                "",
                period.TITLES[plan.cost.period],
                "what it does",
            ),
            tuple(rows),
            width=LINE_WIDTH,
        ),
        *lines,
    ]


def _stand_in_text(pool: Pool) -> str:
    """Return which machine types a group starts, and by how much one of them is dearer."""
    others = " or ".join(
        f"{other.instance_type} "
        f"(+{other.usd_per_hour / pool.usd_per_hour - 1:.0%} an hour)"
        for other in pool.stand_ins
    )
    return (
        f"  while there is no {pool.instance_type}, its group starts {others}"
    )


def _row(fallback: Fallback) -> tuple[str, str, str, str]:
    pool = fallback.pools[0]
    place = f"{pool.provider} {pool.region}"
    machines = " + ".join(
        f"{each.nodes} x {each.instance_type}" for each in fallback.pools
    )
    return (
        f"{KIND_TEXTS[fallback.kind]}: {place}{_chance_text(fallback)}",
        machines,
        figures.dollars(fallback.cost.total),
        _promise(fallback.predicted),
    )


def _promise(predicted: dict[str, Prediction]) -> str:
    """Return the predicted number that a fleet is known by."""
    for metric, name in SHOWN_METRICS.items():
        if metric in predicted:
            value = predicted[metric].value
            if metric == "duration_days":
                return f"{value:.3g} days"
            return f"{name} {figures.milliseconds(float(value))}"
    return ""


def _chance_text(fallback: Fallback) -> str:
    """Return how likely a fallback is to be had, in brackets; nothing where nobody says."""
    return "" if fallback.chance is None else f" ({fallback.chance:.2f} of 1)"
