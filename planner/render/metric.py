"""The names and values of predicted numbers, as people read them."""

from __future__ import annotations

from typing import Final

from planner import figures
from planner.render import training
from planner.units import HOURS_PER_DAY

FRACTION_KEYS: Final = frozenset(
    {"busy_fraction", "memory_fraction", "mfu", "goodput"}
)


def metric_title(metric_key: str) -> str:
    """Return what people call a predicted number."""
    if metric_key.endswith("_ms"):
        metric_name, percentile = metric_key.removesuffix("_ms").rsplit("_", 1)
        return f"{metric_name.upper()} {percentile}"
    metric_titles = {
        "busy_fraction": "capacity used",
        "memory_fraction": "memory used",
        "memory_gib_per_accelerator": "GiB per accelerator",
        "output_tokens_per_s": "output tokens/s",
        "requests_per_s": "requests/s",
        "duration_days": "time of a run",
        "mfu": "MFU, 16-bit peak",
        "step_time_s": "seconds of a step",
        "tokens_per_s_per_accelerator": "tokens/s each",
    }
    return metric_titles.get(metric_key, metric_key)


def metric_text(metric_key: str, metric_value: float) -> str:
    """Return the value of a predicted number, in the unit of its name."""
    if metric_key.endswith("_ms"):
        return figures.milliseconds(metric_value)
    # Fractions of 1.
    if metric_key in FRACTION_KEYS:
        return figures.percentage(metric_value)
    if metric_key == "duration_days":
        return training.duration_text(metric_value * HOURS_PER_DAY)
    return (
        f"{metric_value:,.0f}"
        if metric_value >= 100
        else f"{metric_value:,.1f}"
    )
