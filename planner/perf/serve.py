"""A replica under load: how much it can take, and how late tokens are, to the percentile.

Continuous batching is a birth-death process: with n requests in flight a replica completes
    mu(n) = n / (prefill + answer * decode(n) + k * n * prefill)
requests a second, k being the share of prompts' time that decoding requests pay. Arrivals that
vary more or less than Poisson scale the waits by Allen and Cunneen's (ca^2 + cs^2) / 2.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from planner.perf import memory, startup
from planner.perf.band import Band, band, news, outside
from planner.perf.coefficient import SERVING
from planner.perf.correction import BATCH
from planner.perf.engine import engine, keys
from planner.perf.load import bin_of, mean
from planner.perf.physics import Rates, attention, decode, first, prompt, rates
from planner.perf.service import Service, Wait
from planner.perf.terms import terms

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.correction import Correction
    from planner.perf.layout import Layout, Node
    from planner.perf.load import Load

SERVED: Final = engine("vllm")  # what the boot script of a node starts
PLANNED: Final = "closed vllm"  # the load whose bands apply to it
EVEN: Final = 0.5  # a confidence that asks for no margin


@dataclass(frozen=True, slots=True)
class Trust:
    """With which confidence predictions are to hold, and what a benchmark taught about them."""

    confidence: float = EVEN
    learned: Correction | None = None


class Replica:
    """One replica of a model in a layout on a node under an engine, for a given load."""

    def __init__(
        self,
        llm: Llm,
        layout: Layout,
        node: Node,
        load: Load,
        trust: Trust | None = None,
    ) -> None:
        self.llm, self.layout, self.node, self.load = llm, layout, node, load
        self.trust = trust or Trust()
        self.margins: dict[str, float] = {}
        self.coefficients = SERVING.at(keys(layout, node, SERVED), SERVED.year)
        self.memory = startup.served(llm, layout, node, SERVED.year)
        need = (
            load.prompt.mean + self.coefficients.answer_share * load.answer.mean
        )
        self.max_batch = min(self.memory.sequences, self._room(need))
        if self.max_batch and not self._room(max(load.context, need)):
            self.max_batch = 0
        self._bounds: dict[float, float] = {}
        self._paces: dict[int, float] = {}
        self._rates: dict[int, float] = {}

    def _room(self, tokens: float) -> int:
        """How many sequences of so many tokens the pool holds."""
        pool = max(0.0, self.memory.kv_gib) * memory.GIB
        return int(pool / memory.kv(self.llm, self.layout, tokens))

    def doubting(self, confidence: float) -> Replica:
        """The same replica for another confidence; what is known of its pace is shared."""
        other = copy(self)
        other.trust, other.margins = (
            replace(self.trust, confidence=confidence),
            {},
        )
        return other

    @cached_property
    def learned(self) -> Correction | None:
        """What a benchmark of this model on this accelerator taught."""
        found = self.trust.learned
        names = (
            self.llm.model,
            self.node.accelerator.accelerator,
            self.layout.precision,
        )
        return found if found is not None and found.applies(*names) else None

    def band(self, metric: str) -> Band:
        """The band of ttft or tpot: of this deployment when it was measured, else of all."""
        if self.learned:
            half = max(1.0, self.max_batch / 2)
            return self.learned.band(
                metric, half, self.load.held, self.layout.tp
            )
        new, basis = news(self.llm, self.node.accelerator)
        far, _ = outside(
            prompt=self.load.prompt.mean,
            answer=self.load.answer.mean,
            active=self.llm.active,
            accelerators=self.layout.accelerators,
        )
        return band(metric, PLANNED, new, basis, far)

    def _corrected(self, metric: str, n: float) -> float:
        return (
            self.learned.factor(metric, n, self.load.held)
            if self.learned
            else 1.0
        )

    def margin(self, metric: str) -> float:
        """The factor on a predicted time that covers it with the wished confidence, at least 1.

        A whole request takes the larger of the margins of its two parts.
        """
        found = self.margins.get(metric)
        if found is None:
            found = self.margins[metric] = self._margin(metric)
        return found

    def _margin(self, metric: str) -> float:
        if self.trust.confidence <= EVEN:
            return 1.0
        parts = ("ttft", "tpot") if metric == "e2e" else (metric,)
        return max(
            1.0, *(self.band(x).at(self.trust.confidence) for x in parts)
        )

    @cached_property
    def rates(self) -> Rates:
        """The seconds of the terms of step time."""
        return rates(terms(self.llm, self.layout, self.node), self.coefficients)

    @cached_property
    def _fresh(self) -> tuple[float, ...]:
        """Prompts of the lengths that stand for all, without what the prefix cache holds."""
        return tuple(
            x * (1 - self.load.prefix_hit) for x in self.load.prompt.points()
        )

    @cached_property
    def prompts(self) -> tuple[float, ...]:
        """Seconds for which those prompts keep the replica busy."""
        return tuple(prompt(self.rates, x) for x in self._fresh)

    @cached_property
    def alone(self) -> tuple[float, ...]:
        """Seconds until the end of those prompts on an idle replica."""
        share = self.coefficients.prompt_share * self._corrected("ttft", BATCH)
        return tuple(share * first(self.rates, x) for x in self._fresh)

    @cached_property
    def prefill(self) -> float:
        """Mean seconds for which a prompt keeps the replica busy."""
        return self.moments[0]

    @cached_property
    def _held(self) -> float:
        return attention(self.rates, self.load.held)

    @cached_property
    def _paid(self) -> float:
        return (
            self.coefficients.interference
            * self.prefill
            / self.load.answer.mean
        )

    @cached_property
    def moments(self) -> tuple[float, float, float]:
        """First three moments of the time for which prompts keep the replica busy."""
        found = (mean([x**power for x in self.prompts]) for power in (1, 2, 3))
        return next(found), next(found), next(found)

    def quiet(self, n: int) -> float:
        """Seconds per output token with n in flight and no prompt between."""
        return self.tpot(n) - n * self._paid * self._corrected("tpot", n)

    def tpot(self, n: int) -> float:
        """Seconds per output token with n in flight: decode + k * n * prefill / answer."""
        found = self._paces.get(n)
        if found is None:
            pace = decode(self.rates, n, self._held) + n * self._paid
            found = self._paces[n] = pace * self._corrected("tpot", n)
        return found

    def start(self, n: int) -> float:
        """Seconds before a prompt starts with n in flight: arrival, and the running step."""
        c = self.coefficients
        return self._corrected("ttft", n) * (
            c.first_token + c.step_wait * self.tpot(n)
        )

    def completion(self, n: int) -> float:
        """Requests completed a second with n in flight."""
        found = self._rates.get(n)
        if found is None:
            cycle = self.prefill + self.load.answer.mean * self.tpot(n)
            found = self._rates[n] = n / cycle
        return found

    def bound(self, tpot: float) -> float:
        """A rate that no load can exceed while the time per token stays within `tpot`.

        completion() grows with n and tpot() too, so the largest admissible n gives the bound.
        """
        if tpot not in self._bounds:
            self._bounds[tpot] = self._bound(tpot)
        return self._bounds[tpot]

    def _bound(self, tpot: float) -> float:
        low, high = 0, self.max_batch
        while low < high:
            middle = (low + high + 1) // 2
            if self.tpot(middle) <= tpot:
                low = middle
            else:
                high = middle - 1
        return self.completion(low) if low else 0.0

    def idle(self, metric: str, percentile: int) -> float:
        """The assured quantile of ttft, tpot or e2e when nobody else is there: its best."""
        return self._idle(metric, percentile) * self.margin(metric)

    def _idle(self, metric: str, percentile: int) -> float:
        rank = bin_of(percentile)
        if metric == "tpot":
            return self.tpot(1)
        if metric == "ttft":
            return self.start(1) + self.alone[rank]
        return (
            self.start(1)
            + mean(self.alone)
            + self.tpot(1) * self.load.answer.points()[rank]
        )

    def at(self, rate: float, replicas: int = 1) -> Service | None:
        """Return the service of one of some replicas at its rate, nothing if it cannot keep up."""
        full = self.completion(self.max_batch)
        if rate >= full * 0.999:
            return None
        weights, weight, total = [1.0], 1.0, 1.0
        for n in range(1, self.max_batch + 1):
            weight *= rate / self.completion(n)
            weights.append(weight)
            total += weight
            if weight < 1e-12 * total and n > 8:
                break
        # Beyond max_batch requests queue, and the chances fall geometrically.
        tail = (
            weight * rate / (full - rate)
            if len(weights) > self.max_batch
            else 0.0
        )
        total += tail
        states = tuple(w / total for w in weights)
        waiting = (states[-1] + tail / total) if tail else 0.0
        arrivals = self.load.spread(replicas)
        bursts = (arrivals + self.load.answer.variation) / 2
        return Service(
            replica=self,
            rate=rate,
            states=states,
            slot=Wait(waiting, bursts / (full - rate)),
            prompt=self._prompt_wait(rate, arrivals),
            arriving=1,
            variation=arrivals,
        )

    def closed(self, in_flight: float) -> Service:
        """Return the service with a constant number of requests in flight, up to max_batch."""
        n = max(1, min(self.max_batch, round(in_flight)))
        rate = self.completion(n)
        states = (0.0,) * n + (1.0,)
        return Service(
            replica=self,
            rate=rate,
            states=states,
            slot=Wait(0.0, 0.0),
            prompt=self._prompt_wait(rate, self.load.variation),
        )

    def _prompt_wait(self, rate: float, arrivals: float) -> Wait:
        """Wait for earlier prompts: one server, M/G/1 corrected for the arrivals.

        Takacs' second moment: E[W^2] = 2 E[W]^2 + rate * E[S^3] / (3 (1 - busy)).
        """
        first, square, cube = self.moments
        busy = min(0.98, rate * self.prefill)
        spread = square / first**2 - 1
        correction = (arrivals + spread) / (1 + spread)
        wait = square / (2 * first) * correction / (1 - busy)
        variation = 2 * busy - 1 + cube / (3 * first * (1 - busy) * wait**2)
        return Wait(busy, wait, variation)
