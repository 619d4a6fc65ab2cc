"""Time of a decode step and of a prompt: reads, products, collectives and overhead add up.

Every function takes numbers, or arrays of them for many replicas at once (the fit does), so there
is no branch on a value. Seconds, bytes, FLOP. `c` holds the coefficients that apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.perf.coefficient import Coefficients
    from planner.perf.terms import Terms


def least(left: float, right: float) -> float:
    """The smaller of two numbers, or of each pair of two arrays."""
    return (left + right - abs(left - right)) / 2


def most(left: float, right: float) -> float:
    """The larger of two numbers, or of each pair of two arrays."""
    return (left + right + abs(left - right)) / 2


def norm(read_s: float, product_s: float, exponent: float) -> float:
    """p-norm of two times that overlap a little: 1 adds them, infinity takes the longer."""
    combined_s: float = (read_s**exponent + product_s**exponent) ** (
        1.0 / exponent
    )
    return combined_s


@dataclass(frozen=True, slots=True)
class Draft:
    """Speculative decoding: tokens guessed for each step, passes of a drafting layer, gain.

    `gained` is the tokens that a step yields on average: 1 and the accepted guesses.
    """

    tokens: float = 0.0
    passes: float = 0.0
    gained: float = 1.0


NONE: Final = Draft()


def draft(
    draft_tokens: int, acceptance: float, *, prompt_lookup: bool = False
) -> Draft:
    """Return a draft of so many tokens, each accepted with a chance if all before it were.

    gained = 1 + a + a^2 + ... + a^tokens (Leviathan et al., arXiv:2211.17192); each token takes
    a pass of one layer and the head unless it is `free` (looked up in the prompt).
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
class Rates:
    """The seconds of a replica's terms, ready to be evaluated at any batch and context.

    read_*, flop_*  seconds to read the weights once, and of the products for one token
    kv_*            seconds for one token of context of one sequence
    fixed, token    seconds of collectives and launches of a step, and for each token
    layers, count   seconds of launches in all layers, and how many layers there are
    once, phase     further seconds for each token of an all-reduce of one phase (everyone sends
                    all to everyone), and the most that it may cost before two phases are used
    """

    read_attention: float
    flop_attention: float
    read_rest: float
    flop_rest: float
    read_head: float
    flop_head: float
    read_experts: float
    flop_experts: float
    chosen: float
    padding: float
    kv_full: float
    kv_window: float
    kv_state: float
    window: float
    sparse: float
    pair: float
    full_layers: float
    window_layers: float
    fixed: float
    token: float
    once: float
    phase: float
    layers: float
    count: float
    draft: Draft
    sequence: float
    overlap: float
    pp: float
    adp: float
    prompt_base: float
    prompt_full: float


def rates(
    profile: Terms, coefficients: Coefficients, speculation: Draft = NONE
) -> Rates:
    """Divide what has to be done by what the hardware and the engine reach."""
    weight_bytes_per_s = profile.bandwidth * coefficients.weight_bandwidth
    flop_per_s = profile.peak * coefficients.flops
    expert_flop_per_s = (
        flop_per_s
        * coefficients.expert_flops
        * coefficients.unpack_experts
        / (1 + coefficients.expert_width / profile.width)
    )
    link_bytes_per_s = profile.link * coefficients.link_bandwidth
    link_latency_s = coefficients.link_latency * (
        1 + coefficients.link_latency_growth * most(profile.tensor - 2, 0.0)
    )
    network_bytes_per_s = profile.network * coefficients.network_bandwidth
    launch_s = (
        coefficients.layer_overhead * profile.layers
        + coefficients.moe_overhead * profile.moe_layers
    )
    launch_s = coefficients.overhead * (
        launch_s + coefficients.latent_overhead * profile.latent_layers
    )
    kv_bytes_per_s = profile.bandwidth * coefficients.kv_bandwidth
    return Rates(
        read_attention=profile.read_attention / weight_bytes_per_s,
        flop_attention=profile.flop_attention
        / (
            profile.attention_peak
            * coefficients.flops
            * coefficients.unpack_flops
        ),
        read_rest=profile.read_rest / weight_bytes_per_s,
        flop_rest=profile.flop_rest
        / (profile.rest_peak * coefficients.flops * coefficients.unpack_flops),
        read_head=profile.read_head / weight_bytes_per_s,
        flop_head=profile.flop_head / (profile.half * coefficients.flops),
        read_experts=profile.read_experts
        * coefficients.expert_bytes
        / weight_bytes_per_s,
        flop_experts=profile.flop_experts
        * coefficients.expert_imbalance
        / expert_flop_per_s,
        chosen=profile.chosen,
        padding=coefficients.expert_padding / most(profile.chosen, 1e-6),
        kv_full=profile.kv_full / kv_bytes_per_s
        + profile.latent
        * (1 + speculation.tokens)
        / (profile.half * coefficients.latent_flops),
        kv_window=profile.kv_window / kv_bytes_per_s,
        kv_state=2 * profile.kv_state / kv_bytes_per_s,
        window=profile.window,
        sparse=profile.sparse,
        pair=profile.pair
        / (profile.half * coefficients.flops * coefficients.prompt_attention),
        full_layers=profile.full_layers,
        window_layers=profile.window_layers,
        fixed=profile.reduces * link_latency_s
        + profile.gathers * coefficients.gather_latency
        + profile.hops * coefficients.hop_latency
        + launch_s
        + coefficients.overhead * coefficients.step_overhead,
        token=profile.reduce_bytes / link_bytes_per_s
        + profile.gather_bytes / (profile.link * coefficients.gather_bandwidth)
        + profile.hop_bytes / network_bytes_per_s
        + profile.stream_bytes * coefficients.stream / profile.bandwidth,
        once=profile.reduce_bytes
        * most(profile.tensor / 2 - 1, 0.0)
        / link_bytes_per_s,
        phase=profile.reduces * coefficients.link_phase,
        layers=launch_s,
        count=profile.layers,
        draft=speculation,
        sequence=coefficients.overhead * coefficients.sequence_overhead
        + profile.vocabulary * 4 * coefficients.sampling / profile.bandwidth,
        overlap=coefficients.overlap,
        pp=profile.pp,
        adp=profile.adp,
        prompt_base=coefficients.prompt_base,
        prompt_full=coefficients.prompt_full,
    )


def attention(times: Rates, context_tokens: float) -> float:
    """Seconds that one sequence of so much context adds to a step."""
    attended_tokens = least(context_tokens, times.sparse)
    return (
        attended_tokens * times.kv_full
        + least(context_tokens, times.window) * times.kv_window
        + times.kv_state
    )


def decode(times: Rates, batch_size: float, attention_s: float) -> float:
    """Seconds per output token with `batch` sequences of attention `held` each in flight.

    Pipeline stages work on batch / pp at a time and a token passes all of them; with
    attention-DP an accelerator attends to batch / adp and multiplies experts for all. A step
    checks the guesses of a draft beside the next token, and yields those that are accepted.
    """
    checked_tokens = 1.0 + times.draft.tokens
    sequence_count = most(most(batch_size / times.pp, 1.0) / times.adp, 1.0)
    stage_tokens, local_tokens = (
        most(batch_size / times.pp, 1.0) * checked_tokens,
        sequence_count * checked_tokens,
    )
    touched_share = 1.0 - (1.0 - times.chosen) ** stage_tokens
    body_s = norm(
        times.read_attention, times.flop_attention * local_tokens, times.overlap
    )
    body_s += norm(
        times.read_rest, times.flop_rest * local_tokens, times.overlap
    )
    expert_rows = stage_tokens + times.padding * touched_share
    body_s += norm(
        times.read_experts * touched_share,
        times.flop_experts * expert_rows,
        times.overlap,
    )
    head_s = norm(
        times.read_head, times.flop_head * local_tokens, times.overlap
    )
    drafting_s = times.draft.passes * (
        (body_s + times.layers) / times.count + head_s
    )
    step_s = (
        body_s
        + head_s
        + drafting_s
        + times.fixed
        + least(local_tokens * times.once, times.phase)
    )
    return (
        step_s
        + local_tokens * times.token
        + sequence_count * (attention_s + times.sequence)
    ) / times.draft.gained


def prompt(times: Rates, prompt_tokens: float) -> float:
    """Seconds for which the prompt of one request keeps a whole replica busy.

    With attention-DP adp prompts run at once, so one costs a share of the attention's time.
    """
    dense_token_s = (
        times.flop_attention + times.flop_rest + times.token
    ) / times.adp
    products_s = prompt_tokens * (dense_token_s + times.flop_experts)
    overhead_s = (
        times.prompt_base
        + least(1.0, prompt_tokens / times.prompt_full) * times.layers
    )
    return (
        products_s + _pairs(times, prompt_tokens) / times.adp + overhead_s
    ) / times.pp


def first(times: Rates, prompt_tokens: float) -> float:
    """Seconds from the start of a prompt to its end, alone: a step that reads the weights too."""
    touched_share = 1.0 - (1.0 - times.chosen) ** prompt_tokens
    dense_s = norm(
        times.read_attention,
        times.flop_attention * prompt_tokens,
        times.overlap,
    )
    dense_s += norm(
        times.read_rest, times.flop_rest * prompt_tokens, times.overlap
    )
    expert_rows = prompt_tokens + times.padding * touched_share
    experts_s = norm(
        times.read_experts * touched_share,
        times.flop_experts * expert_rows,
        times.overlap,
    )
    return (
        dense_s
        + times.read_head
        + experts_s
        + times.fixed
        + prompt_tokens * times.token
        + _pairs(times, prompt_tokens)
    )


def _pairs(times: Rates, prompt_tokens: float) -> float:
    """Seconds of causal attention over a prompt."""
    full_layer_tokens = times.full_layers * least(
        prompt_tokens, 2 * times.sparse
    )
    return (
        times.pair
        * prompt_tokens
        * (
            full_layer_tokens
            + times.window_layers * least(prompt_tokens, 2 * times.window)
        )
        / 2
    )
