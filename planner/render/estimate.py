"""The page and the JSON of one exact prediction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from planner.render import words
from planner.render.page import Page, Paragraph, Table
from planner.render.plan import predicted

if TYPE_CHECKING:
    from planner.solve.exact import Exact


def page(found: Exact) -> Page:
    """Return what the fleet is and what it would do."""
    layout, kind = found.layout, found.instance
    shape = f"TP{layout.tp}" + (f" PP{layout.pp}" if layout.pp > 1 else "")
    shape += f" EP{layout.ep}" if layout.ep > 1 else ""
    fleet = f"{found.nodes} x {kind.instance_type}  {kind.accelerators} x {kind.accelerator}"
    text = f"{found.replicas * found.nodes} x {shape} in {layout.precision}, up to "
    text += f"{found.max_batch} requests each, {found.most_rps:,.1f} requests/s at most"
    return (
        Paragraph(fleet, "strong"),
        Paragraph("  " + text),
        Table(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(predicted(_numbers(found))),
        ),
    )


def document(found: Exact) -> str:
    """Return the prediction as JSON."""
    layout = found.layout
    content: dict[str, Any] = {
        "instance_type": found.instance.instance_type,
        "nodes": found.nodes,
        "replicas": found.replicas * found.nodes,
        "layout": {
            "precision": layout.precision,
            "kv_precision": layout.kv_precision,
            "tp": layout.tp,
            "pp": layout.pp,
            "ep": layout.ep,
            "max_batch": found.max_batch,
        },
        "requests_per_s_most": words.significant(found.most_rps),
        "predicted": _numbers(found),
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _numbers(found: Exact) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "value": words.significant(x.value),
            "low": words.significant(x.low),
            "high": words.significant(x.high),
            "basis": x.basis,
        }
        for name, x in found.predicted.items()
    }
