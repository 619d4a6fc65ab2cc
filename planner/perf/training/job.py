"""One training job: model, accelerator, parallel layout, software and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.training.measured import is_unseen_task

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

Task: TypeAlias = Literal["full", "lora", "qlora"]
Sharding: TypeAlias = Literal["none", "zero1", "zero2", "zero3"]
Recompute: TypeAlias = Literal[
    "none", "attention", "experts", "ops", "layer", "full", "forced"
]
Schedule: TypeAlias = Literal["1f1b", "dualpipe"]
Reference: TypeAlias = Literal["none", "copy", "base"]
Kernels: TypeAlias = Literal[
    "te",
    "compiled",
    "eager",
    "transformers",
    "foundry",
    "megatron21",
    "xla",
]
# Bytes of an operand of a product; formats that are not listed take 1. NVFP4 has half a byte,
# and an 8-bit scale for a block of 16.
OPERAND_BYTES: Final = {
    **dict.fromkeys(SIXTEEN_BIT, 2.0),
    "nvfp4": 0.5625,
}
DUALPIPE_BUBBLE: Final = 2 / 3
# Embedding and head count as a layer each where stages are to be equal.
END_LAYERS: Final = 2
# Kernels of plain PyTorch, which share the coefficient key `torch`.
TORCH_KERNELS: Final = ("compiled", "eager", "transformers", "foundry")
# Those of them that fuse no operations.
EAGER_KERNELS: Final = ("eager", "transformers", "foundry")


class ParallelLayout(NamedTuple):
    """Parallel layout of a job over tp * pp * cp * dp accelerators.

    tp          ranks of tensor parallelism
    pp          pipeline stages
    vpp         chunks of layers in a stage (interleaved schedule)
    cp          ranks of context parallelism, each with a part of the sequence
    ep          neighboring ranks that share the experts
    dp          ranks of data parallelism
    sharding    stage of ZeRO by which the states are sharded
    shard_size  ranks that shard the states; 0 means all dp * cp
    micro       sequences of a micro-batch
    recompute   activations that are recomputed in backward:
                `attention` Megatron's selective recomputation
                `experts`   layers of experts, norms and scores (Megatron's modules)
                `ops`       PyTorch's selective recomputation by operation
                `layer`     the first layers of each chunk, a share `layer_share` of them
                `full`      all layers
                `forced`    as much as memory makes necessary
    layer_share  share of the layers of a chunk that `layer` recomputes
    schedule    `1f1b`, interleaved with chunks, or `dualpipe`, which feeds both ends of the
                pipeline and hides the exchange of one micro-batch behind another
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
    layer_share: float = 0.5
    schedule: Schedule = "1f1b"

    def with_microbatch(self, micro: float, vpp: int) -> ParallelLayout:
        """Return this partition with another micro-batch and number of chunks."""
        tp, pp, _, cp, ep, dp, sharding, shard_size, _, *recomputation = self
        # Searches make many: this takes half as long as `_replace`.
        return ParallelLayout._make(
            (
                tp,
                pp,
                vpp,
                cp,
                ep,
                dp,
                sharding,
                shard_size,
                micro,
                *recomputation,
            )
        )

    def with_layer_share(self, layer_share: float) -> ParallelLayout:
        """Return this layout with a share of the layers of a chunk recomputed."""
        *partition, recompute, share, schedule = self
        if layer_share in (0.0, 1.0):
            recompute = "full" if layer_share else "none"
        else:
            recompute, share = "layer", layer_share
        return ParallelLayout._make((*partition, recompute, share, schedule))

    @property
    def recomputed_share(self) -> float:
        """Share of the layers whose forward pass is repeated as a whole."""
        if self.recompute == "layer":
            return self.layer_share
        return 1.0 if self.recompute == "full" else 0.0

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def data_parallel_ranks(self) -> int:
        """Ranks with the same part of the weights."""
        # Ranks of one sequence have the same weights.
        return self.dp * self.cp

    @property
    def shard_group(self) -> int:
        """Ranks over which the states are sharded."""
        # A smaller group is hybrid sharding: it has its own full copy.
        return self.shard_size or self.data_parallel_ranks


class Software(Struct, frozen=True, kw_only=True):
    """Kernels, precision and framework options that change memory or time.

    framework          row of planner/perf/data/frameworks.csv, which limits the layouts
    kernels            family of kernels
    precision          bf16, fp16, fp8, fp8row, mxfp8, nvfp4 or int8
    expert_precision   that of the products of routed experts, where it is another one
    sequence_parallel  norms and residuals are split over tp too
    tp_overlapped      collectives of tensor parallelism overlap with products
    graph_captured     a whole step is one graph, with an overlapped all-to-all
    parts_captured     router and dispatch of experts are graphs of their own
    drops_tokens       experts have a fixed capacity, so the host knows all shapes
    stops_early        a layer is not recomputed beyond the last operand that backward needs
    sends_per_expert   a token is sent once for each of its experts, not once to each rank
    exchange_overlapped  the all-to-all overlaps with products of another micro-batch
    gradient_slowdown  time of the gradient of the last product of experts over the usual
    attention_sinks    attention has sinks and no fused kernel
    packed_tokens      context of packed documents in tokens; 0 means the whole sequence
    gather_bytes       bytes of a parameter that FSDP gathers
    loss               implementation of the loss, which sets the memory of the logits
    is_unseen          no run of the framework was measured, or no mixture with its kernels
    is_newer           the release came after all that were measured
    is_whole_run       all accelerator-hours of a run count, not those of its steps alone
    keeps_all_logits   logits of all micro-batches stay in memory until the end of the step
    counts_allocated   peak memory is what is allocated, not what is reserved
    """

    framework: str = "megatron"
    kernels: Kernels = "te"
    precision: str = "bf16"
    expert_precision: str = ""
    sequence_parallel: bool = True
    tp_overlapped: bool = True
    graph_captured: bool = False
    parts_captured: bool = False
    drops_tokens: bool = False
    stops_early: bool = False
    sends_per_expert: bool = False
    exchange_overlapped: bool = False
    gradient_slowdown: float = 1.0
    attention_sinks: bool = False
    packed_tokens: int = 0
    gather_bytes: float = 2.0
    loss: Literal["fused", "eager", "chunked"] = "fused"
    is_unseen: bool = False
    is_newer: bool = False
    is_whole_run: bool = False
    keeps_all_logits: bool = False
    counts_allocated: bool = False

    @property
    def is_torch(self) -> bool:
        """Whether the kernels are those of plain PyTorch."""
        return self.kernels in TORCH_KERNELS

    @property
    def precision_of_experts(self) -> str:
        """Precision of the products of routed experts."""
        return self.expert_precision or self.precision

    @property
    def precision_text(self) -> str:
        """The precision of products, and that of experts where it is another one."""
        if not self.expert_precision:
            return self.precision
        return f"{self.precision}, experts {self.expert_precision}"


class Job(NamedTuple):
    """A training job on one kind of accelerator.

    sequence_tokens  tokens of a sequence
    global_batch     sequences of a step
    network_bytes_s  network bandwidth of one accelerator, one direction, bytes/s
    network_latency_s  time of an empty message between machines, s
    optimizer        row of planner/perf/data/optimizers.csv
    frozen_bytes     bytes of a parameter that is not trained (LoRA); 0 when all are trained
    lora_rank        rank of the adapters
    offload_states   weights, gradients and optimizer states are in host memory
    fused_backward   the optimizer runs inside backward, so no gradient outlives it
    reference        second model that rates preference pairs (DPO):
                     `copy` in 16 bit, or `base` without its adapters
    """

    llm: Llm
    chip: Accelerator
    layout: ParallelLayout
    software: Software
    sequence_tokens: int
    global_batch: float
    network_bytes_s: float
    network_latency_s: float = 0.0
    optimizer: str = "adamw"
    frozen_bytes: float = 0.0
    lora_rank: int = 0
    offload_states: bool = False
    fused_backward: bool = False
    reference: Reference = "none"

    @property
    def micro_tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        # Context parallelism splits each sequence over cp ranks.
        return self.layout.micro * self.sequence_tokens / self.layout.cp

    @property
    def task(self) -> Task:
        """What it trains: all weights, or adapters beside weights of 8 or 16 bits, or of 4."""
        if not self.frozen_bytes:
            return "full"
        return "qlora" if self.frozen_bytes < 1 else "lora"

    @property
    def is_unseen(self) -> bool:
        """Whether no run of its software, task or mixed precisions was measured."""
        return (
            self.software.is_unseen
            or is_unseen_task(self.task, self.software.kernels)
            or self.reference != "none"
            or bool(self.software.expert_precision)
        )

    @property
    def keeps_gathered(self) -> bool:
        """Whether a stage keeps whole what FSDP gathers and sums, for all its micro-batches.

        Pipelines of PyTorch do. Megatron's FSDP gathers and scatters in each micro-batch
        (core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py: on every backward).
        """
        return self.layout.pp > 1 and self.software.kernels != "te"

    @property
    def min_sequences(self) -> int:
        """Least number of sequences of a micro-batch: 2 for preference pairs."""
        # The loss of a preference needs both sequences of its pair.
        return 1 if self.reference == "none" else 2

    @property
    def link_ranks(self) -> int:
        """Accelerators of the job that share a link or the PCIe bus of a machine."""
        # A small job does not use the whole link.
        return min(self.chip.link_domain, self.layout.accelerators)

    def stage_layers(self, stage_index: int) -> float:
        """Layers of a pipeline stage.

        Where they do not divide, embedding and head take the place of one layer each.
        """
        stage_count = self.layout.pp
        even_layers = self.llm.layers / stage_count
        if (
            even_layers.is_integer()
            or (self.llm.layers + END_LAYERS) % stage_count
        ):
            return even_layers
        is_end = stage_index in (0, stage_count - 1)
        return (self.llm.layers + END_LAYERS) / stage_count - is_end

    @property
    def bubble_batches(self) -> float:
        """Pipeline bubble in micro-batches.

        1F1B      (p - 1) / v
        DualPipe  (p / 2 - 1) * 2 / 3: (p / 2 - 1) * (F&B + B - 3 W), where a backward B takes
                  twice a forward F, half of it for weights W
        Sources: Narayanan et al. (arXiv:2104.04473); DeepSeek-V3 (arXiv:2412.19437), table 2.
        """
        layout = self.layout
        if layout.schedule == "dualpipe":
            return max(0.0, layout.pp / 2 - 1) * DUALPIPE_BUBBLE
        return (layout.pp - 1) / layout.vpp

    @property
    def micro_batches(self) -> float:
        """Micro-batches of a step on one data-parallel rank."""
        return max(
            1.0, round(self.global_batch / (self.layout.dp * self.layout.micro))
        )

    def with_layout(self, layout: ParallelLayout) -> Job:
        """Return the same job in another layout."""
        llm, chip, _, *others = self
        # Searches make many: this takes half as long as `_replace`.
        return Job._make((llm, chip, layout, *others))
