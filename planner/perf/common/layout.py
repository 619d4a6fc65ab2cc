"""How one replica is laid over accelerators, and the hardware that it is laid over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLayout:
    """Precision and parallelism of one replica; `dp` and `cp` are 1 in serving.

    tp * pp accelerators hold one replica. `ep` spreads experts over the tp group; with `adp`
    (attention data parallelism) attention is cut over tp / adp only, and repeated adp times.
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
    def accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Accelerators over which attention is cut."""
        return self.tp // self.adp


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The accelerators of one machine. `network_gb_s` is one way, of the whole node."""

    accelerator: Accelerator
    accelerator_count: int
    memory_gib: float
    compute_fraction: float
    scaleup_link: str
    network_gb_s: float

    def has_link(self, tp: int) -> bool:
        """Whether tp accelerators share a scale-up link (else they talk over PCIe)."""
        if self.scaleup_link in ("pcie", "none"):
            return False
        return self.scaleup_link != "nvlink_pairs" or tp <= 2

    def link_gb_s(self, tp: int) -> float:
        """One-way bandwidth between tp accelerators: a link, PCIe, or a share of the network."""
        if tp > self.accelerator_count:
            return self.network_gb_s / self.accelerator_count
        if self.has_link(tp):
            return self.accelerator.link_gb_s / 2
        return constant("pcie_gen", str(max(3, self.accelerator.pcie_gen)))


def can_shard(llm: Llm, tp: int) -> bool:
    """Whether a model can be cut into tp parts.

    Heads must divide by tp; KV heads must divide by tp or tp by KV heads; the width of the MLP
    must divide by tp. MLA keeps one latent per token, so KV heads do not matter there.
    """
    kv_divides = (
        llm.kv_lora_rank > 0 or llm.kv_heads % tp == 0 or tp % llm.kv_heads == 0
    )
    mlp_width = llm.ffn if not llm.experts else llm.moe_ffn
    return llm.heads % tp == 0 and kv_divides and mlp_width % tp == 0
