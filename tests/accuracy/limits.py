"""What missed aims would be without the rows of one cause: how much each of them limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.accuracy.fit import cold
from tests.accuracy.score import ratios, score

if TYPE_CHECKING:
    from tests.accuracy.cross import Scheme
    from tests.accuracy.least import Array
    from tests.accuracy.sample import Batch, Sample

MEASURES: Final = ("TPOT, closed loop", "TTFT, closed loop")
SCHEMES: Final = ("family", "source")
COLUMNS: Final = (
    "rows left aside",
    *(f">{measure}; {name} out" for measure in MEASURES for name in SCHEMES),
    ">rows",
)


def _engine(sample: Sample) -> str:
    return sample.setup.engine.kind


def _vendor(sample: Sample) -> str:
    return sample.setup.node.accelerator.vendor


def _family(sample: Sample) -> str:
    return sample.setup.llm.family


# Each names the rows of a cause that the page tells.
CAUSES: Final[Mapping[str, Callable[[Sample], bool]]] = {
    "SGLang": lambda sample: _engine(sample) == "sglang",
    "TensorRT-LLM": lambda sample: _engine(sample).startswith("trtllm"),
    "AMD": lambda sample: _vendor(sample) == "amd",
    "DeepSeek-R1": lambda sample: _family(sample) == "deepseek_v3",
}


def rows(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[tuple[str, ...]]:
    """Yield the errors with no rows left aside, and without those of each cause; with their rows.

    The fits are those of the page, which knew the rows that are left aside here.
    """
    left_out = {scheme.name: scheme for scheme in schemes}
    everything = np.ones(len(batch.samples), bool)
    aside = {
        "none": everything,
        **{
            name: ~np.array([cause(sample) for sample in batch.samples])
            for name, cause in CAUSES.items()
        },
        "servers that still compiled": ~cold(batch),
    }
    for name, kept in aside.items():
        yield _row(batch, left_out, name, kept)


def _row(
    batch: Batch, left_out: Mapping[str, Scheme], name: str, kept: Array
) -> tuple[str, ...]:
    found = [
        score(
            batch,
            np.where(kept, ratios(batch, left_out[scheme], measure), np.nan),
        )
        for measure in MEASURES
        for scheme in SCHEMES
    ]
    return (
        name,
        *(f"{100 * each.cells:.1f} %" for each in found),
        f"{found[0].row_count:,}",
    )
