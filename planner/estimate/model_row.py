"""The model of a table's row: a listed one, or one of the shape that the row states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.errors import SpecError
from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_cell,
    read_count,
    read_flag,
    read_number,
)
from planner.estimate.names import RefusedError
from planner.facts import huggingface
from planner.facts.llm import Llm, dense_model

if TYPE_CHECKING:
    from collections.abc import Mapping

GATED_MATRICES: Final = 3
PLAIN_MATRICES: Final = 2
FFN_MULTIPLE: Final = 256  # of a width that a row does not state
# Widths without which no shape is known.
SHAPE_COLUMNS: Final = ("layers", "hidden")
UNLISTED_FAMILY: Final = "unlisted"
CONFIG_COLUMN: Final = "config"
# What the file of that column holds; `estimate.table` fills it, and no table can.
CONFIG_CONTENT: Final = "content of config"


def row_model(table_row: Row) -> Llm:
    """Return the model of a row; raises RefusedError.

    A config.json wins over a name, as in a spec. A name that nobody lists is answered where the
    row states `layers` and `hidden`; what it leaves out of the shape is as usual. With `params_b`
    alone a dense model of Llama proportions is assumed, unless the name is close to a listed one.
    """
    if read_cell(table_row, CONFIG_COLUMN):
        return _config_model(table_row)
    try:
        return names.resolve_model(table_row["model"])
    except RefusedError as refusal:
        if all(read_cell(table_row, column) for column in SHAPE_COLUMNS):
            return shaped_model(table_row)
        params_b = read_number(table_row, "params_b")
        if params_b and "did you mean" not in str(refusal):
            return dense_model(round(params_b * 1e9))
        raise


def _config_model(table_row: Row) -> Llm:
    """Return the model of a config.json; raises RefusedError with what is wrong in it."""
    config_path = read_cell(table_row, CONFIG_COLUMN)
    try:
        model = huggingface.parse_config(
            table_row[CONFIG_CONTENT].encode(), config_path
        )
    except SpecError as error:
        problem = error.problems[0]
        raise RefusedError(
            f"{config_path}: {problem.message}; {problem.next_step}"
        ) from None
    return replace(model, model=read_cell(table_row, "model") or model.model)


def shaped_model(table_row: Mapping[str, str]) -> Llm:
    """Return the model of a stated shape.

    heads of 128, as many of keys and values, a gated MLP of 8 / 3 of the width in whole multiples
    of 256, 32,000 words and an output head of its own where the row does not say otherwise.

    Raises RefusedError for more heads of keys and values than heads, and for more experts of a
    token than there are.
    """
    hidden = read_count(table_row, "hidden", 0)
    layers = read_count(table_row, "layers", 0)
    heads = read_count(table_row, "heads", max(1, hidden // 128))
    kv_heads = read_count(table_row, "kv_heads", heads)
    if kv_heads > heads:
        raise RefusedError(f"{kv_heads} kv_heads of {heads} heads")
    experts = read_count(table_row, "experts", 0)
    experts_per_token = (
        read_count(table_row, "experts_per_token", min(2, experts))
        if experts
        else 0
    )
    if experts_per_token > experts:
        raise RefusedError(
            f"{experts_per_token} experts per token of {experts}"
        )
    # Llama's, so that layouts can cut it.
    usual_ffn = math.ceil(8 * hidden / 3 / FFN_MULTIPLE) * FFN_MULTIPLE
    is_gated = read_flag(table_row, "gated", default=True)
    model = Llm(
        model=read_cell(table_row, "model") or UNLISTED_FAMILY,
        family=UNLISTED_FAMILY,
        params=1.0,
        active_params=1.0,
        layers=layers,
        hidden=hidden,
        ffn=read_count(table_row, "ffn", usual_ffn),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=read_count(table_row, "head_dim", max(1, hidden // heads)),
        vocab=int(read_number(table_row, "vocab")) or 32_000,
        experts=experts,
        experts_per_token=experts_per_token,
        moe_ffn=read_count(table_row, "moe_ffn", usual_ffn) if experts else 0,
        shared_experts=read_count(table_row, "shared_experts", 0),
        tied=read_flag(table_row, "tied"),
        mlp_matrices=GATED_MATRICES if is_gated else PLAIN_MATRICES,
        source="shape stated in the table",
    )
    return _with_params(model)


def _with_params(model: Llm) -> Llm:
    """Return a model with the parameters that its shape has."""
    query_width = model.heads * model.head_dim
    kv_width = model.kv_heads * model.head_dim
    attention = model.hidden * (2 * query_width + 2 * kv_width)
    dense_layers = 0 if model.experts else model.layers
    expert = model.mlp_matrices * model.hidden * model.moe_ffn
    shared = (
        model.layers * attention
        + dense_layers * model.mlp_matrices * model.hidden * model.ffn
        + (model.layers - dense_layers) * model.shared_experts * expert
        + model.embedding_params
    )
    routed_layers = model.layers if model.experts else 0
    return replace(
        model,
        params=float(shared + routed_layers * model.experts * expert),
        active_params=float(
            shared + routed_layers * model.experts_per_token * expert
        ),
    )
