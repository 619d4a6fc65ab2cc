"""The page of models: what decides which machines one needs; each line fits a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.render.page import LINE_WIDTH, Heading, PageTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.facts.llm import Llm
    from planner.render.page import Block, Page


def models_page(
    models: Sequence[Llm], unsized_reasons: Mapping[str, str]
) -> Page:
    """Return the page of models by name, and below of those that cannot be sized, with why."""
    blocks: list[Block] = []
    if models:
        blocks.append(
            PageTable(
                (
                    "model",
                    ">params",
                    ">active",
                    "attention",
                    ">experts",
                    ">context",
                    "released in",
                ),
                tuple(
                    (
                        model.model,
                        _billions(model.params),
                        _billions(model.active_params),
                        attention_kind(model),
                        str(model.experts or ""),
                        str(model.max_context),
                        model.precision,
                    )
                    for model in sorted(models, key=lambda model: model.model)
                ),
                width=LINE_WIDTH,
            )
        )
    if unsized_reasons:
        blocks += [
            Heading("known, but not sized yet"),
            PageTable(
                ("model", "because"),
                tuple(sorted(unsized_reasons.items())),
                width=LINE_WIDTH,
            ),
        ]
    return tuple(blocks)


def attention_kind(model: Llm) -> str:
    """Return how the attention of a model shares keys and values among its heads."""
    # Latent attention has no ratio of heads to KV heads.
    if model.kv_lora_rank:
        return f"MLA rank {model.kv_lora_rank}"
    if model.kv_heads == model.heads:
        return "MHA"
    return f"GQA {model.heads}/{model.kv_heads}"


def _billions(params: float) -> str:
    return f"{params / 1e9:.1f}B"
