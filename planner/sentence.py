"""The English of reasons: one sentence for each code, with the formats of `planner/figures.py`."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from planner import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.cause import Cause

# What a format after a colon does with a value: {limit_s:time}.
FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "time": figures.duration,
    "at_least": figures.duration_at_least,
    "spec_time": figures.spec_duration,
    "whole_dollars": figures.whole_dollars_up,
}
SENTENCES: Final = {
    # Why a fleet is not chosen.
    "price": "price",
    "time": "time",
    "infeasible": "infeasible",
    "limit": "{key}",
    "simulation": "simulation: it missed a limit",
    "memory": "memory: needs {needed_gib:,.0f} GiB of {limit_gib:,.0f} GiB each",
    "memory-each": "memory: {memory_gib:g} GiB each of {needed_gib:g} GiB",
    "memory-total": "memory: {memory_gib:,.0f} GiB of {needed_gib:,.0f} GiB",
    "memory-layout": "memory: no layout fits",
    "accelerators": "accelerators: {accelerators} of {needed}",
    "layout": "no layout of the model fits its accelerators",
    "unreachable": "{key}: not met by any number of machines",
    "idle-time": "{key}: {reached_s:time} > {limit_s:time} even when idle",
    "peak-time": "{key}: {reached_s:time} > {limit_s:time} at peak",
    "overload": "{key}: it cannot keep up at peak",
    "late": "{key}: the run would end too late",
    "earliest-end": "{key}: {best_days:,.1f} days at best",
    "never": "{key}: never",
    "spare-node": "{key}: the loss of one node would break the SLA",
    "taken-back": "{key}: could be taken back at any time",
    "commitment": "{key}: the commitment is not allowed",
    "excluded": "excluded by {rules}",
    "told": "{told}",
    # Values to which a constraint is relaxed.
    "any": "any",
    "seconds-at-least": "{value_s:at_least}",
    "run-time": "{value_s:spec_time}",
    "usd": "{value_usd:whole_dollars}",
    "usd-month-at-least": "{value_usd:whole_dollars}/month",
    "count": "{value}",
    "purchase": "{purchase}",
    "also-precision": "also {precision}",
    # Warnings.
    "assumed-architecture": "dense, {layers} layers of width {width}, grouped-query attention",
    "assumed-tokens": "tokens are not stated: {tokens:,.0f}, {tokens_per_parameter:g} for each "
    "parameter",
    "unverified": "no fleet that was simulated kept every limit: this is the largest of them",
    "other-calibration": "the calibration is of {model} on {accelerator}: it says nothing here",
    "spot": "spot machines can be taken back at short notice, all of them at once",
    "unsure-price": "the {purchase} price of {machine} in {region} is {basis}, of {as_of}, with "
    "{confidence} confidence",
    "low-confidence": "the price of {machine} has low confidence",
    "no-price": "no price is known of {lines}: not in the total",
    "disk": "a disk goes with its machine: keep work in a repository or a bucket before it stops",
    "block-size": "{nodes:,} machines are more than blocks hold ({block_nodes}): agree on the "
    "capacity before you apply",
    "moved-data": "the data lie on {data_cloud}: bring them to {cloud} before, or reading them "
    "across the internet may starve the job",
    "slow-data": "reading the dataset is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time; compress the data, or take more machines",
    "slow-data-files": "reading the dataset is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time; compress the data, take data.storage: parallel "
    "({saved_hours:,.1f} h sooner, {extra_usd:+,.0f} USD), or take more machines",
    "staging": "host memory holds no copy of a checkpoint: each one stops the job for "
    "{stall_s:,.0f} s; more machines hold smaller parts",
    "cores": "{cores:.0f} CPU cores for each accelerator: tokenize and pack the data beforehand",
    # What to know of another way to run a job.
    "elastic": "needs an elastic job",
    "never-in-time": "never in time",
    "never-at-high-rate": "never ends at the highest published reclaim rate",
    "reclaim-hours": "{earliest_hours:,.1f} to {latest_hours:,.1f} h at published reclaim rates",
    "reclaim-days": "{earliest_days:,.1f} to {latest_days:,.1f} days at published reclaim rates",
    "quoted": "price of {as_of}, quoted when bought",
}


class _SentenceFormatter(Formatter):
    """Formats as str.format does, and by the names of `FORMATS`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in FORMATS:
            return FORMATS[format_spec](value)
        return str(super().format_field(value, format_spec))


def describe(reason: Cause) -> str:
    """Return the sentence of a reason. Raises KeyError for a code or a value that is not there."""
    return _SentenceFormatter().vformat(
        SENTENCES[reason.code], (), {"key": reason.key, **reason.values}
    )
