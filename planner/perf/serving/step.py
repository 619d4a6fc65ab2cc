"""Time of a decode step, and its terms.

    step = weight reads and products + KV reads + collectives + overhead

Times are in seconds, sizes in bytes, work in FLOP. Every function takes numbers or arrays with
one value for each replica (the fit uses arrays), so no branch depends on a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.work import ReplicaProfile


# Sequences in flight and the attention time of one of them, to seconds per output token.
DecodeTimer: TypeAlias = "Callable[[float, float], float]"


def smaller(left: float, right: float) -> float:
    """Return the minimum of two numbers, or of each pair of two arrays."""
    # min and max do not work on arrays, and numpy is not a dependency.
    return (left + right - abs(left - right)) / 2


def larger(left: float, right: float) -> float:
    """Return the maximum of two numbers, or of each pair of two arrays."""
    return (left + right + abs(left - right)) / 2


def p_norm(read_s: float, product_s: float, exponent: float) -> float:
    """Return the p-norm of the times of reads and products that overlap in part.

    (read^p + product^p)^(1/p): p = 1 adds them; p = infinity takes the maximum, as a roofline.
    """
    combined_s: float = (read_s**exponent + product_s**exponent) ** (
        1.0 / exponent
    )
    return combined_s


def norm_timer(
    read_s: float, product_s: float, exponent: float
) -> Callable[[float], float]:
    """Return what gives the p-norm of one read and of the products of so many tokens."""
    # The first of three powers is the same for any number of tokens.
    read_power = read_s**exponent
    root = 1.0 / exponent

    def norm(tokens: float) -> float:
        combined_s: float = (
            read_power + (product_s * tokens) ** exponent
        ) ** root
        return combined_s

    return norm


class Draft(Struct, frozen=True):
    """Speculative decoding.

    draft_tokens     tokens proposed for each step
    draft_passes     passes of the draft layer for each step
    tokens_per_step  mean tokens that one step yields: 1 plus the accepted ones
    """

    draft_tokens: float = 0.0
    draft_passes: float = 0.0
    tokens_per_step: float = 1.0


NO_DRAFT: Final = Draft()


def speculate(
    draft_tokens: int, acceptance: float, *, prompt_lookup: bool = False
) -> Draft:
    """Return a draft of `draft_tokens` tokens with a given acceptance probability.

        tokens per step = 1 + a + a^2 + ... + a^k   (Leviathan et al., arXiv:2211.17192)

    a is the probability that a token is accepted if all before it were. Each draft token takes
    one pass of one layer and the head, except with `prompt_lookup`.
    """
    expected_tokens = sum(
        # P(the first i draft tokens are all accepted) = a^i.
        acceptance**accepted_count
        for accepted_count in range(draft_tokens + 1)
    )
    return Draft(
        float(draft_tokens),
        0.0 if prompt_lookup else float(draft_tokens),
        expected_tokens,
    )


class StepTimes(Struct, frozen=True, kw_only=True):
    """Times of the terms of a step of one replica, for any batch and context.

    read_*_s            time to read the weights of a part once, s
    flop_*_s            time of the products of a part for one token, s
    expert_share        share of the routed experts that one token uses
    rank_spread         deviation of the fullest rank's experts in use
    padding_rows        rows that tiles of expert products add, with all experts in use
    kv_full_s           time per token of context of one sequence, all layers that read all
                        of it, and the index of sparse attention, s
    kv_sparse_s         the same for all layers with sparse attention, s
    kv_window_s         the same for all sliding-window layers, s
    kv_state_s          time per sequence for states of constant size, s
    window_tokens       length of the sliding window, tokens
    sparse_tokens       most tokens that sparse attention reads, tokens
    pair_s              prompt attention of one pair of tokens in one layer, s
    index_pair_s        the same for the index of sparse attention, s
    full_layers, sparse_layers, window_layers, layer_count  layers of each kind, and of all
    fixed_s             latency of collectives, launches and scheduler of a step, s
    token_s             transfers of collectives and of activations, for each token, s
    one_phase_s         extra time per token of an all-reduce in one phase (all to all), s
    phase_limit_s       most extra time before two phases are faster, s
    launch_s            launches of all layers of a step, s
    scheduler_s         scheduler of the engine, once for each micro-batch in each stage, s
    sequence_s          batch preparation and sampling of one sequence, s
    overlap_exponent    exponent of `p_norm`
    prompt_base_s       fixed time of one prompt, s
    prompt_full_tokens  prompt length that pays for all launches, tokens
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
    rank_spread: float
    padding_rows: float
    kv_full_s: float
    kv_sparse_s: float
    kv_window_s: float
    kv_state_s: float
    window_tokens: float
    sparse_tokens: float
    pair_s: float
    index_pair_s: float
    full_layers: float
    sparse_layers: float
    window_layers: float
    fixed_s: float
    token_s: float
    one_phase_s: float
    phase_limit_s: float
    launch_s: float
    scheduler_s: float
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
    """Divide the work of a replica by the speeds that hardware and engine reach."""
    return StepTimes(
        **_weight_times(profile, coefficients),
        **_expert_times(profile, coefficients),
        **_attention_times(profile, coefficients, speculation),
        **_collective_times(profile, coefficients),
        **_overhead_times(profile, coefficients),
        layer_count=profile.layers,
        draft=speculation,
        overlap_exponent=coefficients.overlap,
        pp=profile.pp,
        adp=profile.adp,
    )


def _weight_times(
    profile: ReplicaProfile, coefficients: Coefficients
) -> dict[str, float]:
    """Return reads and products of attention, dense layers and head.

    read  weight bytes / (bandwidth * weight_bandwidth), s
    flop  FLOP of a token / (peak * flops * unpack_flops), s
    """
    weight_bytes_per_s = _weight_bandwidth(profile, coefficients)
    return {
        "read_attention_s": profile.read_attention_bytes / weight_bytes_per_s,
        # unpack_flops: 4-bit weights that are converted to 16 bit.
        "flop_attention_s": profile.attention_flop
        / (
            profile.attention_flop_per_s
            * coefficients.flops
            * coefficients.unpack_flops
        ),
        "read_dense_s": profile.read_dense_bytes / weight_bytes_per_s,
        "flop_dense_s": profile.dense_flop
        / (
            profile.dense_flop_per_s
            * coefficients.flops
            * coefficients.unpack_flops
        ),
        "read_head_s": profile.read_head_bytes / weight_bytes_per_s,
        "flop_head_s": profile.head_flop
        # The output head is computed in 16 bit.
        / (profile.half_flop_per_s * coefficients.flops),
    }


def _expert_times(
    profile: ReplicaProfile, coefficients: Coefficients
) -> dict[str, float]:
    """Return reads and products of routed experts, and what their tiles add.

    rate of products = peak * flops * expert_flops * unpack_experts / (1 + w0 / w), FLOP/s

    w, w0  width of an expert on one accelerator, and the coefficient `expert_width`
    """
    flop_per_s = profile.peak_flop_per_s * coefficients.flops
    expert_flop_per_s = (
        flop_per_s
        * coefficients.expert_flops
        * coefficients.unpack_experts
        # Narrow experts are slow products: rate w / (w + w0).
        / (1 + coefficients.expert_width / profile.expert_columns)
    )
    return {
        "read_experts_s": profile.read_experts_bytes
        * coefficients.expert_bytes
        / _weight_bandwidth(profile, coefficients),
        "flop_experts_s": profile.experts_flop
        # The accelerator with the most tokens ends last.
        * coefficients.expert_imbalance
        / expert_flop_per_s,
        "expert_share": profile.expert_share,
        "rank_spread": profile.rank_spread,
        # Rows per expert in use times E / k: counted in rows of tokens.
        "padding_rows": coefficients.expert_padding
        / larger(profile.expert_share, 1e-6),
    }


def _weight_bandwidth(
    profile: ReplicaProfile, coefficients: Coefficients
) -> float:
    """Return the memory bandwidth that reads of weights reach, in bytes/s."""
    # Peak times the fitted share.
    return profile.memory_bytes_per_s * coefficients.weight_bandwidth


def _attention_times(
    profile: ReplicaProfile, coefficients: Coefficients, speculation: Draft
) -> dict[str, float]:
    """Return KV reads and prompt attention, with the limits of their tokens.

    KV    bytes / (bandwidth * kv_bandwidth), s
    pair  FLOP of a pair / (16-bit peak * flops * prompt_attention), s
    """
    kv_bytes_per_s = profile.memory_bytes_per_s * coefficients.kv_bandwidth
    index_s = profile.index_bytes / kv_bytes_per_s
    token_s = (
        profile.kv_full_bytes / kv_bytes_per_s
        # MLA decode is bound by products; each draft token adds queries.
        + profile.latent_flop
        * (1 + speculation.draft_tokens)
        / (profile.half_flop_per_s * coefficients.latent_flops)
    )
    # Equal layers, beside an index that every token of context has.
    sparse_share = profile.sparse_layers / larger(profile.full_layers, 1.0)
    sparse_s = sparse_share * (token_s - index_s)
    pair_flop_per_s = (
        profile.half_flop_per_s
        * coefficients.flops
        * coefficients.prompt_attention
    )
    return {
        "kv_full_s": token_s - sparse_s,
        "kv_sparse_s": sparse_s,
        "kv_window_s": profile.kv_window_bytes / kv_bytes_per_s,
        # A recurrent state is read and written in each step.
        "kv_state_s": 2 * profile.kv_state_bytes / kv_bytes_per_s,
        "window_tokens": profile.window_tokens,
        "sparse_tokens": profile.sparse_tokens,
        "pair_s": profile.pair_flop / pair_flop_per_s,
        "index_pair_s": profile.index_flop / pair_flop_per_s,
        "full_layers": profile.full_layers - profile.sparse_layers,
        "sparse_layers": profile.sparse_layers,
        "window_layers": profile.window_layers,
    }


def _collective_times(
    profile: ReplicaProfile, coefficients: Coefficients
) -> dict[str, float]:
    """Return what collectives and activations take for a token, and an all-reduce in one phase.

    token = all-reduce + all-to-all + transfers between stages + activations, s

    all-reduce = max(bytes / link of a machine, bytes through a NIC / its bandwidth)
    """
    link_bytes_per_s = profile.link_bytes_per_s * coefficients.link_bandwidth
    network_bytes_per_s = (
        profile.network_bytes_per_s * coefficients.network_bandwidth
    )
    # All hops of a ring work at once: the slowest wire sets the pace.
    reduce_s = larger(
        profile.reduce_bytes
        / (profile.machine_link_bytes_per_s * coefficients.link_bandwidth),
        profile.reduce_network_bytes
        / (profile.nic_share_bytes_per_s * coefficients.network_bandwidth),
    )
    return {
        "token_s": reduce_s
        # All-to-all of expert dispatch reaches less of the link bandwidth.
        + profile.gather_bytes
        / (profile.link_bytes_per_s * coefficients.gather_bandwidth)
        + profile.hop_bytes / network_bytes_per_s
        # Activations pass through memory several times in a layer.
        + profile.stream_bytes
        * coefficients.stream
        / profile.memory_bytes_per_s,
        "one_phase_s": profile.reduce_bytes
        # One phase sends t / 2 times the bytes of two phases, and no ring bundles them: beyond
        # a machine each rank sends its own by its own NIC.
        * larger(profile.attention_tp / 2 - 1, 0.0)
        / link_bytes_per_s,
        "phase_limit_s": profile.reduce_count * coefficients.link_phase,
    }


def _overhead_times(
    profile: ReplicaProfile, coefficients: Coefficients
) -> dict[str, float]:
    """Return what a step, a sequence and a prompt take whatever their tokens.

    fixed     latencies of collectives + launches + scheduler, s
    sequence  preparation of a batch and sampling, s
    """
    launch_s = _launch_time(profile, coefficients)
    scheduler_s = coefficients.overhead * coefficients.step_overhead
    return {
        # Latencies of collectives do not depend on the batch.
        "fixed_s": profile.reduce_count * _link_latency(profile, coefficients)
        + profile.gather_count * coefficients.gather_latency
        + profile.hop_count * coefficients.hop_latency
        + launch_s
        # Scheduler of the engine, once a step.
        + scheduler_s,
        "launch_s": launch_s,
        "scheduler_s": scheduler_s,
        "sequence_s": coefficients.overhead * coefficients.sequence_overhead
        # Sampling passes over 32-bit logits of the vocabulary.
        + profile.vocabulary_size
        * 4
        * coefficients.sampling
        / profile.memory_bytes_per_s,
        "prompt_base_s": coefficients.prompt_base,
        "prompt_full_tokens": coefficients.prompt_full,
    }


def _link_latency(profile: ReplicaProfile, coefficients: Coefficients) -> float:
    """Return the latency of one all-reduce, in seconds.

    link_latency * (1 + link_latency_growth * (t - 2)) over t > 2 accelerators
    """
    # One all-reduce over 2 accelerators, and growth for each further one.
    return coefficients.link_latency * (
        1
        + coefficients.link_latency_growth
        * larger(profile.attention_tp - 2, 0.0)
    )


def _launch_time(profile: ReplicaProfile, coefficients: Coefficients) -> float:
    """Return the launches of all layers of a step, in seconds.

    overhead * (layers + expert layers + latent layers, each with its overhead)
    """
    # Kernel launches: every layer, and routing in expert layers.
    launch_s = (
        coefficients.layer_overhead * profile.layers
        + coefficients.moe_overhead * profile.moe_layers
    )
    return coefficients.overhead * (
        launch_s + coefficients.latent_overhead * profile.latent_layers
    )


def attention_time(times: StepTimes, context_tokens: float) -> float:
    """Return the seconds that one sequence with `context_tokens` adds to a step.

    kv_full * context + kv_sparse * min(context, sparse) + kv_window * min(context, window)
        + kv_state
    """
    # Sparse attention reads only its top-k tokens.
    attended_tokens = smaller(context_tokens, times.sparse_tokens)
    return (
        context_tokens * times.kv_full_s
        + attended_tokens * times.kv_sparse_s
        + smaller(context_tokens, times.window_tokens) * times.kv_window_s
        + times.kv_state_s
    )


def decode_time(
    times: StepTimes, batch_size: float, attention_s: float
) -> float:
    """Return the seconds per output token with `batch_size` sequences in flight.

    `attention_s` is the attention time of one sequence.
    """
    return decode_timer(times)(batch_size, attention_s)


def decode_timer(times: StepTimes) -> DecodeTimer:
    """Return what gives the seconds per output token of a batch and its attention time.

    Terms of a step:
        norm(read, flop * tokens)           attention, dense layers, head
        norm(read * touched, flop * rows)   experts
        fixed + token * tokens              collectives, launches, activations
        sequences * (attention + sequence)  KV reads, sampling

    A pipeline stage works on batch / pp sequences, and all wait for the last one: see
    `_stage_wait`. With attention-DP an accelerator attends to batch / adp of them and computes
    experts for all. A step checks draft tokens together with the next token and yields those that
    are accepted.
    """
    pp, adp, draft = times.pp, times.adp, times.draft
    # A step verifies all draft tokens and computes the next one.
    checked_tokens = 1.0 + draft.draft_tokens
    idle_share = 1.0 - times.expert_share
    exponent = times.overlap_exponent
    # A batch of any size reads the weights once.
    attention_norm = norm_timer(
        times.read_attention_s, times.flop_attention_s, exponent
    )
    dense_norm = norm_timer(times.read_dense_s, times.flop_dense_s, exponent)
    head_norm = norm_timer(times.read_head_s, times.flop_head_s, exponent)

    def time_of(batch_size: float, attention_s: float) -> float:
        stage_sequences = larger(batch_size / pp, 1.0)
        # Sequences that one accelerator attends to in one stage.
        sequence_count = larger(stage_sequences / adp, 1.0)
        stage_tokens = stage_sequences * checked_tokens
        local_tokens = sequence_count * checked_tokens
        # Expected share of experts in use: 1 - (1 - k / E)^tokens.
        touched_share = 1.0 - idle_share**stage_tokens
        # The rank with the most experts in use reads the longest.
        read_share = smaller(
            touched_share
            + times.rank_spread
            * (touched_share * (1.0 - touched_share)) ** 0.5,
            1.0,
        )
        # Tiles pad the rows of each expert in use.
        expert_rows = stage_tokens + times.padding_rows * touched_share
        body_s = attention_norm(local_tokens) + dense_norm(local_tokens)
        body_s += p_norm(
            times.read_experts_s * read_share,
            times.flop_experts_s * expert_rows,
            exponent,
        )
        head_s = head_norm(local_tokens)
        # A draft pass costs one layer and the output head.
        drafting_s = draft.draft_passes * (
            (body_s + times.launch_s) / times.layer_count + head_s
        )
        step_s = (
            body_s
            + head_s
            + drafting_s
            + times.fixed_s
            # The faster of the one-phase and the two-phase all-reduce.
            + smaller(local_tokens * times.one_phase_s, times.phase_limit_s)
        )
        step_s += local_tokens * times.token_s + sequence_count * (
            attention_s + times.sequence_s
        )
        # Only the last stage has the output head, and samples.
        last_s = head_s + sequence_count * times.sequence_s
        step_s += _stage_wait(times, step_s, last_s, batch_size)
        # Time of a step over the tokens that it yields.
        return step_s / draft.tokens_per_step

    return time_of


def _stage_wait(
    times: StepTimes, step_s: float, last_s: float, batch_size: float
) -> float:
    """Return what a token takes longer than a step of all layers: 0 with one stage, seconds.

        stage = (step - last - scheduler) / stages + scheduler
        token = max(stages * stage + last, micro-batches * (stage + last))

    There are as many micro-batches as stages, or as sequences where these are fewer. `last_s` of
    the step is in the last stage alone, and all others wait for it.
    """
    micro_batches = smaller(batch_size, times.pp)
    even_s = step_s - last_s - times.scheduler_s
    return larger(
        (times.pp - 1.0) * times.scheduler_s,
        (micro_batches / times.pp - 1.0) * even_s
        + (micro_batches - 1.0) * (times.scheduler_s + last_s),
    )
