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


def least(a: float, b: float) -> float:
    """The smaller of two numbers, or of each pair of two arrays."""
    return (a + b - abs(a - b)) / 2


def most(a: float, b: float) -> float:
    """The larger of two numbers, or of each pair of two arrays."""
    return (a + b + abs(a - b)) / 2


def norm(read: float, product: float, power: float) -> float:
    """p-norm of two times that overlap a little: 1 adds them, infinity takes the longer."""
    both: float = (read**power + product**power) ** (1.0 / power)
    return both


@dataclass(frozen=True, slots=True)
class Draft:
    """Speculative decoding: tokens guessed for each step, passes of a drafting layer, gain.

    `gained` is the tokens that a step yields on average: 1 and the accepted guesses.
    """

    tokens: float = 0.0
    passes: float = 0.0
    gained: float = 1.0


NONE: Final = Draft()


def draft(tokens: int, acceptance: float, *, free: bool = False) -> Draft:
    """Return a draft of so many tokens, each accepted with a chance if all before it were.

    gained = 1 + a + a^2 + ... + a^tokens (Leviathan et al., arXiv:2211.17192); each token takes
    a pass of one layer and the head unless it is `free` (looked up in the prompt).
    """
    gained = sum(acceptance**k for k in range(tokens + 1))
    return Draft(float(tokens), 0.0 if free else float(tokens), gained)


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


def rates(t: Terms, c: Coefficients, guess: Draft = NONE) -> Rates:
    """Divide what has to be done by what the hardware and the engine reach."""
    reading = t.bandwidth * c.weight_bandwidth
    rate = t.peak * c.flops
    experts = (
        rate
        * c.expert_flops
        * c.unpack_experts
        / (1 + c.expert_width / t.width)
    )
    wire = t.link * c.link_bandwidth
    latency = c.link_latency * (
        1 + c.link_latency_growth * most(t.tensor - 2, 0.0)
    )
    across = t.network * c.network_bandwidth
    per_layer = c.layer_overhead * t.layers + c.moe_overhead * t.moe_layers
    per_layer = c.overhead * (per_layer + c.latent_overhead * t.latent_layers)
    keeping = t.bandwidth * c.kv_bandwidth
    return Rates(
        read_attention=t.read_attention / reading,
        flop_attention=t.flop_attention
        / (t.attention_peak * c.flops * c.unpack_flops),
        read_rest=t.read_rest / reading,
        flop_rest=t.flop_rest / (t.rest_peak * c.flops * c.unpack_flops),
        read_head=t.read_head / reading,
        flop_head=t.flop_head / (t.half * c.flops),
        read_experts=t.read_experts * c.expert_bytes / reading,
        flop_experts=t.flop_experts * c.expert_imbalance / experts,
        chosen=t.chosen,
        padding=c.expert_padding / most(t.chosen, 1e-6),
        kv_full=t.kv_full / keeping
        + t.latent * (1 + guess.tokens) / (t.half * c.latent_flops),
        kv_window=t.kv_window / keeping,
        kv_state=2 * t.kv_state / keeping,
        window=t.window,
        sparse=t.sparse,
        pair=t.pair / (t.half * c.flops * c.prompt_attention),
        full_layers=t.full_layers,
        window_layers=t.window_layers,
        fixed=t.reduces * latency
        + t.gathers * c.gather_latency
        + t.hops * c.hop_latency
        + per_layer
        + c.overhead * c.step_overhead,
        token=t.reduce_bytes / wire
        + t.gather_bytes / (t.link * c.gather_bandwidth)
        + t.hop_bytes / across
        + t.stream_bytes * c.stream / t.bandwidth,
        once=t.reduce_bytes * most(t.tensor / 2 - 1, 0.0) / wire,
        phase=t.reduces * c.link_phase,
        layers=per_layer,
        count=t.layers,
        draft=guess,
        sequence=c.overhead * c.sequence_overhead
        + t.vocabulary * 4 * c.sampling / t.bandwidth,
        overlap=c.overlap,
        pp=t.pp,
        adp=t.adp,
        prompt_base=c.prompt_base,
        prompt_full=c.prompt_full,
    )


def attention(r: Rates, context: float) -> float:
    """Seconds that one sequence of so much context adds to a step."""
    seen = least(context, r.sparse)
    return (
        seen * r.kv_full + least(context, r.window) * r.kv_window + r.kv_state
    )


def decode(r: Rates, batch: float, held: float) -> float:
    """Seconds per output token with `batch` sequences of attention `held` each in flight.

    Pipeline stages work on batch / pp at a time and a token passes all of them; with
    attention-DP an accelerator attends to batch / adp and multiplies experts for all. A step
    checks the guesses of a draft beside the next token, and yields those that are accepted.
    """
    checked = 1.0 + r.draft.tokens
    sequences = most(most(batch / r.pp, 1.0) / r.adp, 1.0)
    each, own = most(batch / r.pp, 1.0) * checked, sequences * checked
    touched = 1.0 - (1.0 - r.chosen) ** each
    body = norm(r.read_attention, r.flop_attention * own, r.overlap)
    body += norm(r.read_rest, r.flop_rest * own, r.overlap)
    rows = each + r.padding * touched
    body += norm(r.read_experts * touched, r.flop_experts * rows, r.overlap)
    head = norm(r.read_head, r.flop_head * own, r.overlap)
    drafting = r.draft.passes * ((body + r.layers) / r.count + head)
    step = body + head + drafting + r.fixed + least(own * r.once, r.phase)
    return (
        step + own * r.token + sequences * (held + r.sequence)
    ) / r.draft.gained


def prompt(r: Rates, tokens: float) -> float:
    """Seconds for which the prompt of one request keeps a whole replica busy.

    With attention-DP adp prompts run at once, so one costs a share of the attention's time.
    """
    dense = (r.flop_attention + r.flop_rest + r.token) / r.adp
    products = tokens * (dense + r.flop_experts)
    overhead = r.prompt_base + least(1.0, tokens / r.prompt_full) * r.layers
    return (products + _pairs(r, tokens) / r.adp + overhead) / r.pp


def first(r: Rates, tokens: float) -> float:
    """Seconds from the start of a prompt to its end, alone: a step that reads the weights too."""
    touched = 1.0 - (1.0 - r.chosen) ** tokens
    dense = norm(r.read_attention, r.flop_attention * tokens, r.overlap)
    dense += norm(r.read_rest, r.flop_rest * tokens, r.overlap)
    rows = tokens + r.padding * touched
    experts = norm(r.read_experts * touched, r.flop_experts * rows, r.overlap)
    return (
        dense
        + r.read_head
        + experts
        + r.fixed
        + tokens * r.token
        + _pairs(r, tokens)
    )


def _pairs(r: Rates, tokens: float) -> float:
    """Seconds of causal attention over a prompt."""
    full = r.full_layers * least(tokens, 2 * r.sparse)
    return (
        r.pair
        * tokens
        * (full + r.window_layers * least(tokens, 2 * r.window))
        / 2
    )
