"""Which offers may be used at all: one named rule for each wish of the spec."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.spec.model import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.solve.offer import Instance, Offer
    from planner.spec.model import Spec

COMMITMENTS = {"1y": "reserved_1y", "3y": "reserved_3y"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its key in the spec; `allows` says whether an offer keeps it."""

    key: str
    wish: str
    allows: Callable[[Offer], bool]


def rules(spec: Spec, built: Callable[[Instance], str | None]) -> tuple[Rule, ...]:
    """Return the rules of a spec in the order in which they are reported.

    `built` says why no stack can be built yet for a machine type, or nothing.
    """
    where = spec.where
    allow, deny = where.accelerators.allow, where.accelerators.deny
    bought = purchases(spec)
    return (
        Rule("stack", "a stack that can be built", lambda o: built(o.instance) is None),
        Rule("where.clouds", ", ".join(where.clouds), lambda o: o.provider in where.clouds),
        Rule(
            "where.regions",
            ", ".join(where.regions) or "any",
            lambda o: not where.regions or _any(o.region, where.regions),
        ),
        Rule(
            "where.accelerators",
            _listed(allow, deny),
            lambda o: (not allow or _any(o.instance.accelerator, allow))
            and not _any(o.instance.accelerator, deny),
        ),
        Rule("buy", ", ".join(bought), lambda o: o.purchase in bought),
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


def kept(offers: Iterable[Offer], given: tuple[Rule, ...], skip: str = "") -> list[Offer]:
    """Return the offers that keep every rule, but for the one that is skipped."""
    checks = [r.allows for r in given if r.key != skip]
    return [offer for offer in offers if all(check(offer) for check in checks)]


def funnel(offers: Iterable[Offer], given: tuple[Rule, ...]) -> list[tuple[Rule, int]]:
    """Return how many offers are left after each rule in turn."""
    left, result = list(offers), []
    for rule in given:
        left = [offer for offer in left if rule.allows(offer)]
        result.append((rule, len(left)))
    return result


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)


def _listed(allow: tuple[str, ...], deny: tuple[str, ...]) -> str:
    words = [*allow, *(f"not {d}" for d in deny)]
    return ", ".join(words) or "any"
