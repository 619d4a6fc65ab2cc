"""Tables of facts as text, markdown, CSV or JSON, with the same rows in each format."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, TypeAlias

from planner.render import markdown, text
from planner.render.fitting import fitted
from planner.render.model_list import attention_kind
from planner.render.page import LINE_WIDTH, PageTable

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator, MigProfile
    from planner.facts.llm import Llm
    from planner.market.live import QuotaFact

Rows: TypeAlias = "list[dict[str, str]]"


def render_rows(
    rows: Rows,
    output_format: str,
    *,
    color: bool = False,
    width: int | None = LINE_WIDTH,
    without: tuple[str, ...] = (),
) -> str:
    """Return rows in a format; text and markdown align numeric columns to the right.

    Text has lines of `width` at most, and leaves out the columns `without`.
    """
    if output_format == "json":
        return json.dumps(rows, indent=2, sort_keys=True) + "\n"
    is_text = output_format == "text"
    column_names = [
        name
        for name in (rows[0] if rows else ())
        if not is_text or name not in without
    ]
    if output_format == "csv":
        csv_buffer = io.StringIO()
        csv_writer = csv.DictWriter(
            csv_buffer, column_names, lineterminator="\n"
        )
        csv_writer.writeheader()
        csv_writer.writerows(rows)
        return csv_buffer.getvalue()
    if not rows:
        return "nothing found\n"
    column_titles = tuple(
        f">{column_name}" if _is_numeric(rows, column_name) else column_name
        for column_name in column_names
    )
    text_table = PageTable(
        column_titles,
        tuple(
            tuple(listing_row[column_name] for column_name in column_names)
            for listing_row in rows
        ),
    )
    if output_format == "markdown":
        return markdown.render((text_table,))
    if width is not None:
        text_table = fitted(text_table, width)
    return text.render((text_table,), color=color)


def model_rows(models: list[Llm], unsized_reasons: dict[str, str]) -> Rows:
    """Return rows of the models by name, then of the models that cannot be sized.

    `params_b` and `active_b` are billions of parameters; `context` is tokens.
    """
    listing_rows = [
        {
            "model": model_facts.model,
            "params_b": f"{model_facts.params / 1e9:.2f}",
            "active_b": f"{model_facts.active_params / 1e9:.2f}",
            "layers": str(model_facts.layers),
            "attention": _attention_text(model_facts),
            "experts": str(model_facts.experts or ""),
            "context": str(model_facts.max_context),
            "released_in": model_facts.precision,
            "source": model_facts.source,
        }
        for model_facts in sorted(
            models, key=lambda model_facts: model_facts.model
        )
    ]
    # Facts of a model that cannot be sized are left blank.
    blank_cells = dict.fromkeys(
        (
            "params_b",
            "active_b",
            "layers",
            "experts",
            "context",
            "released_in",
            "source",
        ),
        "",
    )
    for model_name, reason_text in sorted(unsized_reasons.items()):
        listing_rows.append(
            {
                "model": model_name,
                **blank_cells,
                "attention": f"not sized yet: {reason_text}",
            }
        )
    # The first row decides the header, so all rows share one order.
    column_order = (
        "model",
        "params_b",
        "active_b",
        "layers",
        "attention",
        "experts",
        "context",
        "released_in",
        "source",
    )
    return [
        {column_name: listing_row[column_name] for column_name in column_order}
        for listing_row in listing_rows
    ]


def accelerator_rows(accelerators: list[Accelerator]) -> Rows:
    """Return rows of accelerators; peak TFLOP/s are without sparsity.

    A peak or bandwidth that is not known is blank.
    """
    return [
        {
            "accelerator": accelerator.accelerator,
            "memory_gib": f"{accelerator.memory_gib:g}",
            "gb_s": _number_or_blank(accelerator.bandwidth_gb_s),
            "bf16_tflops": _number_or_blank(accelerator.bf16_tflops),
            "fp8_tflops": _number_or_blank(accelerator.fp8_tflops),
            "link": accelerator.link,
            "link_gb_s": f"{accelerator.link_gb_s:g}",
            "mig": "yes" if accelerator.mig else "no",
            "confidence": accelerator.confidence,
            "as_of": accelerator.as_of,
        }
        for accelerator in accelerators
    ]


def mig_rows(mig_profiles: list[MigProfile]) -> Rows:
    """Return rows of MIG profiles; `compute` is a fraction of the accelerator."""
    return [
        {
            "accelerator": mig_profile.accelerator,
            "profile": mig_profile.profile,
            "memory_gb": f"{mig_profile.memory_gb:g}",
            "compute": str(mig_profile.compute_fraction),
            "at_most": str(mig_profile.max_instances),
        }
        for mig_profile in mig_profiles
    ]


def quota_rows(quotas: list[QuotaFact]) -> Rows:
    """Return rows of quotas; an empty cell is what nobody says, or no limit."""
    return [
        {
            "quota": quota.id,
            "name": quota.name,
            "purchase": quota.purchase,
            "unit": quota.unit,
            "limit": "" if quota.limit is None else f"{quota.limit:g}",
            "used": "" if quota.used is None else f"{quota.used:g}",
            "asked_for": ""
            if quota.requested is None
            else f"{quota.requested:g}",
        }
        for quota in quotas
    ]


def _attention_text(model_facts: Llm) -> str:
    attention_text = attention_kind(model_facts)
    return (
        f"{attention_text}, window {model_facts.window} in {model_facts.window_layers}"
        if model_facts.window_layers
        else attention_text
    )


def _number_or_blank(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _is_numeric(rows: Rows, column_name: str) -> bool:
    # Blank cells do not decide.
    filled_cells = [
        listing_row[column_name]
        for listing_row in rows
        if listing_row[column_name]
    ]
    return bool(filled_cells) and all(
        cell_text.replace(".", "", 1).isdigit() for cell_text in filled_cells
    )
