"""Deployments on AMD whose sources no fit has, kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.accuracy import kept_apart
from tests.accuracy.adapter import TRUTH
from tests.accuracy.bars import Bar
from tests.accuracy.sample import Sample


def read_rows() -> list[Sample]:
    """Return the deployments on AMD that are kept apart."""
    return kept_apart.read_rows(TRUTH / "inference_amd.csv")


def bars(samples: Sequence[Sample]) -> Iterator[Bar]:
    """Yield the bars of AMD kept apart."""
    return kept_apart.bars(samples, "on AMD", 40)


def page(samples: Sequence[Sample]) -> str:
    """Return the part of the page: errors by model, engine, load and source."""
    return f"{TEXT}\n{kept_apart.table(samples, HEAD, _group)}"


def _group(sample: Sample) -> tuple[str, ...]:
    row = sample.row
    return (
        row["model"],
        f"{row['framework'].split()[0]} {row['framework_version']}".strip(),
        row["source_date"],
        sample.group,
    )


HEAD: Final = ("model", "engine", "measured", "load")
TEXT: Final = """## AMD, kept apart

Two sources of MI300X that no fit has, and for which nothing was changed. Oracle's batches of Llama
3.1 405B in fp8 are predicted within 2 % up to 32 requests, and a third too fast at 256.

DeepSeek-R1 on the images that AMD had in February 2025, weeks after the model, is predicted about
twice as fast as dstack measured it, and half of these rows lie outside their bands. The fits know
DeepSeek-R1 on AMD from SGLang 0.5.9 and 0.5.12, a year later. A release that old is to be measured
before its predictions are believed (`tonnage calibrate`).
"""
