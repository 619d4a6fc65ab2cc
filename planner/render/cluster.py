"""The page and the JSON of a training job on one exactly given cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from planner.plan.document import decimal_text, layout_data, predicted_data
from planner.render import figures
from planner.render.page import Page, PageTable, Paragraph
from planner.render.plan import prediction_rows as rows
from planner.render.training import duration_text, layout_summary, layout_table

if TYPE_CHECKING:
    from planner.solve.training.fixed import TrainingEstimate


def cluster_page(estimate: TrainingEstimate) -> Page:
    """Return what the cluster is, its layouts, and how the job would run in the best."""
    json_content = _json_content(estimate)
    instance = estimate.offer.instance
    fleet_text = (
        f"{estimate.nodes} x {instance.instance_type}  {instance.accelerators} x "
        f"{instance.accelerator}"
    )
    best_layout = json_content["layouts"][0]
    ending_text = (
        f"ends within {duration_text(json_content['hours'])} (90 %), "
        f"{figures.dollars(json_content['usd'])} "
    )
    ending_text += (
        f"{json_content['purchase'].replace('_', ' ')} in "
        f"{json_content['provider']} {json_content['region']}"
    )
    return (
        Paragraph(fleet_text, "strong"),
        Paragraph(
            f"  {layout_summary(best_layout)} in {best_layout['precision']}"
        ),
        Paragraph(f"  {ending_text}"),
        PageTable(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(rows(json_content["predicted"])),
        ),
        layout_table(json_content["layouts"]),
    )


def cluster_json(estimate: TrainingEstimate) -> str:
    """Return the prediction as JSON."""
    return json.dumps(_json_content(estimate), indent=2, sort_keys=True) + "\n"


def _json_content(estimate: TrainingEstimate) -> dict[str, Any]:
    offer = estimate.offer
    return {
        "instance_type": offer.instance.instance_type,
        "nodes": estimate.nodes,
        "provider": offer.provider,
        "region": offer.region,
        "purchase": offer.purchase,
        "layouts": [
            layout_data(estimate_part) for estimate_part in estimate.layouts
        ],
        "predicted": {
            metric_key: predicted_data(estimate_part)
            for metric_key, estimate_part in estimate.predicted.items()
        },
        "hours": figures.round_to_six(estimate.hours),
        "usd": decimal_text(estimate.expected_usd),
    }
