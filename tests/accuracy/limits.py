"""What limits missed aims: errors without the rows of one cause, and what errors span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.accuracy.bands import MOST_WIDER, MOST_WIDER_OF
from tests.accuracy.cross import USUAL
from tests.accuracy.fit import cold
from tests.accuracy.score import (
    BANDED,
    LOADS,
    coverage,
    inside,
    ratios,
    score,
)

if TYPE_CHECKING:
    from tests.accuracy.cross import Scheme
    from tests.accuracy.least import Array
    from tests.accuracy.sample import Batch, Sample

# Each error by what is measured and what was left out of the fit.
ERRORS: Final = (
    ("TPOT, closed loop", "family"),
    ("TPOT, closed loop", "source"),
    ("TTFT, closed loop", "family"),
    ("TTFT, closed loop", "source"),
    ("throughput, offline maximum", "source"),
)
COLUMNS: Final = (
    "rows left aside",
    *(f">{measure}; {name} out" for measure, name in ERRORS),
)
FEWEST_CELLS: Final = 5  # of which a median says something
# One server, whose rows differ in the users alone.
SERVER: Final = (
    "source_group",
    "source_date",
    "model",
    "gpu",
    "weight_precision",
    "n_gpus",
    "tp",
    "pp",
    "ep",
    "attn_dp",
    "framework",
    "framework_version",
    "spec_decode",
    "recipe",
    "input_len",
    "output_len",
)
TARGETS: Final = ("tpot", "throughput", "ttft")
SPAN_COLUMNS: Final = (
    "number",
    "left out",
    ">all rows",
    ">rows from before",
    ">vLLM",
)
TAILS: Final = (0.05, 0.95)
# By how much few groups may widen a band: not at all, as they do, and more.
WIDER: Final = sorted((1.0, MOST_WIDER, 1.5, *MOST_WIDER_OF.values()))
COVERAGE_COLUMNS: Final = ("number", *(f">{most:g} times" for most in WIDER))


def _engine(sample: Sample) -> str:
    return sample.setup.engine.kind


# Each names the rows of a cause that the page tells.
CAUSES: Final[Mapping[str, Callable[[Sample], bool]]] = {
    "none": lambda _: False,
    "SGLang": lambda sample: _engine(sample) == "sglang",
    "TensorRT-LLM": lambda sample: _engine(sample).startswith("trtllm"),
    "both engines, which leaves vLLM": lambda sample: _engine(sample) != "vllm",
    "AMD": lambda sample: sample.setup.node.accelerator.vendor == "amd",
    "DeepSeek-R1": lambda sample: sample.setup.llm.family == "deepseek_v3",
    "weights of 4 bits": lambda sample: "fp4" in sample.row["weight_precision"],
}


def outdone(batch: Batch) -> Array:
    """Whether more users of the same server were given their tokens faster.

    No load explains that: something else held this run up.
    """
    servers: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place in np.flatnonzero(batch.group == "closed"):
        row = batch.samples[place].row
        servers[tuple(row[name] for name in SERVER)].append(int(place))
    found = np.zeros(len(batch.samples), bool)
    for places in servers.values():
        users, tpot_s = batch.users[places], batch.tpot[places]
        found[places] = (
            (users[None, :] > users[:, None])
            & (tpot_s[None, :] < tpot_s[:, None])
        ).any(axis=1)
    return found


def rows(
    batch: Batch, schemes: Sequence[Scheme], among: Array | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield the errors with no rows left aside, and without those of each cause.

    The fits are those of the page, which knew the rows that are left aside here. With `among` no
    other rows are scored.
    """
    unscored = np.zeros(len(batch.samples), bool) if among is None else ~among
    left_out = {scheme.name: scheme for scheme in schemes}
    aside = {
        **{
            name: np.array([cause(sample) for sample in batch.samples])
            for name, cause in CAUSES.items()
        },
        "servers that still compiled": cold(batch),
        "runs that more users outdo": outdone(batch),
    }
    for name, without in aside.items():
        yield (
            name,
            *(
                _error(batch, left_out[scheme], measure, without | unscored)
                for measure, scheme in ERRORS
            ),
        )


def _error(batch: Batch, scheme: Scheme, measure: str, without: Array) -> str:
    ratio = np.where(without, np.nan, ratios(batch, scheme, measure))
    found = score(batch, ratio)
    if found.cell_count < FEWEST_CELLS:
        return ""
    return f"{100 * found.cells:.1f} % of {found.cell_count}"


def spans(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[tuple[str, ...]]:
    """Yield what nine tenths of the errors span, high over low.

    No band of one width that has nine tenths of these rows, the tails equal, is narrower.
    """
    left_out = {scheme.name: scheme for scheme in schemes}
    full = batch.quality == "A"
    ours = np.array([_engine(sample) == "vllm" for sample in batch.samples])
    for target in TARGETS:
        for name in ("family", "source"):
            ratio = left_out[name].ratio(target)
            yield (
                target,
                name,
                *(
                    _span(ratio[here & np.isfinite(ratio)])
                    for here in (full, full & batch.earlier, full & ours)
                ),
            )


def coverages(
    batch: Batch, schemes: Sequence[Scheme]
) -> Iterator[tuple[str, ...]]:
    """Yield what share of rows bands hold and how wide they are, by what few groups may add."""
    left_out = [scheme for scheme in schemes if scheme.name in USUAL]
    for number, target in BANDED.items():
        cells = []
        for most in WIDER:
            found = [
                coverage(batch, scheme, target, LOADS, most_wider=most)
                for scheme in left_out
            ]
            width = max(x.width for x in found)
            cells.append(f"{100 * inside(found):.0f} % in {width:.1f} x")
        yield (number, *cells)


def _span(ratio: Array) -> str:
    low, high = np.quantile(ratio, TAILS)
    return f"{np.exp(high - low):.1f} x"
