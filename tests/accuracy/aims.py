"""What predictions are to reach one day: tighter than the bars, which keep what was reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.accuracy.bars import EARLIER, WITHIN_LIMITS, Bar
from tests.accuracy.score import BANDED


@dataclass(frozen=True, slots=True)
class Aim:
    """The least and the most that a bar is to reach, by the name of the bar on all rows."""

    bar: str
    least: float | None
    most: float


AIMS: Final = (
    Aim("TPOT, closed loop; family out", None, 8),
    Aim("TPOT, closed loop; source out", None, 8),
    Aim("TTFT, closed loop; family out", None, 13),
    Aim("TTFT, closed loop; source out", None, 13),
    Aim("throughput, offline maximum; source out", None, 10),
    Aim(f"{WITHIN_LIMITS}; source out", None, 15),
    *(
        Aim(f"90 % bands of {number}: rows inside, left out", 87, 93)
        for number in BANDED
    ),
    *(
        Aim(
            f"90 % bands of {number}: inside, whole sources, engines and makers left out",
            85,
            95,
        )
        for number in BANDED
    ),
    *(
        Aim(f"90 % bands of {target}: median high / low", None, most)
        for target, most in (("tpot", 1.8), ("throughput", 1.9), ("ttft", 4))
    ),
    Aim("training, dense; model out, mean", None, 4.5),
    Aim("training, moe; model out, mean", None, 11),
    Aim("training optimistic by > 20 %, moe, worst scheme", None, 8),
    Aim("whole runs in accelerator-hours, median", None, 10),
    Aim("training after one run of one's own, mean over groups", None, 4),
)
COLUMNS: Final = ("number", ">rows from before", ">all rows", ">aim")


def aim_rows(bars: Sequence[Bar]) -> Iterator[tuple[str, ...]]:
    """Yield name, what is reached on the rows from before and on all, and the aim."""
    reached = {bar.name: bar for bar in bars}
    for aim in AIMS:
        bar = reached[aim.bar]
        earlier = reached.get(aim.bar + EARLIER)
        yield (
            aim.bar,
            _figure(aim, earlier) if earlier else "",
            _figure(aim, bar),
            _wanted(aim, bar),
        )


def _figure(aim: Aim, bar: Bar) -> str:
    """Return what is reached, in bold where it is not the aim."""
    text = f"{bar.reached:.1f}{bar.sign}"
    low = aim.least is None or bar.reached >= aim.least
    return text if low and bar.reached <= aim.most else f"**{text}**"


def _wanted(aim: Aim, bar: Bar) -> str:
    if aim.least is None:
        return f"{aim.most:g}{bar.sign}"
    return f"{aim.least:g} to {aim.most:g}{bar.sign}"
