"""Parallel layout of one replica, and the node that it runs on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm


class ReplicaLayout(Struct, frozen=True, kw_only=True):
    """Precision and parallelism of one replica; `dp` and `cp` are 1 in serving.

    precision     number format of the weights
    kv_precision  number format of the KV cache
    tp            tensor-parallel size
    pp            pipeline stages
    ep            expert-parallel size within the tp group: experts divided among accelerators
    dp            data-parallel size
    cp            context-parallel size
    adp           attention data parallelism: adp groups of tp / adp accelerators, each with
                  its own requests and a full copy of the attention weights

    One replica takes tp * pp accelerators.
    """

    precision: str
    kv_precision: str
    tp: int
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1
    adp: int = 1

    @property
    def precisions(self) -> tuple[str, str]:
        """Those of weights and cache: replicas that share both give a request the same answer."""
        return self.precision, self.kv_precision

    @property
    def accelerators(self) -> int:
        """Number of accelerators of one replica: tp * pp."""
        return self.tp * self.pp

    @property
    def has_small_cache(self) -> bool:
        """Whether the KV cache has fewer bits than activations."""
        return self.kv_precision == "fp8"

    @property
    def as_it_is_read(self) -> ReplicaLayout:
        """The layout with a cache that takes as long to read: what a plan counts on.

        Measurements of vLLM show no step that is faster with a cache of 8 bits. Its gain is room.
        """
        if not self.has_small_cache:
            return self
        return replace(self, kv_precision="bf16")

    @property
    def tie_order(self) -> tuple[int, int, int, int]:
        """Sort key among layouts of the same cost.

        A cache as activations are, fewer accelerators, fewer stages, whole experts before slices:
        these are read by one accelerator each, and keep limits at more traffic.
        """
        return (int(self.has_small_cache), self.accelerators, self.pp, -self.ep)

    @property
    def attention_tp(self) -> int:
        """Number of accelerators that share one attention layer: tp / adp."""
        return self.tp // self.adp


class Node(Struct, frozen=True, kw_only=True):
    """The accelerators and links of one machine.

    accelerator_count  accelerators of the machine
    memory_gib         memory of one accelerator, GiB
    compute_fraction   share of an accelerator's compute and bandwidth (below 1 for a slice)
    scaleup_link       kind of link between accelerators, such as `nvlink_pairs` or `pcie`
    network_gb_s       one-way network bandwidth of the whole machine, GB/s
    """

    accelerator: Accelerator
    accelerator_count: int
    memory_gib: float
    compute_fraction: float
    scaleup_link: str
    network_gb_s: float

    def has_link(self, tp: int) -> bool:
        """Return whether tp accelerators share a scale-up link; PCIe otherwise."""
        if self.scaleup_link in ("pcie", "none"):
            return False
        # NVLink bridges join two cards; larger groups use PCIe.
        return self.scaleup_link != "nvlink_pairs" or tp <= 2

    def group_ranks(self, tp: int) -> float:
        """Return how many accelerators of a tp group one machine has.

        tp / machines, which is tp within one machine
        """
        return tp / math.ceil(tp / self.accelerator_count)

    def link_gb_s(self, tp: int) -> float:
        """Return the one-way bandwidth of one accelerator in its tp group, GB/s.

        tp larger than the node  network_gb_s / accelerator_count
        scale-up link            link_gb_s / 2, since data sheets add up both directions
        otherwise                16 lanes of PCIe

        Across machines this is what one accelerator sends by itself. A ring sends through the
        NICs of all accelerators of its group: see `ring_network_share`.
        """
        if tp > self.accelerator_count:
            # Across nodes: an equal share of the node's NICs.
            return self.network_gb_s / self.accelerator_count
        if self.has_link(tp):
            # The data sheet gives the sum of both directions.
            return self.accelerator.link_gb_s / 2
        # Generation 3 is the oldest in the table.
        return constant("pcie_gen", str(max(3, self.accelerator.pcie_gen)))


def can_shard(llm: Llm, tp: int) -> bool:
    """Return whether tensor parallelism can divide a model into tp parts.

    Conditions: tp divides the attention heads and the MLP width; tp divides the KV heads or
    the KV heads divide tp. The KV condition does not apply to MLA, which stores one latent per
    token.
    """
    # KV heads can be repeated on several accelerators when tp exceeds them.
    kv_divides = (
        llm.kv_lora_rank > 0 or llm.kv_heads % tp == 0 or tp % llm.kv_heads == 0
    )
    mlp_width = llm.ffn if not llm.experts else llm.moe_ffn
    return llm.heads % tp == 0 and kv_divides and mlp_width % tp == 0
