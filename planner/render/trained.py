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


def page(found: Trained) -> Page:
    """Return what the cluster is, its layouts, and how the job would run in the best."""
    told, kind = _content(found), found.offer.instance
    fleet = f"{found.nodes} x {kind.instance_type}  {kind.accelerators} x {kind.accelerator}"
    best = told["layouts"][0]
    end = f"ends within {days(told['hours'])} (90 %), {words.dollars(told['usd'])} "
    end += f"{told['purchase'].replace('_', ' ')} in {told['provider']} {told['region']}"
    return (
        Paragraph(fleet, "strong"),
        Paragraph(f"  {shape(best)} in {best['precision']}"),
        Paragraph(f"  {end}"),
        Table(
            ("predicted", ">value", ">90 % band", "basis"),
            tuple(rows(told["predicted"])),
        ),
        layouts(told["layouts"]),
    )


def document(found: Trained) -> str:
    """Return the prediction as JSON."""
    return json.dumps(_content(found), indent=2, sort_keys=True) + "\n"


def _content(found: Trained) -> dict[str, Any]:
    offer = found.offer
    return {
        "instance_type": offer.instance.instance_type,
        "nodes": found.nodes,
        "provider": offer.provider,
        "region": offer.region,
        "purchase": offer.purchase,
        "layouts": [laid(x) for x in found.layouts],
        "predicted": {
            name: predicted(x) for name, x in found.predicted.items()
        },
        "hours": words.significant(found.hours),
        "usd": money(found.usd),
    }
