"""Time of a decode step and of a prompt: reads, products, collectives and overhead add up.

Every function takes numbers, or arrays of them for many replicas at once (the fit does), so there
is no branch on a value. Seconds, bytes, FLOP. `c` holds the coefficients that apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.work import ReplicaProfile


def smaller(left: float, right: float) -> float:
    """The smaller of two numbers, or of each pair of two arrays."""
    return (left + right - abs(left - right)) / 2


def larger(left: float, right: float) -> float:
    """The larger of two numbers, or of each pair of two arrays."""
    return (left + right + abs(left - right)) / 2


def p_norm(read_s: float, product_s: float, exponent: float) -> float:
    """p-norm of two times that overlap a little: 1 adds them, infinity takes the longer."""
    combined_s: float = (read_s**exponent + product_s**exponent) ** (
        1.0 / exponent
    )
    return combined_s


@dataclass(frozen=True, slots=True)
class Draft:
    """Speculative decoding: tokens guessed for each step, passes of a drafting layer, gain.

    `tokens_per_step` is the tokens that a step yields on average: 1 and the accepted guesses.
    """

    draft_tokens: float = 0.0
    draft_passes: float = 0.0
    tokens_per_step: float = 1.0


NO_DRAFT: Final = Draft()


def speculate(
    draft_tokens: int, acceptance: float, *, prompt_lookup: bool = False
) -> Draft:
    """Return a draft of so many tokens, each accepted with a chance if all before it were.

    gained = 1 + a + a^2 + ... + a^tokens (Leviathan et al., arXiv:2211.17192); each token takes
    a pass of one layer and the head unless it is `prompt_lookup` (looked up in the prompt).
    """
    expected_tokens = sum(
        acceptance**accepted_count for accepted_count in range(draft_tokens + 1)
    )
    return Draft(
        float(draft_tokens),
        0.0 if prompt_lookup else float(draft_tokens),
        expected_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The seconds of a replica's terms, ready to be evaluated at any batch and context.

    read_*, flop_*  seconds to read the weights once, and of the products for one token
    kv_*            seconds for one token of context of one sequence
    fixed_s, token_s    seconds of collectives and launches of a step, and for each token
    launch_s, layer_count   seconds of launches in all layers, and how many layers there are
    one_phase_s, phase_limit_s     further seconds for each token of an all-reduce of one phase (everyone sends
                    all to everyone), and the most that it may cost before two phases are used
    """

    read_attention_s: float
    flop_attention_s: float
    read_dense_s: float
    flop_dense_s: float
    read_head_s: float
    flop_head_s: float
    read_experts_s: float
    flop_experts_s: float
    expert_share: float
    padding_rows: float
    kv_full_s: float
    kv_window_s: float
    kv_state_s: float
    window_tokens: float
    sparse_tokens: float
    pair_s: float
    full_layers: float
    window_layers: float
    fixed_s: float
    token_s: float
    one_phase_s: float
    phase_limit_s: float
    launch_s: float
    layer_count: float
    draft: Draft
    sequence_s: float
    overlap_exponent: float
    pp: float
    adp: float
    prompt_base_s: float
    prompt_full_tokens: float


def step_times(
    profile: ReplicaProfile,
    coefficients: Coefficients,
    speculation: Draft = NO_DRAFT,
) -> StepTimes:
    """Divide what has to be done by what the hardware and the engine reach."""
    weight_bytes_per_s = (
        profile.memory_bytes_per_s * coefficients.weight_bandwidth
    )
    flop_per_s = profile.peak_flop_per_s * coefficients.flops
    expert_flop_per_s = (
        flop_per_s
        * coefficients.expert_flops
        * coefficients.unpack_experts
        / (1 + coefficients.expert_width / profile.expert_columns)
    )
    link_bytes_per_s = profile.link_bytes_per_s * coefficients.link_bandwidth
    link_latency_s = coefficients.link_latency * (
        1
        + coefficients.link_latency_growth
        * larger(profile.attention_tp - 2, 0.0)
    )
    network_bytes_per_s = (
        profile.network_bytes_per_s * coefficients.network_bandwidth
    )
    launch_s = (
        coefficients.layer_overhead * profile.layers
        + coefficients.moe_overhead * profile.moe_layers
    )
    launch_s = coefficients.overhead * (
        launch_s + coefficients.latent_overhead * profile.latent_layers
    )
    kv_bytes_per_s = profile.memory_bytes_per_s * coefficients.kv_bandwidth
    return StepTimes(
        read_attention_s=profile.read_attention_bytes / weight_bytes_per_s,
        flop_attention_s=profile.attention_flop
        / (
            profile.attention_flop_per_s
            * coefficients.flops
            * coefficients.unpack_flops
        ),
        read_dense_s=profile.read_dense_bytes / weight_bytes_per_s,
        flop_dense_s=profile.dense_flop
        / (
            profile.dense_flop_per_s
            * coefficients.flops
            * coefficients.unpack_flops
        ),
        read_head_s=profile.read_head_bytes / weight_bytes_per_s,
        flop_head_s=profile.head_flop
        / (profile.half_flop_per_s * coefficients.flops),
        read_experts_s=profile.read_experts_bytes
        * coefficients.expert_bytes
        / weight_bytes_per_s,
        flop_experts_s=profile.experts_flop
        * coefficients.expert_imbalance
        / expert_flop_per_s,
        expert_share=profile.expert_share,
        padding_rows=coefficients.expert_padding
        / larger(profile.expert_share, 1e-6),
        kv_full_s=profile.kv_full_bytes / kv_bytes_per_s
        + profile.latent_flop
        * (1 + speculation.draft_tokens)
        / (profile.half_flop_per_s * coefficients.latent_flops),
        kv_window_s=profile.kv_window_bytes / kv_bytes_per_s,
        kv_state_s=2 * profile.kv_state_bytes / kv_bytes_per_s,
        window_tokens=profile.window_tokens,
        sparse_tokens=profile.sparse_tokens,
        pair_s=profile.pair_flop
        / (
            profile.half_flop_per_s
            * coefficients.flops
            * coefficients.prompt_attention
        ),
        full_layers=profile.full_layers,
        window_layers=profile.window_layers,
        fixed_s=profile.reduce_count * link_latency_s
        + profile.gather_count * coefficients.gather_latency
        + profile.hop_count * coefficients.hop_latency
        + launch_s
        + coefficients.overhead * coefficients.step_overhead,
        token_s=profile.reduce_bytes / link_bytes_per_s
        + profile.gather_bytes
        / (profile.link_bytes_per_s * coefficients.gather_bandwidth)
        + profile.hop_bytes / network_bytes_per_s
        + profile.stream_bytes
        * coefficients.stream
        / profile.memory_bytes_per_s,
        one_phase_s=profile.reduce_bytes
        * larger(profile.attention_tp / 2 - 1, 0.0)
        / link_bytes_per_s,
        phase_limit_s=profile.reduce_count * coefficients.link_phase,
        launch_s=launch_s,
        layer_count=profile.layers,
        draft=speculation,
        sequence_s=coefficients.overhead * coefficients.sequence_overhead
        + profile.vocabulary_size
        * 4
        * coefficients.sampling
        / profile.memory_bytes_per_s,
        overlap_exponent=coefficients.overlap,
        pp=profile.pp,
        adp=profile.adp,
        prompt_base_s=coefficients.prompt_base,
        prompt_full_tokens=coefficients.prompt_full,
    )


def attention_time(times: StepTimes, context_tokens: float) -> float:
    """Seconds that one sequence of so much context adds to a step."""
    attended_tokens = smaller(context_tokens, times.sparse_tokens)
    return (
        attended_tokens * times.kv_full_s
        + smaller(context_tokens, times.window_tokens) * times.kv_window_s
        + times.kv_state_s
    )


def decode_time(
    times: StepTimes, batch_size: float, attention_s: float
) -> float:
    """Seconds per output token with `batch_size` sequences of attention `attention_s` each in flight.

    Pipeline stages work on batch / pp at a time and a token passes all of them; with
    attention-DP an accelerator attends to batch / adp and multiplies experts for all. A step
    checks the guesses of a draft beside the next token, and yields those that are accepted.
    """
    checked_tokens = 1.0 + times.draft.draft_tokens
    sequence_count = larger(larger(batch_size / times.pp, 1.0) / times.adp, 1.0)
    stage_tokens = larger(batch_size / times.pp, 1.0) * checked_tokens
    local_tokens = sequence_count * checked_tokens
    touched_share = 1.0 - (1.0 - times.expert_share) ** stage_tokens
    body_s = p_norm(
        times.read_attention_s,
        times.flop_attention_s * local_tokens,
        times.overlap_exponent,
    )
    body_s += p_norm(
        times.read_dense_s,
        times.flop_dense_s * local_tokens,
        times.overlap_exponent,
    )
    expert_rows = stage_tokens + times.padding_rows * touched_share
    body_s += p_norm(
        times.read_experts_s * touched_share,
        times.flop_experts_s * expert_rows,
        times.overlap_exponent,
    )
    head_s = p_norm(
        times.read_head_s,
        times.flop_head_s * local_tokens,
        times.overlap_exponent,
    )
    drafting_s = times.draft.draft_passes * (
        (body_s + times.launch_s) / times.layer_count + head_s
    )
    step_s = (
        body_s
        + head_s
        + drafting_s
        + times.fixed_s
        + smaller(local_tokens * times.one_phase_s, times.phase_limit_s)
    )
    return (
        step_s
        + local_tokens * times.token_s
        + sequence_count * (attention_s + times.sequence_s)
    ) / times.draft.tokens_per_step


def prompt_busy_time(times: StepTimes, prompt_tokens: float) -> float:
    """Seconds for which the prompt of one request keeps a whole replica busy.

    With attention-DP adp prompts run at once, so one costs a share of the attention's time.
    """
    dense_token_s = (
        times.flop_attention_s + times.flop_dense_s + times.token_s
    ) / times.adp
    products_s = prompt_tokens * (dense_token_s + times.flop_experts_s)
    overhead_s = (
        times.prompt_base_s
        + smaller(1.0, prompt_tokens / times.prompt_full_tokens)
        * times.launch_s
    )
    return (
        products_s + _causal_time(times, prompt_tokens) / times.adp + overhead_s
    ) / times.pp


def prompt_latency(times: StepTimes, prompt_tokens: float) -> float:
    """Seconds from the start of a prompt to its end, alone: a step that reads the weights too."""
    touched_share = 1.0 - (1.0 - times.expert_share) ** prompt_tokens
    dense_s = p_norm(
        times.read_attention_s,
        times.flop_attention_s * prompt_tokens,
        times.overlap_exponent,
    )
    dense_s += p_norm(
        times.read_dense_s,
        times.flop_dense_s * prompt_tokens,
        times.overlap_exponent,
    )
    expert_rows = prompt_tokens + times.padding_rows * touched_share
    experts_s = p_norm(
        times.read_experts_s * touched_share,
        times.flop_experts_s * expert_rows,
        times.overlap_exponent,
    )
    return (
        dense_s
        + times.read_head_s
        + experts_s
        + times.fixed_s
        + prompt_tokens * times.token_s
        + _causal_time(times, prompt_tokens)
    )


def _causal_time(times: StepTimes, prompt_tokens: float) -> float:
    """Seconds of causal attention over a prompt."""
    full_layer_tokens = times.full_layers * smaller(
        prompt_tokens, 2 * times.sparse_tokens
    )
    return (
        times.pair_s
        * prompt_tokens
        * (
            full_layer_tokens
            + times.window_layers
            * smaller(prompt_tokens, 2 * times.window_tokens)
        )
        / 2
    )
