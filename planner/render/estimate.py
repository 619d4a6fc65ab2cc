"""Page and JSON of the prediction of a given fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from planner import figures
from planner.plan.prediction_entry import prediction
from planner.render.page import LINE_WIDTH, Page, PageTable, Paragraph
from planner.render.plan import prediction_rows
from planner.sentence import describe

if TYPE_CHECKING:
    from planner.plan.types import Prediction
    from planner.solve.serving.fixed import FixedFleet


def estimate_page(estimate: FixedFleet) -> Page:
    """Return the page of a fleet: machines, replicas, predictions with bands."""
    layout = estimate.layout
    instance = estimate.instance
    # Degrees of 1 are not shown, except TP.
    layout_text = f"TP{layout.tp}" + (
        f" PP{layout.pp}" if layout.pp > 1 else ""
    )
    layout_text += f" EP{layout.ep}" if layout.ep > 1 else ""
    fleet_text = (
        f"{estimate.nodes} x {instance.instance_type}  {instance.accelerators} x "
        f"{instance.accelerator}"
    )
    replica_text = (
        f"{estimate.replicas_per_node * estimate.nodes} x {layout_text} in "
        f"{layout.precision}, up to "
    )
    replica_text += (
        f"{estimate.max_batch} requests each, {estimate.max_rps:,.1f} "
        "requests/s at most"
    )
    return (
        Paragraph(fleet_text, "strong"),
        Paragraph("  " + replica_text),
        PageTable(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(prediction_rows(_predictions(estimate))),
        ),
        *(
            Paragraph(f"! {describe(note)}", "warn", LINE_WIDTH)
            for note in estimate.notes
        ),
    )


def estimate_json(estimate: FixedFleet) -> str:
    """Return layout and predictions of a fleet as JSON."""
    layout = estimate.layout
    json_content: dict[str, Any] = {
        "instance_type": estimate.instance.instance_type,
        "nodes": estimate.nodes,
        "replicas": estimate.replicas_per_node * estimate.nodes,
        "layout": {
            "precision": layout.precision,
            "kv_precision": layout.kv_precision,
            "tp": layout.tp,
            "pp": layout.pp,
            "ep": layout.ep,
            "max_batch": estimate.max_batch,
        },
        "requests_per_s_most": figures.round_to_six(estimate.max_rps),
        "predicted": _predictions(estimate),
    }
    if estimate.notes:
        json_content["notes"] = [describe(note) for note in estimate.notes]
    return (
        json.dumps(to_builtins(json_content), indent=2, sort_keys=True) + "\n"
    )


def _predictions(estimate: FixedFleet) -> dict[str, Prediction]:
    return {
        metric_key: prediction(banded_prediction)
        for metric_key, banded_prediction in estimate.predicted.items()
    }
