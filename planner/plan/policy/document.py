"""The documents that rules are judged over, with numbers instead of the text of money."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

if TYPE_CHECKING:
    from planner.plan.diff_document import SpecDiff
    from planner.plan.part import Properties
    from planner.plan.types import Plan


def rule_documents(plan: Plan, diff: SpecDiff | None) -> Properties:
    """Return the documents of a plan by the names that rules have for them.

    Every number is a double, so that rules need not tell 8 and 8.0 apart. `diff` is the
    difference to another plan, where there is one.
    """
    document: Properties = _with_doubles(
        to_builtins(plan, builtin_types=(Decimal,))
    )
    documents = {
        "plan": document,
        "graph": document["graph"],
        "spec": document["spec"]["normalized"],
    }
    if diff is not None:
        documents["diff"] = _with_doubles(
            to_builtins(diff, builtin_types=(Decimal,))
        )
    return documents


def _with_doubles(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _with_doubles(inner) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_with_doubles(inner) for inner in part]
    is_number = isinstance(part, int | float | Decimal)
    return float(part) if is_number and not isinstance(part, bool) else part
