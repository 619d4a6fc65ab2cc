"""Work of routed experts on one rank in a forward pass: products and exchange of tokens."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.training.job import OPERAND_BYTES
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.rank_group import exchange_group

if TYPE_CHECKING:
    from planner.perf.training.job import Job

# Work that a model without experts does not have.
EXPERT_FIELDS: Final = (
    "expert_flop",
    "expert_bytes",
    "expert_sum_flop",
    "local_experts",
    "permuted_bytes",
    "exchange_link_bytes",
    "exchange_network_bytes",
    "exchange_latency_s",
    "slow_passes",
)


def expert_work(job: Job) -> dict[str, float]:
    """Return the work of routed experts: products, permutation and all-to-all."""
    moe_layers = job.llm.moe_layers / job.layout.pp
    layer_counts = {
        "moe_layers": moe_layers,
        "dense_layers": job.llm.layers / job.layout.pp - moe_layers,
    }
    if not job.llm.experts:
        return dict.fromkeys(EXPERT_FIELDS, 0.0) | layer_counts
    return (
        _expert_products(job, moe_layers)
        | _token_exchange(job, moe_layers)
        | layer_counts
    )


def _expert_products(job: Job, moe_layers: float) -> dict[str, float]:
    """Return FLOP and bytes of the products of experts, and how many a rank has.

    FLOP   2 * m * n * k for each product of m tokens, width n and depth k
    bytes  operand bytes * (m * (h + w) + matrices of all local experts)
           + 2 * m * (up matrices * w + h)

    h, w  widths of the hidden state and of an expert
    """
    language_model = job.llm
    routed_tokens = _routed_tokens(job)
    hidden_width = _expert_hidden(job)
    operand_bytes = OPERAND_BYTES.get(job.software.precision_of_experts, 1.0)
    local_experts = language_model.experts / job.layout.ep
    up_matrices = language_model.mlp_matrices - 1
    expert_width = language_model.moe_ffn / _expert_tp(job)
    expert_flop = (
        2 * routed_tokens * hidden_width * expert_width * (up_matrices + 1)
    )
    expert_bytes = operand_bytes * (
        routed_tokens * (hidden_width + expert_width)
        # Weights of all local experts are read in every micro-batch.
        + local_experts * hidden_width * expert_width * (up_matrices + 1)
    )
    expert_bytes += (
        BYTES_16BIT
        * routed_tokens
        * (up_matrices * expert_width + hidden_width)
    )
    return {
        "expert_flop": moe_layers * expert_flop,
        "expert_bytes": moe_layers * expert_bytes,
        # Each element of a result starts and ends a sum.
        "expert_sum_flop": moe_layers
        * 2
        * routed_tokens
        * (up_matrices * expert_width + hidden_width),
        "local_experts": moe_layers * local_experts,
        # One of three passes over one of the products.
        "slow_passes": (job.software.gradient_slowdown - 1) / (up_matrices + 1),
    }


def _token_exchange(job: Job, moe_layers: float) -> dict[str, float]:
    """Return the bytes of tokens that are sorted by expert and sent to other ranks.

    A token is sent once to each rank with at least one of its experts, and over the network
    once to each machine with such a rank. Chips of a torus pass on what is for others, which
    counts as so many bytes more of their own.
    """
    group = exchange_group(job)
    hidden_width = _expert_hidden(job)
    token_bytes = (
        moe_layers
        * job.micro_tokens
        / job.layout.tp
        * hidden_width
        * BYTES_16BIT
    )
    return {
        "permuted_bytes": moe_layers
        * _routed_tokens(job)
        * hidden_width
        * BYTES_16BIT,
        "exchange_link_bytes": token_bytes
        * remote_ranks(job)
        / job.chip.all_to_all_share(group.link_ranks),
        "exchange_network_bytes": token_bytes * remote_machines(job),
        # Messages to all machines are under way together.
        "exchange_latency_s": moe_layers * job.network_latency_s
        if group.is_on_network
        else 0.0,
    }


def _routed_tokens(job: Job) -> float:
    """Return the copies of tokens that one rank computes, at even routing."""
    return (
        job.micro_tokens
        * job.llm.experts_per_token
        * _expert_tp(job)
        / job.layout.tp
    )


def _expert_tp(job: Job) -> int:
    """Return the ranks that tensor parallelism divides an expert over."""
    # Experts of all ranks alike are cut as other products are.
    return job.layout.tp if job.layout.ep == 1 else 1


def _expert_hidden(job: Job) -> int:
    """Return the width of the hidden state that experts read and write."""
    return job.llm.expert_hidden or job.llm.hidden


def remote_ranks(job: Job) -> float:
    """Return the expected number of times that a token is sent to other ranks."""
    return sent_times(job, job.layout.ep)


def remote_machines(job: Job) -> float:
    """Return the expected number of times that a token is sent to other machines."""
    group = exchange_group(job)
    return sent_times(job, group.size / group.link_ranks)


def sent_times(job: Job, place_count: float) -> float:
    """Return the expected number of times that a token is sent to other places.

    k * (1 - 1 / n) where it is sent once for each of its k experts in n places, else once to
    each of those that its experts are in
    """
    chosen_experts = job.llm.experts_per_token
    if job.software.sends_per_expert:
        return chosen_experts * (1 - 1 / place_count)
    return reached_others(place_count, chosen_experts)


@lru_cache(maxsize=1024)
def reached_others(place_count: float, chosen_experts: int) -> float:
    """Return the expected number of other places that experts of a token are in.

    n * (1 - (1 - 1 / n)^k) * (1 - 1 / n)

    n  places that share the experts
    k  experts of a token, chosen uniformly
    """
    reached_places = place_count * (1 - (1 - 1 / place_count) ** chosen_experts)
    return reached_places * (1 - 1 / place_count)
