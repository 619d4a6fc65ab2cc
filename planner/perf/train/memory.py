"""Peak memory of training on one accelerator: states, activations, working set and logits.

    peak = overhead + (1 + fragmentation) * (states + gathered + activations + work + logits)

of the fuller of the first and the last pipeline stage. Bytes unless a name says GiB. The terms
are added: blocks reserved for one moment do not serve the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train.states import owned, states

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.train.job import Job, Recompute

HALF: Final = 2.0  # bytes of a number in 16 bit
GATED: Final = 3  # matrices of an MLP with a gate
FULL_GRADIENT: Final = 4.0
FROZEN: Final = 0.75  # share of activations that frozen weights still need


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes of one stage at its peak, by what holds them."""

    states: float
    gathered: float
    activations: float
    work: float
    logits: float

    @property
    def total(self) -> float:
        """Everything, without overhead and fragmentation."""
        return (
            self.states
            + self.gathered
            + self.activations
            + self.work
            + self.logits
        )


def kept(job: Job, recompute: Recompute) -> float:
    """Bytes that one layer keeps for a token between forward and backward, on one rank.

    For a GPT of width 4h without recomputation 34 + 5 a s / h bytes over h (Korthikanti et al.,
    arXiv:2205.05198); norms and masks are not cut over tp without sequence parallelism.
    """
    llm, t, soft = job.llm, job.spread.tp, job.software
    old, eager = (
        soft.kernels == "megatron21",
        soft.kernels in ("eager", "foundry"),
    )
    residual = t if soft.sequence_parallel else 1
    query, kv = llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
    width, routed = _width(llm)
    routed /= residual
    if recompute == "full":
        return HALF * llm.hidden / residual
    if recompute == "layer":
        return (kept(job, "full") + kept(job, "none")) / 2
    if (
        recompute == "ops"
    ):  # inputs, attention's output and every second product are kept
        inputs = HALF * llm.hidden * (2 if eager else 1) / residual
        return inputs + HALF * (2 * query + kv + width) / t + routed
    outside = (10 if old else 8) * llm.hidden
    gated = llm.mlp_matrices == GATED
    inside = (
        HALF * (2 * query + 2 * kv)
        + (4 if not gated else 8 if eager else 6) * width
    )
    if recompute == "none" and old:
        inside += (
            5 * llm.heads * job.sequence
        )  # scores, their mask, what dropout left
    return outside / residual + inside / t + routed


def _width(llm: Llm) -> tuple[float, float]:
    """Width of the MLP that a token passes, and bytes of its copies for experts."""
    if not llm.experts:
        return float(llm.ffn), 0.0
    wide = llm.moe_ffn * (llm.experts_per_token + llm.shared_experts)
    return float(wide), 2 * HALF * llm.hidden * llm.experts_per_token


def in_flight(job: Job, stage: int) -> float:
    """Micro-batches whose activations a stage holds.

    p - stage, or with v chunks a stage p (1 + (p - 1) / (p v)) - 2 stage / v.
    """
    p, v = job.spread.pp, job.spread.vpp
    if p == 1:
        return 1.0
    held = p - stage if v == 1 else p * (1 + (p - 1) / (p * v)) - 2 * stage / v
    return min(max(1.0, held), job.micros)


def activations(job: Job, stage: int = 0) -> float:
    """Bytes of the activations of a stage."""
    layers = job.llm.layers / job.spread.pp * (FROZEN if job.frozen else 1.0)
    return (
        job.tokens
        * kept(job, job.spread.recompute)
        * layers
        * in_flight(job, stage)
    )


def gathered(job: Job) -> float:
    """Unsharded copies under FSDP: the root and two layers, with the gradient of one.

    With a pipeline the whole stage stays gathered, and its gradient is accumulated whole.
    Under ZeRO-2 it is the gradient of one layer alone.
    """
    s = job.spread
    if s.sharding not in ("zero2", "zero3") or s.among == 1:
        return 0.0
    dense, experts = owned(job)
    if s.pp > 1:
        return (HALF + FULL_GRADIENT) * (dense + experts)
    root = job.llm.embedding / s.tp
    layer = (dense - root + experts) / job.llm.layers
    reduced = (
        FULL_GRADIENT
        if job.optimizer in ("adamw", "adamw-fp32", "muon", "sgd")
        else 0.0
    )
    if s.sharding == "zero2":
        return 0.0 if job.frozen else layer * (HALF + reduced)
    whole = (
        0.0 if job.software.allocated else HALF * root
    )  # some wrap embedding and head apart
    if job.frozen:
        unpacked = (
            HALF * job.llm.hidden * job.llm.ffn / s.tp
            if job.frozen < 1
            else 0.0
        )
        return whole + 2 * layer * job.frozen + unpacked
    return 1.5 * whole + layer * (3 * HALF + reduced)


def stages(job: Job) -> list[Peak]:
    """Return what the first and the last pipeline stage hold at their peaks."""
    s, soft, tokens = job.spread, job.software, job.tokens
    work = constant("train_work") * tokens * kept(job, "attention")
    if s.tp > 1:
        way = "overlapped" if soft.overlapped else "plain"
        work += constant("train_gathered", way) * tokens * job.llm.hidden
    logits = constant("train_logits", soft.loss) * tokens * job.llm.vocab / s.tp
    if soft.merged_outputs and s.pp > 1:
        logits += HALF * tokens * job.micros * job.llm.vocab / s.tp
    held, copies, last = states(job).total, gathered(job), s.pp - 1
    return [
        Peak(
            held,
            copies,
            activations(job, place),
            work,
            logits if place == last else 0.0,
        )
        for place in sorted({0, last})
    ]


def fuller(job: Job) -> Peak:
    """Return the peak of the fuller of the first and the last stage."""
    return max(stages(job), key=lambda x: x.total)


def peak_gib(job: Job) -> float:
    """GiB that the framework reserves (or allocates, where that is asked)."""
    total = fuller(job).total / GIB
    if job.software.allocated:
        return total
    return (
        constant("train_overhead")
        + (1 + constant("train_fragmentation")) * total
    )
