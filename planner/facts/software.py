"""Accelerators for which the software of the machines is not built yet.

They are planned where a spec asks for them by name, so that their price can be compared. Nothing
is built of such a plan.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.facts.rule import rules_of

if TYPE_CHECKING:
    from planner.facts.rule import Rule


@cache
def missing_software(cloud: str, accelerator: str) -> Rule | None:
    """Return the rule that says what an accelerator lacks at a cloud, or None."""
    facts = {"accelerator": accelerator}
    return next(
        (rule for rule in rules_of("software", cloud) if rule.is_broken(facts)),
        None,
    )
