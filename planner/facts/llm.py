"""Language models by architecture, from which memory and step time follow."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import MissingError, Place, Problem
from planner.facts import table
from planner.facts.model_name import (
    architecture_names,
    compact_name,
    named_precision,
    other_model,
    other_model_problem,
)
from planner.suggest import closest

PRECISIONS: Final = ("bf16", "fp8", "mxfp4")
# Columns of the table of models with whole numbers; an empty cell is 0.
COUNT_COLUMNS: Final = (
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "experts",
    "experts_per_token",
    "moe_ffn",
    "shared_experts",
    "dense_layers",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_dim",
    "v_head_dim",
    "window",
    "window_layers",
    "attention_layers",
    "state_layers",
    "state_bytes",
    "expert_layers",
    "expert_hidden",
    "sparse",
    "sparse_layers",
    "index_bytes",
    "index_width",
    "entry_tokens",
    "pooled_tokens",
    "pooled_layers",
    "output_rank",
    "output_groups",
    "max_context",
    "mlp_matrices",
    "layer_reduces",
)


class Llm(Struct, frozen=True, kw_only=True, dict=True):
    """A decoder model. Parameters are absolute counts, lengths are in tokens.

    ffn               width of a dense MLP
    moe_ffn           width of a routed expert
    dense_layers      leading layers without experts
    expert_layers     layers with experts; 0 means all but `dense_layers`
    expert_hidden     input width of the experts; 0 means `hidden`
    kv_lora_rank      width of the KV latent; above 0 is multi-head latent attention (MLA)
    q_lora_rank       width of the query latent in MLA; 0 means a full projection
    qk_rope_dim       part of `head_dim` with rotary positions in MLA
    v_head_dim        dimension of a value; 0 means `head_dim`
    window            sliding window in tokens, in `window_layers` of the layers; of layers with
                      entries of several tokens beside them
    attention_layers  layers with attention in a hybrid model; 0 means all
    state_bytes       recurrent state of a sequence in each of `state_layers`, bytes
    sparse            tokens to which a token attends under sparse attention; 0 means all
    sparse_layers     layers with sparse attention; 0 means all that have attention
    index_bytes       index of sparse attention for each token in all layers, bytes
    index_width       width of the index's queries in a layer: its heads times their dimension
    entry_tokens      tokens that share an entry of the cache in sparse layers; 0 means none do
    pooled_layers     layers with an entry for `pooled_tokens` tokens each, all of which are read
    output_rank       width between two output projections of attention; 0 means one projection
    output_groups     groups of heads, each with a first output projection of its own
    tied              whether the output head shares the input embedding
    mlp_matrices      weight matrices of an MLP: 3 with a gate, 2 without
    layer_reduces     all-reduces of a layer over its tensor-parallel ranks; 0 means two, after
                      attention and after the MLP
    precision         precision of the released weights
    further_predictions  tokens beyond the next one that a training learns, with a module for each
                      (MTP) that is counted in the parameters and layers
    is_assumed        whether layers and width are assumed, of a size alone
    """

    model: str
    family: str
    params: float
    active_params: float
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    experts_per_token: int = 0
    moe_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0
    window: int = 0
    window_layers: int = 0
    attention_layers: int = 0
    state_layers: int = 0
    state_bytes: int = 0
    expert_layers: int = 0
    expert_hidden: int = 0
    sparse: int = 0
    sparse_layers: int = 0
    index_bytes: int = 0
    index_width: int = 0
    entry_tokens: int = 0
    pooled_tokens: int = 0
    pooled_layers: int = 0
    output_rank: int = 0
    output_groups: int = 0
    tied: bool = False
    max_context: int = 0
    mlp_matrices: int = 3
    layer_reduces: int = 0
    precision: str = "bf16"
    source: str = ""
    as_of: str = "unknown"
    further_predictions: int = 0
    is_assumed: bool = False

    @cached_property
    def moe_layers(self) -> int:
        """Number of layers with routed experts."""
        return (
            self.expert_layers or self.layers - self.dense_layers
            if self.experts
            else 0
        )

    @cached_property
    def attending_layers(self) -> int:
        """Layers with attention."""
        return self.attention_layers or self.layers

    @cached_property
    def choosing_layers(self) -> int:
        """Layers in which a token attends to no more than `sparse` others."""
        if not self.sparse:
            return 0
        return self.sparse_layers or self.attending_layers - self.window_layers

    @cached_property
    def has_entries(self) -> bool:
        """Whether tokens share entries of the cache, each the key and the value of all heads."""
        return bool(self.entry_tokens or self.pooled_layers)

    @cached_property
    def chooses_latents(self) -> bool:
        """Whether sparse attention chooses latent entries: all heads share each of them."""
        return bool(self.sparse and self.kv_lora_rank)

    @cached_property
    def choosing_entries(self) -> float:
        """Entries of a token in all layers that choose: one a layer, or a part of one."""
        return self.choosing_layers / max(1, self.entry_tokens)

    @cached_property
    def whole_entries(self) -> float:
        """Entries of a token in all layers, beside those of sliding windows."""
        windowless_layers = self.attending_layers - self.window_layers
        if not self.has_entries:
            return float(windowless_layers)
        return (
            windowless_layers
            + self.choosing_entries
            + self.pooled_layers / max(1, self.pooled_tokens)
        )

    @cached_property
    def shared_width(self) -> int:
        """Width of all shared experts of a layer, 0 without any."""
        return (
            self.shared_experts
            * self.moe_ffn
            # Shared experts of hybrid models count as twice as wide.
            * (2 if self.state_layers else 1)
        )

    @cached_property
    def embedding_params(self) -> float:
        """Parameters of input embedding and output head, counted once if tied."""
        return float(self.vocab * self.hidden * (1 if self.tied else 2))

    @cached_property
    def expert_params(self) -> float:
        """Parameters of all routed experts."""
        params_per_expert = (
            self.mlp_matrices
            * (self.expert_hidden or self.hidden)
            * self.moe_ffn
        )
        return float(self.moe_layers * self.experts * params_per_expert)

    @cached_property
    def active_expert_params(self) -> float:
        """Parameters of the routed experts that one token activates."""
        return (
            self.expert_params * self.experts_per_token / self.experts
            if self.experts
            else 0.0
        )

    @cached_property
    def attention_params(self) -> float:
        """Parameters of the attention projections of all layers.

        Query, key, value and output projections; with MLA the down and up projections of the
        queries and of the KV latent.
        """
        # MLA values may have another dimension than queries and keys.
        value_dim = self.v_head_dim or self.head_dim
        output_params = self._output_params(self.heads * value_dim)
        if self.kv_lora_rank:
            query_width = self.heads * self.head_dim
            query_rank = self.q_lora_rank
            query_params = (
                self.hidden * query_rank + query_rank * query_width
                if query_rank
                else self.hidden * query_width
            )
            nope_dim = self.head_dim - self.qk_rope_dim
            # Down projection to the KV latent and the shared rotary key.
            latent_params = self.hidden * (self.kv_lora_rank + self.qk_rope_dim)
            # Up projection of the latent to keys without positions and values.
            if not self.has_entries:
                latent_params += (
                    self.kv_lora_rank * self.heads * (nope_dim + value_dim)
                )
            return float(
                self.attending_layers
                * (query_params + latent_params + output_params)
            )
        # Keys and values of the grouped KV heads.
        kv_width = 2 * self.kv_heads * self.head_dim
        return float(
            self.attending_layers
            * (
                self.hidden * (self.heads * self.head_dim + kv_width)
                + output_params
            )
        )

    def _output_params(self, value_width: int) -> int:
        """Return the parameters of the output projections of a layer.

        Groups of heads are projected to `output_rank` together, and that to the hidden state.
        """
        if not self.output_rank:
            return value_width * self.hidden
        return self.output_rank * (
            value_width // self.output_groups + self.hidden
        )

    @cached_property
    def dense_params(self) -> float:
        """Parameters that every token uses, without input embedding and output head."""
        # Published counts are rounded, so the difference may be below 0.
        return max(
            0.0, self.params - self.expert_params - self.embedding_params
        )


@cache
def _model_table() -> dict[str, tuple[Llm | None, str, tuple[str, ...]]]:
    """Return model -> (architecture, reason why it is not modeled, aliases)."""
    table_rows = table.load_rows(
        "planner.facts", "models.csv", _model_columns()
    )
    return {
        model: (
            _architecture(table_row),
            table_row["unmodelled"],
            _alias_names(table_row),
        )
        for (model,), table_row in table.rows_by_key(
            table_rows, "model"
        ).items()
    }


def _model_columns() -> table.Columns:
    """Return the columns of the table of models, each with its converter."""
    return {
        "model": table.nonempty_text,
        "aliases": table.word_list,
        "hf_name": table.any_text,
        "family": table.nonempty_text,
        "released": table.partial_date,
        # Billions of parameters, in total and active for each token.
        "params_b": table.optional(table.real_between(0.01, 10_000)),
        "active_b": table.optional(table.real_between(0.01, 10_000)),
        **dict.fromkeys(
            COUNT_COLUMNS,
            lambda cell: table.integer_between(0, 20_000_000)(cell or "0"),
        ),
        "tied": table.yes_or_no,
        "precision": table.one_of(*PRECISIONS),
        "unmodelled": table.any_text,
        **table.SOURCE_COLUMNS,
    }


def _alias_names(table_row: table.TableRow) -> tuple[str, ...]:
    """Return the aliases, and the Hugging Face name with and without its owner."""
    hf_name = table_row["hf_name"].lower()
    return (*table_row["aliases"], hf_name, hf_name.split("/")[-1])


def _architecture(table_row: table.TableRow) -> Llm | None:
    if table_row["unmodelled"]:
        return None
    skipped_columns = (
        "aliases",
        "hf_name",
        "released",
        "params_b",
        "active_b",
        "unmodelled",
    )
    cells = {
        column: content
        for column, content in table_row.cells.items()
        if column not in skipped_columns
    }
    if not (
        table_row["params_b"]
        and table_row["layers"]
        and table_row["hidden"]
        and table_row["heads"]
    ):
        table.refuse_row(
            table_row.place,
            f"{table_row['model']} has no parameter count, layers, width or heads",
        )
    return Llm(
        params=table_row["params_b"] * 1e9,
        active_params=table_row["active_b"] * 1e9,
        **cells,
    )


def models() -> dict[str, Llm]:
    """Return the models with a modeled architecture, by name."""
    return {
        model_name: architecture
        for model_name, (architecture, _, _) in _model_table().items()
        if architecture
    }


def unsized_models() -> dict[str, str]:
    """Return the known models without a modeled architecture, with the reason."""
    return {
        model_name: reason
        for model_name, (architecture, reason, _) in _model_table().items()
        if not architecture
    }


def find_model(name: str, place: Place | None = None) -> Llm:
    """Return a model by name, alias or Hugging Face name, written in any usual way.

    Words of training in a name are of the same architecture. A word of quantization, such as
    AWQ or FP8, is the precision of the released weights. Raises MissingError for an unknown
    model, for one that is not modeled, and for one that is no decoder language model.
    """
    model_name = next(
        (
            _names_in_table()[candidate]
            for candidate in map(compact_name, architecture_names(name))
            if candidate in _names_in_table()
        ),
        None,
    )
    if model_name is None:
        raise MissingError(_unknown_model(name, place))
    architecture, reason, _ = _model_table()[model_name]
    if architecture is None:
        message = f"{model_name} cannot be sized yet: it has {reason}"
        next_step = (
            "use another model, or `params:` for a dense model of that size"
        )
        raise MissingError(
            Problem(
                code="unmodelled",
                message=message,
                place=place,
                next_step=next_step,
            )
        )
    precision = named_precision(name)
    if not precision:
        return architecture
    return replace(architecture, precision=precision)


@cache
def _names_in_table() -> dict[str, str]:
    """Return the name of each model by all of its names, without what separates their words."""
    names = {
        compact_name(alias_name): model_name
        for model_name, (_, _, alias_names) in _model_table().items()
        for alias_name in alias_names
        if alias_name
    }
    # A model's own name is never another's alias.
    return names | {compact_name(name): name for name in _model_table()}


def _unknown_model(name: str, place: Place | None) -> Problem:
    """Say what a name means that is in no row, or which known name is closest."""
    family = other_model(name)
    if family is not None:
        return other_model_problem(name, family, place)
    # A close name is most likely a spelling error.
    known_names = list(_model_table())
    close_name = next(
        filter(
            None,
            (
                closest(candidate, known_names)
                # The shortest spelling has the fewest words that differ from the table's.
                for candidate in reversed(architecture_names(name))
            ),
        ),
        None,
    )
    next_step = (
        f"did you mean '{close_name}'?" if close_name else "run: tonnage models"
    )
    return Problem(
        code="model",
        message=f"no model is named '{name}'",
        place=place,
        next_step=next_step,
    )


def dense_model(params: int) -> Llm:
    """Return an assumed dense model with `params` parameters.

    Llama proportions, with grouped-query attention and 8 KV heads:
    `layers = 14.2 * (params / 1e9)^0.40`, rounded to 4, and a width such that
    `params = 12.6 * layers * width^2`, rounded to 1,024.
    """
    # Depth grows with the power 0.40 of the size.
    layers = max(8, round((params / 1e9) ** 0.40 * 14.2 / 4) * 4)
    # A width in multiples of 1,024 is 8 heads of 128 each.
    heads = max(8, round((params / (12.6 * layers)) ** 0.5 / 1024) * 8)
    hidden = heads * 128
    return Llm(
        model=f"dense-{params / 1e9:g}b",
        family="assumed",
        params=float(params),
        active_params=float(params),
        layers=layers,
        hidden=hidden,
        # The gated MLP takes 3 * 3.5 of the 12.6; attention takes the rest.
        ffn=int(3.5 * hidden),
        heads=heads,
        kv_heads=8,
        head_dim=128,
        vocab=128_256,
        max_context=131_072,
        source="assumed dense architecture in Llama proportions",
        is_assumed=True,
    )
