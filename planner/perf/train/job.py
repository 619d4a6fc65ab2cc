"""One exactly given training job: a model, its layout, its software and its batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

Sharding: TypeAlias = Literal["none", "zero1", "zero2", "zero3"]
Recompute: TypeAlias = Literal[
    "none", "attention", "ops", "layer", "full", "forced"
]
Reference: TypeAlias = Literal["none", "copy", "base"]
Kernels: TypeAlias = Literal[
    "te", "compiled", "eager", "foundry", "megatron21", "xla"
]
SIXTEEN: Final = ("bf16", "fp16")  # bits of a product's operands
TORCH: Final = ("compiled", "eager", "foundry")  # kernels of plain PyTorch
FUSED: Final = ("te", "megatron21", "xla")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a job lies over accelerators: tp * pp * cp * dp of them.

    `vpp` chunks of layers a pipeline stage (interleaving), `ep` neighboring ranks share the
    experts, `shard` ranks share the states (0: all dp * cp). `micro` is the sequences of one
    micro-batch. Recompute: Megatron's selective is `attention`, PyTorch's `ops` or every second
    `layer`; `forced` is what memory makes necessary.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sharding: Sharding = "zero1"
    shard: int = 0
    micro: float = 1.0
    recompute: Recompute = "none"

    def turned(self, micro: float, vpp: int, recompute: Recompute) -> Spread:
        """The same cut with other micro-batches, chunks and recomputation."""
        return Spread(
            tp=self.tp,
            pp=self.pp,
            vpp=vpp,
            cp=self.cp,
            ep=self.ep,
            dp=self.dp,
            sharding=self.sharding,
            shard=self.shard,
            micro=micro,
            recompute=recompute,
        )

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def copies(self) -> int:
        """Ranks that hold the same part of the weights."""
        return self.dp * self.cp

    @property
    def among(self) -> int:
        """Ranks over which states are cut."""
        return self.shard or self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Kernels and precision, and what of the framework changes memory or time.

    `captured` is a whole step in one graph with overlapped all-to-all, `dropping` experts of a
    capacity that the host knows, `sinks` attention without a fused kernel, `packed` the context
    of short documents that attend to themselves only (0: the whole sequence).
    """

    kernels: Kernels = "te"
    precision: str = "bf16"  # bf16, fp16, fp8, fp8row, mxfp8, nvfp4 or int8
    sequence_parallel: bool = True
    overlapped: bool = True  # tensor parallelism, with products
    captured: bool = False
    dropping: bool = False
    sinks: bool = False
    packed: int = 0
    gather_bytes: float = 2.0  # of a weight that FSDP gathers
    loss: Literal["fused", "eager", "chunked"] = "fused"
    merged_outputs: bool = (
        False  # logits of all micro-batches are kept to the end
    )
    allocated: bool = (
        False  # a peak is what was allocated, not what was reserved
    )

    @property
    def torch(self) -> bool:
        """Whether kernels are those of plain PyTorch."""
        return self.kernels in TORCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job. `batch` is sequences of a step, `network` bytes/s one way an accelerator.

    `frozen` is the bytes of a parameter that is not trained (LoRA), 0 when all are; `rank` is
    that of its adapters. `offload` keeps states in host memory. Preferences (DPO) are pairs of
    sequences that a `reference` rates too: a copy in 16 bit, or the base without its adapters.
    """

    llm: Llm
    chip: Accelerator
    spread: Spread
    software: Software
    sequence: int
    batch: float
    network: float
    optimizer: str = "adamw"
    frozen: float = 0.0
    rank: int = 0
    offload: bool = False
    backward_step: bool = (
        False  # the optimizer runs inside backward: no gradient outlives it
    )
    reference: Reference = "none"

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        return self.spread.micro * self.sequence / self.spread.cp

    @property
    def together(self) -> int:
        """Sequences that a micro-batch holds at least."""
        return 1 if self.reference == "none" else 2

    @property
    def domain(self) -> int:
        """Accelerators that share a link, or the bus of their machine."""
        return min(self.chip.link_domain, self.spread.accelerators)

    @property
    def micros(self) -> float:
        """Micro-batches of a step."""
        return max(
            1.0, round(self.batch / (self.spread.dp * self.spread.micro))
        )

    def laid(self, layout: Spread) -> Job:
        """The same job in another layout."""
        return Job(
            llm=self.llm,
            chip=self.chip,
            spread=layout,
            software=self.software,
            sequence=self.sequence,
            batch=self.batch,
            network=self.network,
            optimizer=self.optimizer,
            frozen=self.frozen,
            rank=self.rank,
            offload=self.offload,
            backward_step=self.backward_step,
            reference=self.reference,
        )
