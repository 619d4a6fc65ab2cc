"""Page and JSON of a training job on a given cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import to_builtins

from planner import figures
from planner.plan.number import plain_money
from planner.plan.prediction_entry import prediction
from planner.plan.run_entry import training_layout
from planner.render.page import Page, PageTable, Paragraph
from planner.render.plan import prediction_rows
from planner.render.training import duration_text, layout_summary, layout_table

if TYPE_CHECKING:
    from planner.plan.types import Prediction
    from planner.solve.training.fixed import TrainingEstimate


def cluster_page(estimate: TrainingEstimate) -> Page:
    """Return the page of a cluster: its layouts, and time and cost in the best one."""
    offer = estimate.offer
    instance = offer.instance
    fleet_text = (
        f"{estimate.nodes} x {instance.instance_type}  "
        f"{instance.accelerators} x {instance.accelerator}"
    )
    layouts = [training_layout(layout) for layout in estimate.layouts]
    ending_text = (
        f"ends within {duration_text(estimate.hours)} (90 %), "
        f"{figures.dollars(estimate.expected_usd)} "
        f"{offer.purchase.replace('_', ' ')} in "
        f"{offer.provider} {offer.region}"
    )
    return (
        Paragraph(fleet_text, "strong"),
        # The first layout is the best one.
        Paragraph(f"  {layout_summary(layouts[0])} in {layouts[0].precision}"),
        Paragraph(f"  {ending_text}"),
        PageTable(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(prediction_rows(_predictions(estimate))),
        ),
        layout_table(layouts),
    )


def cluster_json(estimate: TrainingEstimate) -> str:
    """Return layouts, predictions, hours and USD of the run as JSON."""
    offer = estimate.offer
    json_content = {
        "instance_type": offer.instance.instance_type,
        "nodes": estimate.nodes,
        "provider": offer.provider,
        "region": offer.region,
        "purchase": offer.purchase,
        "layouts": [training_layout(layout) for layout in estimate.layouts],
        "predicted": _predictions(estimate),
        "hours": figures.round_to_six(estimate.hours),
        "usd": plain_money(estimate.expected_usd),
    }
    return (
        json.dumps(to_builtins(json_content), indent=2, sort_keys=True) + "\n"
    )


def _predictions(estimate: TrainingEstimate) -> dict[str, Prediction]:
    return {
        metric_key: prediction(banded_prediction)
        for metric_key, banded_prediction in estimate.predicted.items()
    }
