"""The forms of the documents that rules name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.plan.canonical import plan_schema
from planner.plan.policy.shape import OPEN, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def document_shapes() -> Mapping[str, Shape]:
    """Return the form of every document that a rule may name.

    plan   the plan document
    diff   the difference to another plan
    graph  the resources of the plan
    spec   the spec of the plan with its defaults; it depends on the kind, so it is open
    """
    schema = plan_schema()
    plan = Shape(schema, schema["$defs"])
    return {
        "plan": plan,
        "diff": OPEN,
        "graph": plan.member("graph"),
        "spec": OPEN,
    }
