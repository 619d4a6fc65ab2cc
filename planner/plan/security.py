"""What is not safe of what a plan builds, and which of it the spec accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.facts.rule import accepting_keys, broken_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.facts.rule import Rule, Severity
    from planner.plan.types import Plan

# Those that a check does not let pass.
GRAVE: Final[tuple[Severity, ...]] = ("high", "medium")
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low")


class Waiver(Struct, frozen=True):
    """A finding that somebody accepts.

    until  its last day, such as 2027-03-01; empty for as long as the spec has the key
    key    of the spec that asks for what is found; empty where a waiver of the spec accepts it
    """

    rule: str
    until: str
    reason: str
    key: str = ""

    @property
    def told(self) -> str:
        """Who accepts it, and until when."""
        if self.key:
            return f"accepted by {self.key}: {self.reason}"
        return f"accepted until {self.until}: {self.reason}"

    def holds(self, today: str) -> bool:
        """Whether it is good on a day."""
        return bool(self.key) or today <= self.until

    @classmethod
    def parse(cls, text: str) -> Waiver:
        """Read one as it stands in a spec: RULE until DATE: reason."""
        head, _, reason = text.partition(": ")
        rule, _, until = head.partition(" until ")
        return cls(rule, until, reason)


class Finding(Struct, frozen=True, kw_only=True):
    """A rule of security that a plan breaks.

    resources  names of those that break it
    waiver     who accepts it; none: nobody does
    """

    rule: Rule
    resources: tuple[str, ...]
    waiver: Waiver | None = None

    def is_accepted(self, today: str) -> bool:
        """Whether somebody accepts it on a day."""
        return self.waiver is not None and self.waiver.holds(today)

    def fails(self, today: str) -> bool:
        """Whether a check does not let it pass on a day."""
        return self.rule.severity in GRAVE and not self.is_accepted(today)


def security_findings(plan: Plan) -> tuple[Finding, ...]:
    """Return what a plan or one of its fallbacks builds that is not safe, the gravest first."""
    waivers = waivers_of(plan.spec.normalized)
    broken: dict[str, tuple[Rule, list[str]]] = {}
    for graph in (plan.graph, *(other.graph for other in plan.fallbacks)):
        parts = (
            (resource.type, resource.name, resource.inputs)
            for resource in graph.resources
        )
        for rule, name in broken_rules("security", graph.provider, parts):
            names = broken.setdefault(rule.id, (rule, []))[1]
            if name not in names:
                names.append(name)
    found = [
        Finding(rule=rule, resources=tuple(names), waiver=waivers.get(rule.id))
        for rule, names in broken.values()
    ]
    return tuple(
        sorted(
            found,
            key=lambda finding: (
                SEVERITIES.index(finding.rule.severity),
                finding.rule.id,
            ),
        )
    )


def waivers_of(normalized: Mapping[str, Any]) -> dict[str, Waiver]:
    """Return the waivers of a spec by rule; of several, the one that holds longest.

    A key that asks for what a rule finds is one, which holds as long as the spec has it.
    """
    texts: Sequence[str] = normalized.get("waivers") or ()
    waivers = sorted(
        (Waiver.parse(text) for text in texts), key=lambda waiver: waiver.until
    )
    asked = (
        Waiver(rule, "", "the spec asks for it", key)
        for rule, key in accepting_keys().items()
        if _is_true(normalized, key)
    )
    return {waiver.rule: waiver for waiver in (*waivers, *asked)}


def _is_true(normalized: Mapping[str, Any], key: str) -> bool:
    """Whether a key of a spec is true, such as network.public_addresses."""
    block_name, _, name = key.partition(".")
    block = normalized.get(block_name) or {}
    return block.get(name) is True
