"""Frameworks of training: whose kernels run, and which layouts they can run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from msgspec import Struct

from planner.facts import table
from planner.perf.training.job import Software

if TYPE_CHECKING:
    from planner.perf.training.job import Kernels, ParallelLayout, Sharding

Loss: TypeAlias = Literal["fused", "eager", "chunked"]
# How finely a framework recomputes: a block of layers, every n-th layer, or all of them.
RecomputeStyle: TypeAlias = Literal["block", "every", "all"]
USUAL_FRAMEWORK: Final = "megatron"
END_STAGES: Final = (
    2  # of a pipeline: inputs enter the first, the last has the loss
)


class Framework(Struct, frozen=True, kw_only=True):
    """A framework of training.

    name          name in a spec
    trainer       name in the table of measured frameworks
    kernels       family of kernels
    loss          implementation of the loss
    cuts          tensor, pipeline, context and expert parallelism that it has
    shardings     stages of ZeRO that it has
    recompute     how finely it recomputes activations
    adamw         row of optimizers.csv that its AdamW is
    keeps_logits  logits of all micro-batches stay in memory until the end of the step
    loads_in_group  one rank of each tensor-parallel group loads data, not every rank
    sends_per_expert  its job sends a token once for each expert (an all-to-all)
    whole_expert_groups  expert parallelism takes all ranks of tensor and context parallelism
    equal_rounds  an interleaved pipeline passes its micro-batches in rounds of equal size
    default_for   methods that take it when a spec names none
    """

    name: str
    trainer: str
    kernels: Kernels
    loss: Loss
    cuts: frozenset[str]
    shardings: tuple[Sharding, ...]
    recompute: RecomputeStyle
    adamw: str
    keeps_logits: bool
    loads_in_group: bool
    sends_per_expert: bool
    whole_expert_groups: bool
    equal_rounds: bool
    default_for: frozenset[str]

    def software(
        self,
        precision: str,
        expert_precision: str = "",
        *,
        is_unseen: bool = False,
    ) -> Software:
        """Return the software of a job in a precision, and one of experts if it is another."""
        return Software(
            framework=self.name,
            kernels=self.kernels,
            precision=precision,
            expert_precision=""
            if expert_precision == precision
            else expert_precision,
            loss=self.loss,
            tp_overlapped=self.kernels == "te",
            sends_per_expert=self.sends_per_expert,
            keeps_all_logits=self.keeps_logits,
            is_unseen=is_unseen,
        )

    def loading_ranks(self, accelerators: int, tensor_ranks: int) -> int:
        """Return the ranks of a machine that load data, of as many as it has accelerators."""
        if not self.loads_in_group:
            return accelerators
        return max(1, accelerators // tensor_ranks)

    def sample_copies(self, layout: ParallelLayout) -> int:
        """Return the ranks of a replica that prepare the same samples.

        Every rank loads for itself, or one of each tensor group in the first and the last stage.
        """
        if not self.loads_in_group:
            return layout.tp * layout.pp * layout.cp
        return min(layout.pp, END_STAGES) * layout.cp

    def cuts_experts(self, layout: ParallelLayout, ranks: int) -> bool:
        """Return whether it can spread experts over `ranks` neighboring ranks in a layout."""
        if ranks == 1 or not self.whole_expert_groups:
            return True
        return ranks % (layout.tp * layout.cp) == 0

    def optimizer(self, name: str) -> str:
        """Return the row of optimizers.csv of an optimizer in a spec."""
        return self.adamw if name == "adamw" else name


@cache
def frameworks() -> dict[str, Framework]:
    """Return the frameworks of planner/perf/data/frameworks.csv by name."""
    column_types: table.Columns = {
        "framework": table.nonempty_text,
        "trainer": table.nonempty_text,
        "kernels": table.one_of("te", "compiled", "transformers"),
        "loss": table.one_of("fused", "eager", "chunked"),
        "cuts": table.any_text,
        "shardings": table.nonempty_text,
        "recompute": table.one_of("block", "every", "all"),
        "adamw": table.nonempty_text,
        "keeps_logits": table.yes_or_no,
        "loads": table.one_of("rank", "tensor group"),
        "sends_per_expert": table.yes_or_no,
        "whole_expert_groups": table.yes_or_no,
        "equal_rounds": table.yes_or_no,
        "default_for": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["framework"]: Framework(
            name=row["framework"],
            trainer=row["trainer"],
            kernels=row["kernels"],
            loss=row["loss"],
            cuts=frozenset(row["cuts"].split()),
            shardings=cast(
                "tuple[Sharding, ...]", tuple(row["shardings"].split())
            ),
            recompute=row["recompute"],
            adamw=row["adamw"],
            keeps_logits=row["keeps_logits"],
            loads_in_group=row["loads"] == "tensor group",
            sends_per_expert=row["sends_per_expert"],
            whole_expert_groups=row["whole_expert_groups"],
            equal_rounds=row["equal_rounds"],
            default_for=frozenset(row["default_for"].split()),
        )
        for row in table.load_rows(
            "planner.perf", "frameworks.csv", column_types
        )
    }


def framework_of(name: str, method: str) -> Framework:
    """Return a framework by its name in a spec; `auto` is the usual one of a method."""
    if name != "auto":
        return frameworks()[name]
    return next(
        framework
        for framework in frameworks().values()
        if method in framework.default_for
    )
