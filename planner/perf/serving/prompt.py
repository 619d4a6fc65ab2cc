"""Time of a prompt from the terms of a step, in seconds.

Every function takes numbers or arrays with one value for each replica, so no branch depends on
a value. A timer has what all prompts of a replica share computed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from planner.perf.serving.step import norm_timer, p_norm, smaller

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.serving.step import StepTimes

# Prompt tokens to seconds.
PromptTimer: TypeAlias = "Callable[[float], float]"


def prompt_busy_time(times: StepTimes, prompt_tokens: float) -> float:
    """Return the seconds that the prompt of one request occupies a whole replica."""
    return busy_timer(times)(prompt_tokens)


def prompt_latency(times: StepTimes, prompt_tokens: float) -> float:
    """Return the seconds from start to end of a prompt on an idle replica."""
    return latency_timer(times)(prompt_tokens)


def busy_timer(times: StepTimes) -> PromptTimer:
    """Return what gives the seconds that a prompt of so many tokens occupies a whole replica.

        (products / adp + expert products + causal attention / adp + overhead) / pp

    With attention-DP adp prompts run at once; with pipelining pp prompts overlap.
    """
    causal_time = _causal_timer(times)
    dense_token_s = (
        times.flop_attention_s + times.flop_dense_s + times.token_s
    ) / times.adp
    # Many tokens share one read of the weights: products dominate.
    token_s = dense_token_s + times.flop_experts_s
    prompt_base_s, launch_s = times.prompt_base_s, times.launch_s
    full_tokens, adp, pp = times.prompt_full_tokens, times.adp, times.pp

    def busy_time(prompt_tokens: float) -> float:
        overhead_s = (
            prompt_base_s
            # Short prompts share a step, so each pays a share of its launches.
            + smaller(1.0, prompt_tokens / full_tokens) * launch_s
        )
        return (
            prompt_tokens * token_s
            + causal_time(prompt_tokens) / adp
            + overhead_s
        ) / pp

    return busy_time


def latency_timer(times: StepTimes) -> PromptTimer:
    """Return what gives the seconds from start to end of a prompt on an idle replica.

    It is one step that also reads the weights: norm(read, flop * tokens) for each part.
    """
    causal_time = _causal_timer(times)
    idle_share = 1.0 - times.expert_share
    exponent = times.overlap_exponent
    attention_norm = norm_timer(
        times.read_attention_s, times.flop_attention_s, exponent
    )
    dense_norm = norm_timer(times.read_dense_s, times.flop_dense_s, exponent)
    read_experts_s, flop_experts_s, padding_rows = (
        times.read_experts_s,
        times.flop_experts_s,
        times.padding_rows,
    )
    read_head_s, fixed_s, token_s = (
        times.read_head_s,
        times.fixed_s,
        times.token_s,
    )

    def latency(prompt_tokens: float) -> float:
        touched_share = 1.0 - idle_share**prompt_tokens
        dense_s = attention_norm(prompt_tokens) + dense_norm(prompt_tokens)
        expert_rows = prompt_tokens + padding_rows * touched_share
        experts_s = p_norm(
            read_experts_s * touched_share,
            flop_experts_s * expert_rows,
            exponent,
        )
        return (
            dense_s
            # Only the last token passes the head, so its read dominates.
            + read_head_s
            + experts_s
            + fixed_s
            + prompt_tokens * token_s
            + causal_time(prompt_tokens)
        )

    return latency


def _causal_timer(times: StepTimes) -> PromptTimer:
    """Return what gives the seconds of causal attention over a prompt.

    prompt * (pair * (full layers * prompt
                      + sparse layers * min(prompt, 2 * sparse)
                      + window layers * min(prompt, 2 * window))
              + index pair * sparse layers * prompt) / 2

    The index of sparse attention has a product for every pair, to choose from.
    """
    pair_s = times.pair_s
    index_s = times.index_pair_s * times.sparse_layers
    sparse_layers = times.sparse_layers
    full_layers, window_layers = times.full_layers, times.window_layers
    # With a limit w: L^2 / 2 pairs up to L = 2 w, then L * w.
    sparse_limit, window_limit = (
        2 * times.sparse_tokens,
        2 * times.window_tokens,
    )

    def causal_time(prompt_tokens: float) -> float:
        layer_tokens = (
            full_layers * prompt_tokens
            + sparse_layers * smaller(prompt_tokens, sparse_limit)
            + window_layers * smaller(prompt_tokens, window_limit)
        )
        chosen_s = index_s * prompt_tokens * prompt_tokens / 2
        return pair_s * prompt_tokens * layer_tokens / 2 + chosen_s

    return causal_time
