"""Which offers may be used at all: one named rule for each wish of the spec."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from planner.facts.accelerator import accelerators
from planner.spec.model import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.offer import Instance, Offer
    from planner.spec.model import Spec

COMMITMENTS: Final = {"1y": "reserved_1y", "3y": "reserved_3y"}


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
        Rule("data sheet", lambda o: o.instance.accelerator, _sheet),
        Rule("stack", lambda o: built(o.instance) or "", lambda reason: not reason),
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


class Market:
    """The offers of a catalog under the rules of a spec."""

    def __init__(self, ranked: tuple[Offer, ...], given: tuple[Rule, ...]) -> None:
        self.given = given
        self._judged = _judge(ranked, given)

    def best(self, skip: str = "") -> list[Offer]:
        """Return the cheapest region of each machine type and purchase, skipping one rule.

        Speed is the same in every region, and so is the price of everything else in the catalog:
        that drops only dominated offers.
        """
        found: dict[tuple[str, str, str], Offer] = {}
        for offer, broken in self._judged:
            if not broken or broken == (skip,):
                kind = offer.instance
                found.setdefault((kind.provider, kind.instance_type, offer.purchase), offer)
        return list(found.values())

    @property
    def allowed(self) -> int:
        """How many offers keep every rule."""
        return sum(not broken for _, broken in self._judged)

    @property
    def funnel(self) -> tuple[tuple[str, int], ...]:
        """How many offers are left after each rule in turn."""
        counts = Counter(broken for _, broken in self._judged)
        result = []
        applied: set[str] = set()
        for rule in self.given:
            applied.add(rule.key)
            left = sum(n for broken, n in counts.items() if applied.isdisjoint(broken))
            result.append((rule.key, left))
        return tuple(result)

    def breaks(self, offer: Offer) -> list[str]:
        """Return the keys of the rules that an offer breaks."""
        return [rule.key for rule in self.given if not rule.allows(rule.part(offer))]


def _judge(
    offers: tuple[Offer, ...], given: tuple[Rule, ...]
) -> list[tuple[Offer, tuple[str, ...]]]:
    """Every offer with the keys of the rules that it breaks; equal parts are judged once."""
    broken: list[tuple[str, ...]] = [()] * len(offers)
    for rule in given:
        verdicts: dict[str, bool] = {}
        for index, offer in enumerate(offers):
            part = rule.part(offer)
            if part not in verdicts:
                verdicts[part] = rule.allows(part)
            if not verdicts[part]:
                broken[index] = (*broken[index], rule.key)
    return list(zip(offers, broken, strict=True))


def _sheet(name: str) -> bool:
    """Whether enough is known of an accelerator to say how fast it is."""
    chip = accelerators()[name]
    return bool(chip.bandwidth_gb_s and chip.bf16_tflops)


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)
