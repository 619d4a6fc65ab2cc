"""Which offers may be used at all: one named rule for each wish of the spec."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.spec.model import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.solve.offer import Instance, Offer
    from planner.spec.model import Spec

COMMITMENTS: Final = {"1y": "reserved_1y", "3y": "reserved_3y"}


Judged: TypeAlias = "list[tuple[Offer, tuple[str, ...]]]"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its key in the spec: which part of an offer it looks at, and what it allows."""

    key: str
    part: Callable[[Offer], str]
    allows: Callable[[str], bool]


def rules(spec: Spec, built: Callable[[Instance], str | None]) -> tuple[Rule, ...]:
    """Return the rules of a spec in the order in which they are reported.

    `built` says why no stack can be built yet for a machine type, or nothing.
    """
    where = spec.where
    allow, deny = where.accelerators.allow, where.accelerators.deny
    bought = purchases(spec)
    return (
        Rule("stack", lambda o: "" if built(o.instance) is None else "no", lambda p: not p),
        Rule("where.clouds", lambda o: o.provider, lambda p: p in where.clouds),
        Rule(
            "where.regions",
            lambda o: o.region,
            lambda p: not where.regions or _any(p, where.regions),
        ),
        Rule(
            "where.accelerators",
            lambda o: o.instance.accelerator,
            lambda p: (not allow or _any(p, allow)) and not _any(p, deny),
        ),
        Rule("buy", lambda o: o.purchase, lambda p: p in bought),
    )


def purchases(spec: Spec) -> tuple[str, ...]:
    """Return the purchase options that a spec allows.

    spot auto means spot where an interruption breaks no promise: a batch run is resumed, a
    service or a person's workspace is not.
    """
    if spec.buy.spot == "only":
        return ("spot",)
    found = [COMMITMENTS[c] for c in spec.buy.commit if c != "none"]
    if "none" in spec.buy.commit:
        found.insert(0, "on_demand")
    if spec.buy.spot == "auto" and isinstance(spec, Batch):
        found.append("spot")
    return tuple(found)


def judge(offers: Iterable[Offer], given: tuple[Rule, ...]) -> Judged:
    """Return every offer with the keys of the rules that it breaks."""
    checks = [(rule.key, rule.part, cache(rule.allows)) for rule in given]
    return [
        (offer, tuple(key for key, part, allows in checks if not allows(part(offer))))
        for offer in offers
    ]


def kept(judged: Judged, skip: str = "") -> list[Offer]:
    """Return the offers that break no rule, but for the one that is skipped."""
    return [offer for offer, broken in judged if not broken or broken == (skip,)]


def funnel(judged: Judged, given: tuple[Rule, ...]) -> list[tuple[str, int]]:
    """Return how many offers are left after each rule in turn."""
    result, applied = [], set()
    for rule in given:
        applied.add(rule.key)
        result.append((rule.key, sum(applied.isdisjoint(broken) for _, broken in judged)))
    return result


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)
