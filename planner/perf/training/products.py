"""Dense products of one rank in a forward pass of a micro-batch: FLOP and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from planner.perf.training.job import OPERAND_BYTES
from planner.perf.training.memory import BYTES_16BIT

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job


class _Product(NamedTuple):
    """A product of layers of one stage, as one rank computes it.

    layer_count  layers of the stage that have it
    width        columns of its result
    depth        elements of each sum
    """

    layer_count: float
    width: float
    depth: float


def product_work(job: Job) -> dict[str, float]:
    """Return FLOP and bytes of dense products and of the head.

    FLOP   2 * m * n * k for each product of m tokens, width n and depth k
    sums   2 * m * n
    bytes  operand bytes * (m * k + n * k) + 2 * m * n

    Products: projections of attention, dense MLP, shared experts and state-space layers. The
    head runs once for each token that is predicted at a position.
    """
    language_model = job.llm
    shared_width = language_model.shared_width
    predictions = 1 + language_model.further_predictions
    layer_products = [
        *_attention_products(job),
        *_mlp_products(
            job, dense_mlp_layers(language_model), language_model.ffn
        ),
        *_mlp_products(
            job, language_model.moe_layers if shared_width else 0, shared_width
        ),
        # Modules of further predictions join two hidden states.
        _Product(
            language_model.further_predictions / job.layout.pp,
            language_model.hidden / job.layout.tp,
            2 * language_model.hidden,
        ),
    ]
    gemm_flop = _products_flop(job, layer_products)
    gemm_bytes = _products_bytes(job, layer_products)
    if language_model.state_layers:
        state_flop = _state_space_flop(job, gemm_flop)
        gemm_flop = gemm_flop + state_flop
        gemm_bytes = (
            # 3 bytes for each token and column of matrices `hidden` deep.
            gemm_bytes + state_flop / (2 * language_model.hidden) * 3
        )
    return {
        "gemm_flop": gemm_flop,
        "gemm_bytes": gemm_bytes,
        "gemm_sum_flop": sum(
            product.layer_count * 2 * job.micro_tokens * product.width
            for product in layer_products
        ),
        "head_flop": predictions
        * 2.0
        * job.micro_tokens
        * language_model.vocab
        * language_model.hidden
        / job.layout.tp
        * _head_passes(job),
        # 12 bytes for each token and vocabulary entry, in all passes.
        "head_bytes": predictions
        * 12.0
        * job.micro_tokens
        * language_model.vocab
        / job.layout.tp,
    }


def _products_flop(job: Job, layer_products: list[_Product]) -> float:
    """Return the FLOP of products: 2 * m * n * k each."""
    token_count = job.micro_tokens
    return sum(
        product.layer_count * 2 * token_count * product.width * product.depth
        for product in layer_products
    )


def _products_bytes(job: Job, layer_products: list[_Product]) -> float:
    """Return the bytes of products: operand bytes * (m * k + n * k) + 2 * m * n each."""
    token_count = job.micro_tokens
    operand_bytes = OPERAND_BYTES.get(job.software.precision, 1.0)
    return sum(
        product.layer_count
        * (
            operand_bytes
            # Inputs and weights in the precision of products.
            * (token_count * product.depth + product.width * product.depth)
            + BYTES_16BIT * token_count * product.width
        )
        for product in layer_products
    )


def _state_space_flop(job: Job, gemm_flop: float) -> float:
    """Return the FLOP of projections of state-space layers.

    They have what `gemm_flop` of the other products leaves of the parameters.
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    stage_count = job.layout.pp
    token_count = job.micro_tokens
    # Parameters of products so far, with experts and head.
    counted_params = (
        gemm_flop * tp_ranks * stage_count / (2 * token_count)
        + language_model.active_expert_params
        + (1 + language_model.further_predictions)
        * language_model.vocab
        * language_model.hidden
    )
    return (
        max(0.0, language_model.active_params - counted_params)
        * 2
        * token_count
        / (tp_ranks * stage_count)
    )


def _mlp_products(job: Job, mlp_layers: int, mlp_width: int) -> list[_Product]:
    """Return the products of the MLP of a width in a number of layers of the model."""
    hidden_width = job.llm.hidden
    tp_ranks = job.layout.tp
    layer_count = mlp_layers / job.layout.pp
    # Up projection and, with a gate, the gate; the last is down.
    up_matrices = job.llm.mlp_matrices - 1
    # Up projections are split by column, the down one by row.
    return [
        _Product(layer_count, up_matrices * mlp_width / tp_ranks, hidden_width),
        _Product(layer_count, hidden_width, mlp_width / tp_ranks),
    ]


def _attention_products(job: Job) -> list[_Product]:
    """Return the projections of attention."""
    layer_count = job.llm.attending_layers / job.layout.pp
    return [
        _Product(layer_count, product_width, product_depth)
        for product_width, product_depth in _projections(job)
    ]


def _head_passes(job: Job) -> float:
    """Return the factor on the head for the pass of a reference.

    1 without a reference, else 1 + 1 / passes of training.
    """
    pass_count = 2.0 if job.frozen_bytes else 3.0
    # Head FLOP are multiplied by the passes later.
    return 1.0 if job.reference == "none" else 1 + 1 / pass_count


def dense_mlp_layers(language_model: Llm) -> int:
    """Return the number of layers with a dense MLP."""
    if language_model.experts:
        return language_model.dense_layers
    # A layer of a hybrid is state space, attention or MLP.
    if language_model.state_layers:
        return max(
            0,
            language_model.layers
            - language_model.state_layers
            - language_model.attending_layers,
        )
    return language_model.layers


def last_product_share(language_model: Llm) -> float:
    """Return the share of the last product of a dense layer in the FLOP of its products.

    0 with experts or state-space layers, whose layers end otherwise.
    """
    if language_model.experts or language_model.state_layers:
        return 0.0
    hidden_width = language_model.hidden
    head_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    layer_params = hidden_width * (
        2 * (head_width + kv_width)
        + language_model.mlp_matrices * language_model.ffn
    )
    return hidden_width * language_model.ffn / layer_params


def _projections(job: Job) -> list[tuple[float, float]]:
    """Return (width, depth) of each projection of attention on one rank.

    Latent attention (MLA) has a joint down projection, an up projection of queries, and one of
    keys and values.
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    query_width = language_model.heads * language_model.head_dim
    value_width = language_model.v_head_dim or language_model.head_dim
    if language_model.kv_lora_rank:
        query_rank = language_model.q_lora_rank
        rope_width = language_model.qk_rope_dim
        up_width = language_model.heads * (
            language_model.head_dim - rope_width + value_width
        )
        # Entries of several tokens are keys and values as they are.
        expanded = (
            []
            if language_model.has_entries
            # Keys without their rotary part, and values, from the latent.
            else [(up_width / tp_ranks, language_model.kv_lora_rank)]
        )
        return [
            (
                # Joint down projection, the same on every tp rank.
                query_rank + language_model.kv_lora_rank + rope_width,
                language_model.hidden,
            ),
            (query_width / tp_ranks, query_rank or language_model.hidden),
            *expanded,
            *_output_projections(
                language_model, language_model.heads * value_width / tp_ranks
            ),
        ]
    kv_width = language_model.kv_heads * language_model.head_dim
    return [
        # Queries, keys and values in one product, then the output.
        ((query_width + 2 * kv_width) / tp_ranks, language_model.hidden),
        (language_model.hidden, query_width / tp_ranks),
    ]


def _output_projections(
    language_model: Llm, value_width: float
) -> list[tuple[float, float]]:
    """Return (width, depth) of the output of attention: groups of heads may have one before."""
    hidden_width = language_model.hidden
    if not language_model.output_rank:
        return [(hidden_width, value_width)]
    # Each group of heads has its own part of both.
    whole_width = language_model.heads * language_model.v_head_dim
    group_rank = language_model.output_rank * value_width / whole_width
    return [
        (group_rank, whole_width / language_model.output_groups),
        (hidden_width, group_rank),
    ]
