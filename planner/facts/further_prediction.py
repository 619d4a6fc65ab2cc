"""Further tokens that a training learns to predict: what their modules add to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from planner.facts.llm import Llm


def with_further_predictions(language_model: Llm, count: int) -> Llm:
    """Return a model that learns `count` further tokens at each position (MTP).

    Each has a module: a projection of two hidden states to one, then attention and the MLP or
    the experts of a usual layer. Output head and embedding are those of the model.

    parameters of a module  2 * h^2 + attention + MLP, or experts with those that all tokens pass
    h                       width of the hidden state

    A hybrid counts attention and experts as a layer each. Source: DeepSeek-V3
    (arXiv:2412.19437), section 2.2.
    """
    if not count:
        return language_model
    is_hybrid = bool(language_model.state_layers)
    module_params = _usual_params(language_model)
    moe_layers = max(1, language_model.moe_layers)
    return replace(
        language_model,
        further_predictions=count,
        params=language_model.params
        + count * (module_params + language_model.expert_params / moe_layers),
        active_params=language_model.active_params
        + count
        * (
            module_params
            + language_model.active_expert_params / moe_layers
            # The output head is used once more.
            + language_model.vocab * language_model.hidden
        ),
        layers=language_model.layers + count * (2 if is_hybrid else 1),
        # 0 means all layers.
        attention_layers=language_model.attention_layers
        and language_model.attention_layers + count,
        expert_layers=language_model.expert_layers
        and language_model.expert_layers + count,
    )


def _usual_params(language_model: Llm) -> float:
    """Return the parameters of a module without its routed experts."""
    hidden_width = language_model.hidden
    mlp_width = (
        language_model.shared_width
        if language_model.experts
        else language_model.ffn
    )
    narrow_width = (
        language_model.expert_hidden
        if language_model.expert_hidden != hidden_width
        else 0
    )
    return (
        2 * hidden_width**2
        + language_model.attention_params / language_model.attending_layers
        + language_model.mlp_matrices * hidden_width * mlp_width
        # To a narrower state that experts read, and back.
        + 2 * hidden_width * narrow_width
    )
