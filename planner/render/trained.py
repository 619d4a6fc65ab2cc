"""The page and the JSON of a training job on one exactly given cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from planner.plan.document import laid, money, predicted
from planner.render import words
from planner.render.page import Page, Paragraph, Table
from planner.render.plan import predicted as rows
from planner.render.train import days, layouts, shape

if TYPE_CHECKING:
    from planner.solve.train.exact import Trained


def page(estimate: Trained) -> Page:
    """Return what the cluster is, its layouts, and how the job would run in the best."""
    json_content, instance = _content(estimate), estimate.offer.instance
    fleet_text = f"{estimate.nodes} x {instance.instance_type}  {instance.accelerators} x {instance.accelerator}"
    best_layout = json_content["layouts"][0]
    ending_text = f"ends within {days(json_content['hours'])} (90 %), {words.dollars(json_content['usd'])} "
    ending_text += f"{json_content['purchase'].replace('_', ' ')} in {json_content['provider']} {json_content['region']}"
    return (
        Paragraph(fleet_text, "strong"),
        Paragraph(f"  {shape(best_layout)} in {best_layout['precision']}"),
        Paragraph(f"  {ending_text}"),
        Table(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(rows(json_content["predicted"])),
        ),
        layouts(json_content["layouts"]),
    )


def document(estimate: Trained) -> str:
    """Return the prediction as JSON."""
    return json.dumps(_content(estimate), indent=2, sort_keys=True) + "\n"


def _content(estimate: Trained) -> dict[str, Any]:
    offer = estimate.offer
    return {
        "instance_type": offer.instance.instance_type,
        "nodes": estimate.nodes,
        "provider": offer.provider,
        "region": offer.region,
        "purchase": offer.purchase,
        "layouts": [laid(estimate_part) for estimate_part in estimate.layouts],
        "predicted": {
            metric_key: predicted(estimate_part)
            for metric_key, estimate_part in estimate.predicted.items()
        },
        "hours": words.significant(estimate.hours),
        "usd": money(estimate.expected_usd),
    }
