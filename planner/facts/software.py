"""Accelerators for which the software of the machines is not built yet.

They are planned where a spec asks for them, so that their price can be compared. Nothing is built
of such a plan.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.facts.accelerator import accelerators, is_named
from planner.facts.rule import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.facts.rule import Rule


@cache
def missing_software(cloud: str, accelerator: str) -> Rule | None:
    """Return the rule that says what an accelerator lacks at a cloud, or None."""
    facts = {"accelerator": accelerator}
    return next(
        (rule for rule in rules_of("software", cloud) if rule.is_broken(facts)),
        None,
    )


def is_asked_for(
    cloud: str, accelerator: str, allowed_words: Iterable[str]
) -> bool:
    """Whether words of a spec ask for an accelerator that lacks software at a cloud.

    A pattern asks for it where all that it means lack some: one that means others too is no wish
    for what cannot be built.
    """
    return any(
        is_named(accelerator, word)
        and (
            "*" not in word
            or all(
                missing_software(cloud, name)
                for name in accelerators()
                if is_named(name, word)
            )
        )
        for word in allowed_words
    )
