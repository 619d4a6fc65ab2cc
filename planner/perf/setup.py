"""One exactly given configuration: a model, laid out on hardware, under an engine and a load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from planner.perf.coefficient import SERVING, Coefficients
from planner.perf.engine import VARIED, keys
from planner.perf.physics import NONE, Draft, Rates, first, prompt, rates
from planner.perf.shape import Server, fitting, handover
from planner.perf.startup import served
from planner.perf.terms import Terms, terms

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.engine import Engine
    from planner.perf.layout import Layout, Node

Kind: TypeAlias = Literal["offline", "static", "closed", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How a whole deployment is loaded. Lengths are means, in tokens.

    `users` are requests always under way (closed) or started together (static); `rate` is
    requests a second (open), `requests` how many of them a run has. `lengths` says how they
    differ: see engine.keys.
    """

    kind: Kind
    prompt: float
    answer: float
    users: float = 0.0
    rate: float = 0.0
    lengths: tuple[str, ...] = VARIED
    requests: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A deployment of `replicas` equal replicas; `prefill` workers of their own take prompts.

    `speculative` says that answers are guessed ahead; by how much is `draft`, when it is known.
    """

    llm: Llm
    layout: Layout
    node: Node
    engine: Engine
    demand: Demand
    replicas: int = 1
    prefill: tuple[int, Layout] | None = None
    speculative: bool = False
    draft: Draft = NONE

    @property
    def keys(self) -> frozenset[str]:
        """What selects the coefficients."""
        return keys(self.layout, self.node, self.engine, self.demand.lengths)

    @property
    def limit(self) -> float:
        """The most requests that the engine runs at once on a replica."""
        return float(self.engine.sequences * self.layout.adp)

    @property
    def terms(self) -> Terms:
        """What a replica has to do."""
        return terms(self.llm, self.layout, self.node)

    @property
    def prefill_terms(self) -> Terms:
        """What a prefill worker has to do; the replica itself without such workers."""
        return terms(
            self.llm,
            self.prefill[1] if self.prefill else self.layout,
            self.node,
        )

    @property
    def kept(self) -> float | None:
        """GiB beside weights and cache, where the rules of the engine are known."""
        return _kept(self.llm, self.layout, self.node, self.engine)

    def server(self) -> Server:
        """Return a replica under this load, ready for the formulas of load shapes."""
        demand = self.demand
        layout_and_node = self.layout, self.node
        coefficients, profile, times = _prepared(
            self.llm, layout_and_node, self.engine, demand.lengths, self.draft
        )
        prompt_busy_s, idle_prompt_s = (
            prompt(times, demand.prompt),
            first(times, demand.prompt),
        )
        interference_share, serial_share = coefficients.interference, 1.0
        if self.prefill:
            prefill_times = rates(self.prefill_terms, coefficients)
            prompt_busy_s = (
                prompt(prefill_times, demand.prompt)
                * self.replicas
                / self.prefill[0]
            )
            idle_prompt_s = first(prefill_times, demand.prompt) + handover(
                profile, coefficients, demand.prompt
            )
            interference_share = serial_share = 0.0
        overhead_gib = self.kept
        overhead_gib = (
            coefficients.reserve_gib if overhead_gib is None else overhead_gib
        )
        max_batch = min(
            self.limit,
            fitting(
                profile,
                coefficients,
                overhead_gib,
                demand.prompt,
                demand.answer,
            ),
        )
        return Server(
            rates=times,
            coefficients=coefficients,
            prompt=demand.prompt,
            answer=demand.answer,
            room=max_batch,
            busy=prompt_busy_s,
            alone=idle_prompt_s,
            share=interference_share,
            serial=serial_share,
        )


@lru_cache(maxsize=4096)
def _prepared(
    llm: Llm,
    layout_and_node: tuple[Layout, Node],
    serving_engine: Engine,
    length_keys: tuple[str, ...],
    speculation: Draft,
) -> tuple[Coefficients, Terms, Rates]:
    """What the rows of one deployment share, whatever its load."""
    layout, node = layout_and_node
    coefficients = SERVING.at(
        keys(layout, node, serving_engine, length_keys), serving_engine.year
    )
    profile = terms(llm, layout, node)
    return coefficients, profile, rates(profile, coefficients, speculation)


@lru_cache(maxsize=4096)
def _kept(
    llm: Llm, layout: Layout, node: Node, serving_engine: Engine
) -> float | None:
    return (
        served(llm, layout, node, serving_engine.year).kept_gib
        if serving_engine.kind == "vllm"
        else None
    )
