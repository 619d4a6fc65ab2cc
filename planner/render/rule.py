"""A rule as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.facts.rule import EVERY_CLOUD, PHASES
from planner.render.page import LINE_WIDTH, Paragraph

if TYPE_CHECKING:
    from planner.facts.rule import Rule
    from planner.render.page import Page


def rule_page(rule: Rule) -> Page:
    """Say what a rule refuses, on which cloud, why, what helps, and where it is from."""
    cloud = "every cloud" if rule.cloud == EVERY_CLOUD else rule.cloud
    lines = [
        ("cloud", cloud),
        ("when", when_text(rule)),
        ("then", PHASES[rule.phase]),
        ("remedy", rule.remedy),
        ("source", f"{rule.source} ({rule.as_of})"),
    ]
    return (
        Paragraph(f"{rule.id}: {rule.reason}", "strong", LINE_WIDTH),
        *(
            Paragraph(f"  {title:<8}{text}", "", LINE_WIDTH)
            for title, text in lines
        ),
    )


def when_text(rule: Rule) -> str:
    """Return when a rule is broken, with the number of a limit that it names."""
    if rule.limit is None:
        return rule.when
    return f"{rule.conditions[0].path} above {rule.limit}"
