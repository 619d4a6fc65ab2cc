"""The documents that rules are judged over, with numbers instead of the text of money."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

if TYPE_CHECKING:
    from planner.plan.part import Properties
    from planner.plan.types import Plan

# Amounts of a difference, which are text in its document.
AMOUNT_KEYS: Final = ("usd", "percent")


def rule_documents(plan: Plan, diff: Properties | None) -> Properties:
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
        documents["diff"] = _with_doubles(_with_amounts(diff))
    return documents


def _with_doubles(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _with_doubles(inner) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_with_doubles(inner) for inner in part]
    is_number = isinstance(part, int | float | Decimal)
    return float(part) if is_number and not isinstance(part, bool) else part


def _with_amounts(part: Any, key: str = "") -> Any:
    """Return a difference with numbers where its document has amounts as text."""
    if isinstance(part, dict):
        return {
            name: _with_amounts(inner, name) for name, inner in part.items()
        }
    if isinstance(part, list | tuple):
        return [_with_amounts(inner, key) for inner in part]
    is_amount = isinstance(part, str) and key.startswith(AMOUNT_KEYS)
    return Decimal(part) if is_amount else part
