"""Time of a prompt from the terms of a step, in seconds.

Every function takes numbers or arrays with one value for each replica, so no branch depends on
a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.perf.serving.step import p_norm, smaller

if TYPE_CHECKING:
    from planner.perf.serving.step import StepTimes


def prompt_busy_time(times: StepTimes, prompt_tokens: float) -> float:
    """Return the seconds that the prompt of one request occupies a whole replica.

        (products / adp + expert products + causal attention / adp + overhead) / pp

    With attention-DP adp prompts run at once; with pipelining pp prompts overlap.
    """
    dense_token_s = (
        times.flop_attention_s + times.flop_dense_s + times.token_s
    ) / times.adp
    # Many tokens share one read of the weights: products dominate.
    products_s = prompt_tokens * (dense_token_s + times.flop_experts_s)
    overhead_s = (
        times.prompt_base_s
        # Short prompts share a step, so each pays a share of its launches.
        + smaller(1.0, prompt_tokens / times.prompt_full_tokens)
        * times.launch_s
    )
    return (
        products_s + _causal_time(times, prompt_tokens) / times.adp + overhead_s
    ) / times.pp


def prompt_latency(times: StepTimes, prompt_tokens: float) -> float:
    """Return the seconds from start to end of a prompt on an idle replica.

    It is one step that also reads the weights: norm(read, flop * tokens) for each part.
    """
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
        # Only the last token passes the head, so its read dominates.
        + times.read_head_s
        + experts_s
        + times.fixed_s
        + prompt_tokens * times.token_s
        + _causal_time(times, prompt_tokens)
    )


def _causal_time(times: StepTimes, prompt_tokens: float) -> float:
    """Return the seconds of causal attention over a prompt.

    pair * prompt * (full layers * min(prompt, 2 * sparse)
                     + window layers * min(prompt, 2 * window)) / 2
    """
    # With a limit w: L^2 / 2 pairs up to L = 2 w, then L * w.
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
