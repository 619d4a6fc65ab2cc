"""The files of one's own that stand beside specs: what each of them may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.market.on_premises import ON_PREMISES_FILE
from planner.market.own_prices import PRICES_FILE
from planner.market.owned import OWNED_FILE
from planner.plan.budget import BUDGETS_FILE
from planner.plan.policy.rule import POLICY_FILE

if TYPE_CHECKING:
    from planner.spec.field import Block, JsonSchema

OWN_FILES: Final[dict[str, Block]] = {
    "prices": PRICES_FILE,
    "owned": OWNED_FILE,
    "budgets": BUDGETS_FILE,
    "on_premises": ON_PREMISES_FILE,
    "policy": POLICY_FILE,
}


def file_schema(name: str) -> JsonSchema:
    """Return the JSON Schema (draft 2020-12) of one of these files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tonnage:schema:{name}:v1",
        "title": f"tonnage {name}",
        **OWN_FILES[name].schema(),
    }
