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
SIXTEEN_BIT: Final = ("bf16", "fp16")  # bits of a product's operands
TORCH_KERNELS: Final = (
    "compiled",
    "eager",
    "foundry",
)  # kernels of plain PyTorch
FUSED_KERNELS: Final = ("te", "megatron21", "xla")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """How a job lies over accelerators: tp * pp * cp * dp of them.

    `vpp` chunks of layers a pipeline stage (interleaving), `ep` neighboring ranks share the
    experts, `shard_size` ranks share the states (0: all dp * cp). `micro` is the sequences of one
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
    shard_size: int = 0
    micro: float = 1.0
    recompute: Recompute = "none"

    def with_microbatch(
        self, micro: float, vpp: int, recompute: Recompute
    ) -> ParallelLayout:
        """The same cut with other micro-batches, chunks and recomputation."""
        return ParallelLayout(
            tp=self.tp,
            pp=self.pp,
            vpp=vpp,
            cp=self.cp,
            ep=self.ep,
            dp=self.dp,
            sharding=self.sharding,
            shard_size=self.shard_size,
            micro=micro,
            recompute=recompute,
        )

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def data_parallel_ranks(self) -> int:
        """Ranks that hold the same part of the weights."""
        return self.dp * self.cp

    @property
    def shard_group(self) -> int:
        """Ranks over which states are cut."""
        return self.shard_size or self.data_parallel_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Kernels and precision, and what of the framework changes memory or time.

    `graph_captured` is a whole step in one graph with overlapped all-to-all, `drops_tokens` experts of a
    capacity that the host knows, `attention_sinks` attention without a fused kernel, `packed_tokens` the context
    of short documents that attend to themselves only (0: the whole sequence).
    """

    kernels: Kernels = "te"
    precision: str = "bf16"  # bf16, fp16, fp8, fp8row, mxfp8, nvfp4 or int8
    sequence_parallel: bool = True
    tp_overlapped: bool = True  # tensor parallelism, with products
    graph_captured: bool = False
    drops_tokens: bool = False
    attention_sinks: bool = False
    packed_tokens: int = 0
    gather_bytes: float = 2.0  # of a weight that FSDP gathers
    loss: Literal["fused", "eager", "chunked"] = "fused"
    keeps_all_logits: bool = (
        False  # logits of all micro-batches are kept to the end
    )
    counts_allocated: bool = (
        False  # a peak is what was allocated, not what was reserved
    )

    @property
    def is_torch(self) -> bool:
        """Whether kernels are those of plain PyTorch."""
        return self.kernels in TORCH_KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job. `global_batch` is sequences of a step, `network_bytes_s` bytes/s one way an accelerator.

    `frozen_bytes` is the bytes of a parameter that is not trained (LoRA), 0 when all are; `lora_rank` is
    that of its adapters. `offload_states` keeps states in host memory. Preferences (DPO) are pairs of
    sequences that a `reference` rates too: a copy in 16 bit, or the base without its adapters.
    """

    llm: Llm
    chip: Accelerator
    layout: ParallelLayout
    software: Software
    sequence_tokens: int
    global_batch: float
    network_bytes_s: float
    optimizer: str = "adamw"
    frozen_bytes: float = 0.0
    lora_rank: int = 0
    offload_states: bool = False
    fused_backward: bool = (
        False  # the optimizer runs inside backward: no gradient outlives it
    )
    reference: Reference = "none"

    @property
    def micro_tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        return self.layout.micro * self.sequence_tokens / self.layout.cp

    @property
    def min_sequences(self) -> int:
        """Sequences that a micro-batch holds at least."""
        return 1 if self.reference == "none" else 2

    @property
    def link_ranks(self) -> int:
        """Accelerators that share a link, or the bus of their machine."""
        return min(self.chip.link_domain, self.layout.accelerators)

    @property
    def micro_batches(self) -> float:
        """Micro-batches of a step."""
        return max(
            1.0, round(self.global_batch / (self.layout.dp * self.layout.micro))
        )

    def with_layout(self, layout: ParallelLayout) -> Job:
        """The same job in another layout."""
        return Job(
            llm=self.llm,
            chip=self.chip,
            layout=layout,
            software=self.software,
            sequence_tokens=self.sequence_tokens,
            global_batch=self.global_batch,
            network_bytes_s=self.network_bytes_s,
            optimizer=self.optimizer,
            frozen_bytes=self.frozen_bytes,
            lora_rank=self.lora_rank,
            offload_states=self.offload_states,
            fused_backward=self.fused_backward,
            reference=self.reference,
        )
