"""Tables of measured deployments that are kept apart: no fit sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from planner.estimate.inference import predict_inference
from tests.accuracy.adapter import TRUTH
from tests.accuracy.bars import Bar
from tests.accuracy.least import Array
from tests.accuracy.sample import MS, Sample, read

Target: TypeAlias = Literal["output_tok_s", "tpot_ms_mean", "ttft_ms_mean"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)
# Of the rows of a table, the least share whose throughput is to be inside of its band.
LEAST_INSIDE: Final = 85.0


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of deployments that no fit sees.

    file        its name among the tables of measurements
    what        its rows have in common, after a number of them
    most_error  the most that throughput may err in the mean, %
    page        writes its part of the page
    """

    file: str
    what: str
    most_error: float
    page: Callable[[Sequence[Sample]], str]

    def read(self) -> list[Sample]:
        """Return its deployments; raises ValueError when one is refused."""
        text = (TRUTH / self.file).read_text(encoding="utf-8")
        samples, refused = read(text)
        if refused:
            raise ValueError(refused[0])
        return samples

    def bars(self, samples: Sequence[Sample]) -> Iterator[Bar]:
        """Yield the bars of its deployments: the mean error of throughput, and the rows inside."""
        rows = f"{len(samples)} rows {self.what}"
        yield Bar(
            f"throughput kept apart, {rows}, mean",
            100 * float(np.mean(np.abs(np.expm1(ratios(samples))))),
            None,
            self.most_error,
        )
        yield Bar(
            f"90 % bands of throughput kept apart, {rows}: rows inside",
            100 * float(np.mean(inside(samples))),
            LEAST_INSIDE,
            None,
        )


def ratios(samples: Sequence[Sample], target: Target = "output_tok_s") -> Array:
    """Return the log of predicted over measured with the coefficients as they stand."""
    return np.array(
        [
            np.log(
                predict_inference(sample.setup).columns[target].value
                / _measured(sample, target)
            )
            for sample in samples
        ]
    )


def inside(samples: Sequence[Sample], target: Target = "output_tok_s") -> Array:
    """Say of each row whether its band has what was measured."""
    bands = [
        predict_inference(sample.setup).columns[target] for sample in samples
    ]
    return np.array(
        [
            band.low <= _measured(sample, target) <= band.high
            for band, sample in zip(bands, samples, strict=True)
        ]
    )


def _measured(sample: Sample, target: Target) -> float:
    """Return what was measured, in tokens/s or milliseconds."""
    if target == "output_tok_s":
        return sample.throughput
    return MS * (sample.tpot if target == "tpot_ms_mean" else sample.ttft)


def table(
    samples: Sequence[Sample],
    head: Sequence[str],
    group_of: Callable[[Sample], tuple[str, ...]],
) -> str:
    """Return a table of groups of rows: predicted over measured, and how many are inside.

    `head` names what `group_of` tells of a row. The ratio is a geometric mean; a target that
    was not measured is blank.
    """
    groups: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[group_of(sample)].append(sample)
    lines = [
        f"| {' | '.join(head)} | throughput | inside | TPOT | inside | TTFT | inside |",
        "|---" * len(head) + "|--:" * 2 * len(TARGETS) + "|",
    ]
    for group, found in sorted(groups.items()):
        cells = [cell for target in TARGETS for cell in _cells(found, target)]
        lines.append(f"| {' | '.join((*group, *cells))} |")
    return "\n".join(lines) + "\n"


def _cells(samples: Sequence[Sample], target: Target) -> tuple[str, str]:
    known = [sample for sample in samples if _measured(sample, target)]
    if not known:
        return "", ""
    ratio = np.exp(np.mean(ratios(known, target)))
    return (
        f"{ratio:.2f} x",
        f"{np.sum(inside(known, target))} of {len(known)}",
    )
