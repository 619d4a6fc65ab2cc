"""Exact search of the layout of a training job on a given number of accelerators.

Every layout that the rules allow is a candidate. In the order of a lower bound of their step time
they are checked for memory and timed, until the bound exceeds the best found: what is not timed
cannot be faster. A cut stands for all layouts within it until its bound is the least.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.cut import cuts, turned
from planner.perf.train.floor import floor
from planner.perf.train.memory import peak_gib
from planner.perf.train.states import states
from planner.perf.train.step import Step, step
from planner.perf.train.work import work

if TYPE_CHECKING:
    from planner.perf.train.floor import Toll
    from planner.perf.train.job import Job, Recompute, Spread

Known: TypeAlias = Literal[
    "toll", "fits", "layout"
]  # of a cut, until it is one layout
MORE: Final[dict[Recompute, tuple[Recompute, ...]]] = {
    "none": ("layer", "full"),
    "layer": ("full",),
    "full": (),
}


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout with its time, its peak memory and what limits it."""

    job: Job
    step: Step
    peak_gib: float

    @property
    def limit(self) -> str:
        """What costs most beside computing: memory when it forces recomputation."""
        parts = {
            "pipeline bubble": self.step.bubble,
            "fabric": self.step.sharding + self.step.once,
            "tensor parallelism": self.step.tensor,
            "experts' exchange": self.step.exchange,
            "memory": self.step.again,
        }
        name = max(parts, key=lambda key: (parts[key], key))
        return name if parts[name] > 0.02 * self.step.total else "computing"

    @property
    def rank(self) -> tuple[float, int, int, int, float]:
        """The documented order of ties: time, stages, tensor, context, micro-batch."""
        s = self.job.spread
        return (self.step.total, s.pp, s.tp, s.cp, s.micro)


class Frame:
    """The layouts of a job on one kind of accelerator, whatever network joins its machines."""

    def __init__(self, job: Job, accelerators: int, machine: int) -> None:
        self.job, self.floor = job, floor(job)
        self.room = constant("train_memory_share") * job.chip.memory_gib
        found = cuts(job.llm, job.batch, job.sequence, accelerators, machine)
        least: dict[
            tuple[int, int, int, int], float
        ] = {}  # whatever the sharding
        for s in found:
            if (s.tp, s.pp, s.cp, s.ep) not in least:
                least[s.tp, s.pp, s.cp, s.ep] = self.floor.cut(job, s)
        self.cuts = sorted(
            (least[s.tp, s.pp, s.cp, s.ep], n, s) for n, s in enumerate(found)
        )
        self._peaks: dict[Spread, float] = {}

    def peak(self, s: Spread) -> float:
        """GiB at the peak of a layout; infinite when its states alone are too many."""
        if s not in self._peaks:
            job = self.job.laid(s)
            held = states(job).total / GIB > self.room
            self._peaks[s] = math.inf if held else peak_gib(job)
        return self._peaks[s]

    def fitted(self, s: Spread) -> Spread | None:
        """The layout with the recomputation that it takes to fit, or nothing when it does not."""
        if self.peak(s) <= self.room:
            return s
        if self.peak(s) == math.inf:
            return None
        more = [s.turned(s.micro, s.vpp, again) for again in MORE[s.recompute]]
        if not more or self.peak(more[-1]) > self.room:
            return None
        return next(x for x in more if self.peak(x) <= self.room)


# Machines that differ in their network, their host or their price share a frame.
frame = lru_cache(maxsize=512)(Frame)


class Layouts:
    """The layouts of a job that fit its memory, in the order of the least that each can take."""

    def __init__(self, job: Job, accelerators: int, machine: int) -> None:
        self.job, self.accelerators, self.machine = job, accelerators, machine
        self.floor = floor(replace(job, network=1.0)).over(job.network)
        self._count = itertools.count()
        self._heap: list[tuple[float, int, Spread, Toll, Known]] = []
        self._found: list[Laid] = []

    def best(self, keep: int = 5, limit: float = math.inf) -> list[Laid]:
        """The fastest layouts that fit and take at most `limit` seconds a step, the best first.

        A layout recomputes no more than memory asks for. Asked again, the search goes on.
        """
        while (one := self._next(self._last(keep, limit))) is not None:
            job, peak = one
            laid = Laid(job, step(work(job), TRAINING.at(keys(job))), peak)
            self._found = sorted([*self._found, laid], key=lambda x: x.rank)
        return [x for x in self._found[:keep] if x.step.total <= limit]

    def _last(self, keep: int, limit: float) -> float:
        """Seconds beyond which nothing is looked for."""
        enough = len(self._found) >= keep
        return min(limit, self._found[keep - 1].step.total) if enough else limit

    @cached_property
    def frame(self) -> Frame:
        """What does not depend on the network."""
        return frame(
            replace(self.job, network=1.0), self.accelerators, self.machine
        )

    @cached_property
    def _cuts(self) -> deque[tuple[float, int, Spread]]:
        return deque(self.frame.cuts)

    @property
    def glance(self) -> float:
        """Seconds that no layout undercuts, as far as can be told without looking at any."""
        return self.floor.step / self.accelerators

    @property
    def first(self) -> float:
        """Seconds that no layout undercuts over any network; infinite when there is none."""
        return self.frame.cuts[0][0] if self.frame.cuts else math.inf

    @property
    def least(self) -> float:
        """Seconds that no layout undercuts; infinite when none is left."""
        while self._cuts or self._heap:
            if self._cuts and (
                not self._heap or self._cuts[0][0] <= self._heap[0][0]
            ):
                cut = self._cuts.popleft()[2]
                self._push(cut, self.floor.toll(self.job.laid(cut)), "toll")
            elif self._heap[0][4] == "toll":
                _, _, cut, toll, _ = heapq.heappop(self._heap)
                self._push(self.frame.fitted(cut), toll, "fits")
            else:
                return self._heap[0][0]
        return math.inf

    def _next(self, limit: float) -> tuple[Job, float] | None:
        """The next layout and its peak GiB, or nothing when none can take less than a limit."""
        while self.least <= limit and self._heap:
            _, _, spread, toll, known = heapq.heappop(self._heap)
            if known == "fits":
                self._open(spread, toll)
            elif self.frame.peak(spread) <= self.frame.room:
                return self.job.laid(spread), self.frame.peak(spread)
            else:
                self._push(self.frame.fitted(spread), toll, "layout")
        return None

    def _open(self, cut: Spread, toll: Toll) -> None:
        """Every layout of a cut; larger micro-batches and more chunks never take less memory."""
        for micro, chunks in turned(self.job, cut):
            fitted = self.frame.fitted(
                cut.turned(float(micro), 1, cut.recompute)
            )
            if fitted is None:
                break
            for vpp in chunks:
                self._push(
                    fitted.turned(fitted.micro, vpp, fitted.recompute),
                    toll,
                    "layout",
                )

    def _push(self, s: Spread | None, toll: Toll, known: Known) -> None:
        """Look at a cut or a layout again in its turn; nothing when it does not fit."""
        if s is not None:
            least = (self.floor.of if known == "layout" else self.floor.cut)(
                self.job, s, toll
            )
            heapq.heappush(
                self._heap, (least, next(self._count), s, toll, known)
            )
