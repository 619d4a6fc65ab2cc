"""Lists of facts as text, markdown, CSV or JSON: the same rows in each."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, TypeAlias

from planner.render import markdown, text
from planner.render.page import Table

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator, MigProfile
    from planner.facts.llm import Llm

Rows: TypeAlias = "list[dict[str, str]]"


def show(rows: Rows, form: str, *, color: bool = False) -> str:
    """Write rows in a format; numbers align to the right."""
    if form == "json":
        return json.dumps(rows, indent=2, sort_keys=True) + "\n"
    titles = list(rows[0]) if rows else []
    if form == "csv":
        sink = io.StringIO()
        writer = csv.DictWriter(sink, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return sink.getvalue()
    if not rows:
        return "nothing found\n"
    columns = tuple(f">{t}" if _numeric(rows, t) else t for t in titles)
    table = Table(columns, tuple(tuple(row[t] for t in titles) for row in rows))
    if form == "markdown":
        return markdown.render((table,))
    return text.render((table,), color=color)


def model_rows(found: list[Llm], not_yet: dict[str, str]) -> Rows:
    """Models by name, and those that are known but not sized."""
    rows = [
        {
            "model": m.model,
            "params_b": f"{m.params / 1e9:.2f}",
            "active_b": f"{m.active / 1e9:.2f}",
            "layers": str(m.layers),
            "attention": _attention(m),
            "experts": str(m.experts or ""),
            "context": str(m.max_context),
            "released_in": m.precision,
            "source": m.source,
        }
        for m in sorted(found, key=lambda m: m.model)
    ]
    blank = dict.fromkeys(
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
    for name, why in sorted(not_yet.items()):
        rows.append(
            {"model": name, **blank, "attention": f"not sized yet: {why}"}
        )
    order = (
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
    return [{key: row[key] for key in order} for row in rows]


def accelerator_rows(found: list[Accelerator]) -> Rows:
    """Accelerators by name, peaks dense."""
    return [
        {
            "accelerator": a.accelerator,
            "memory_gib": f"{a.memory_gib:g}",
            "gb_s": _maybe(a.bandwidth_gb_s),
            "bf16_tflops": _maybe(a.bf16_tflops),
            "fp8_tflops": _maybe(a.fp8_tflops),
            "link": a.link,
            "link_gb_s": f"{a.link_gb_s:g}",
            "mig": "yes" if a.mig else "no",
            "confidence": a.confidence,
            "as_of": a.as_of,
        }
        for a in found
    ]


def mig_rows(found: list[MigProfile]) -> Rows:
    """MIG profiles by accelerator."""
    return [
        {
            "accelerator": m.accelerator,
            "profile": m.profile,
            "memory_gb": f"{m.memory_gb:g}",
            "compute": str(m.compute_fraction),
            "at_most": str(m.max_instances),
        }
        for m in found
    ]


def _attention(m: Llm) -> str:
    if m.kv_lora_rank:
        return f"MLA rank {m.kv_lora_rank}"
    kind = "MHA" if m.kv_heads == m.heads else f"GQA {m.heads}/{m.kv_heads}"
    return (
        f"{kind}, window {m.window} in {m.window_layers}"
        if m.window_layers
        else kind
    )


def _maybe(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _numeric(rows: Rows, title: str) -> bool:
    cells = [row[title] for row in rows if row[title]]
    return bool(cells) and all(c.replace(".", "", 1).isdigit() for c in cells)
