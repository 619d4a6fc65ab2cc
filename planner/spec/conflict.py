"""Keys of a spec that exclude each other, by the rules of data/rules.csv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.errors import Problem
from planner.facts.rule import EVERY_CLOUD, rules_of
from planner.spec.plain import plain_values

if TYPE_CHECKING:
    from planner.errors import Place
    from planner.spec.model import Spec


def conflict_problems(spec: Spec) -> list[Problem]:
    """Return a rule that each key breaks, the first one where there are several.

    A key is that of the first condition of a rule; what it excludes, the others name.
    """
    facts: dict[str, Any] = {
        **plain_values(spec),
        "kind": type(spec).__name__,
    }
    broken_rules = [
        rule for rule in rules_of("spec", EVERY_CLOUD) if rule.is_broken(facts)
    ]
    first_rules = {
        rule.conditions[0].path: rule for rule in reversed(broken_rules)
    }
    return [
        Problem(
            code=rule.id,
            message=rule.reason,
            place=_place_of(spec, path),
            next_step=rule.remedy,
        )
        for path, rule in first_rules.items()
    ]


def _place_of(spec: Spec, path: str) -> Place | None:
    """Return where a key stands, or the block around it."""
    place = spec.place
    value: Any = spec
    for key in path.split("."):
        value = getattr(value, key, None)
        place = getattr(value, "place", None) or place
    return place
