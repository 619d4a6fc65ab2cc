"""The way of a cache from the replica that computed a prompt to the one that answers it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.units import BITS_PER_BYTE, BYTES_PER_GB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.replica import Replica


class LinkEnd(Struct, frozen=True):
    """One end of the way: a replica, and the network of the machine that it is on, Gbit/s."""

    replica: Replica
    network_gbps: float

    @property
    def gb_s(self) -> float:
        """GB/s that the replica has of the network of its machine.

        share of line rate * network * accelerators of the replica / those of the machine
        """
        accelerators = self.replica.layout.accelerators
        return (
            self.replica.coefficients.network_bandwidth
            * self.network_gbps
            / BITS_PER_BYTE
            * accelerators
            / max(accelerators, self.replica.node.accelerator_count)
        )


class HandOver(Struct, frozen=True, dict=True):
    """How long the cache of a prompt is on its way between two replicas.

    `stored_llm`    the model as the engine stores its cache
    `layout`        of the replica that answers: each of its accelerators fetches its part
    `gb_s`          of the slower end
    `cached_share`  of the prompts, which is found in the prefix cache and fetched all the same
    `factor`        by how much it is slowed, as prompts are
    """

    stored_llm: Llm
    layout: ReplicaLayout
    gb_s: float
    cached_share: float
    factor: float

    @cached_property
    def _times_s(self) -> dict[int, float]:
        return {}

    def seconds(self, computed_tokens: int) -> float:
        """Return how long the cache of a prompt takes, of which so many tokens were computed.

        factor * bytes on an accelerator * accelerators / rate
        """
        if computed_tokens not in self._times_s:
            whole_tokens = computed_tokens / (1 - self.cached_share)
            cache_bytes = (
                memory.kv_bytes(self.stored_llm, self.layout, whole_tokens)
                * self.layout.accelerators
            )
            self._times_s[computed_tokens] = (
                self.factor * cache_bytes / (self.gb_s * BYTES_PER_GB)
            )
        return self._times_s[computed_tokens]


def hand_over(prompts: LinkEnd, answers: LinkEnd) -> HandOver:
    """Return the way between two replicas over the network of their machines.

    rate = min(both ends, connections * rate of one connection)

    Each accelerator that answers has a connection to one that computes prompts. Where one side
    has more of them, the fewer ones are counted.
    """
    connections = min(
        prompts.replica.layout.accelerators, answers.replica.layout.accelerators
    )
    replica = answers.replica
    return HandOver(
        stored_llm=replica.stored_llm,
        layout=replica.layout,
        gb_s=min(
            prompts.gb_s, answers.gb_s, connections * constant("flow_gb_s")
        ),
        cached_share=replica.load.prefix_hit,
        factor=prompts.replica.margins.prefill,
    )
