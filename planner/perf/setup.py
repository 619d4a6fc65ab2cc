"""One exactly given configuration: a model, laid out on hardware, under an engine and a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from planner.perf.coefficient import Coefficients, coefficients
from planner.perf.engine import VARIED, keys
from planner.perf.physics import first, prompt, rates
from planner.perf.shape import Server, fitting, handover
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
    requests a second (open). `lengths` says how they differ: see engine.keys.
    """

    kind: Kind
    prompt: float
    answer: float
    users: float = 0.0
    rate: float = 0.0
    lengths: tuple[str, ...] = VARIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A deployment of `replicas` equal replicas; `prefill` workers of their own take prompts."""

    llm: Llm
    layout: Layout
    node: Node
    engine: Engine
    demand: Demand
    replicas: int = 1
    prefill: tuple[int, Layout] | None = None
    speculative: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """What selects the coefficients."""
        return keys(self.layout, self.node, self.engine, self.demand.lengths)

    @property
    def coefficients(self) -> Coefficients:
        """The coefficients that apply."""
        return coefficients(self.keys, self.engine.year)

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
        return terms(self.llm, self.prefill[1] if self.prefill else self.layout, self.node)

    def server(self) -> Server:
        """Return a replica under this load, ready for the formulas of load shapes."""
        c, t, asked = self.coefficients, self.terms, self.demand
        r = rates(t, c)
        busy, alone, share = prompt(r, asked.prompt), first(r, asked.prompt), c.interference
        if self.prefill:
            ahead = rates(self.prefill_terms, c)
            busy = prompt(ahead, asked.prompt) * self.replicas / self.prefill[0]
            alone = first(ahead, asked.prompt) + handover(t, c, asked.prompt)
            share = 0.0
        room = min(self.limit, fitting(t, c, asked.prompt, asked.answer))
        return Server(
            rates=r, coefficients=c, prompt=asked.prompt, answer=asked.answer, room=room,
            busy=busy, alone=alone, share=share,
        )  # fmt: skip
