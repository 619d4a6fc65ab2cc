"""Which offers may be used at all: one named rule for each wish of the spec."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from planner.spec.model import Batch, Training

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.offer import Instance, Offer
    from planner.spec.model import Spec

COMMITMENTS: Final = {"1y": "reserved_1y", "3y": "reserved_3y"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its key in the spec.

    It looks at one part of an offer: its machine type, its region or its purchase option.
    """

    key: str
    part: Literal["instance", "region", "purchase"]
    allows: Callable[[Any], bool]


def rules(
    spec: Spec, built: Callable[[Instance], str | None]
) -> tuple[Rule, ...]:
    """Return the rules of a spec in the order in which they are reported.

    `built` says why no stack can be built yet for a machine type, or nothing.
    """
    where = spec.where
    allow, deny = where.accelerators.allow, where.accelerators.deny
    bought = purchases(spec)
    return (
        Rule("data sheet", "instance", _known),
        Rule("stack", "instance", lambda machine: built(machine) is None),
        Rule(
            "where.clouds",
            "instance",
            lambda machine: machine.provider in where.clouds,
        ),
        Rule(
            "where.regions",
            "region",
            lambda r: not where.regions or _any(r, where.regions),
        ),
        Rule(
            "where.accelerators",
            "instance",
            lambda machine: (
                (not allow or _any(machine.accelerator, allow))
                and not _any(machine.accelerator, deny)
            ),
        ),
        Rule("buy", "purchase", lambda purchase: purchase in bought),
    )


def purchases(spec: Spec) -> tuple[str, ...]:
    """Return the purchase options that a spec allows.

    spot auto means spot where an interruption breaks no promise: a batch or training run is
    resumed, a service or a person's workspace is not.
    """
    if spec.buy.spot == "only":
        return ("spot",)
    found = [COMMITMENTS[c] for c in spec.buy.commit if c != "none"]
    if "none" in spec.buy.commit:
        found.insert(0, "on_demand")
    if spec.buy.spot == "auto" and isinstance(spec, Batch | Training):
        found.append("spot")
    return tuple(found)


class Market:
    """The offers of a catalog under the rules of a spec.

    Each rule is asked once for each machine type, region or purchase option.
    """

    def __init__(
        self, kinds: tuple[tuple[Offer, ...], ...], given: tuple[Rule, ...]
    ) -> None:
        self.kinds, self.given = kinds, given
        self._kind: dict[tuple[int, str], frozenset[str]] = {}
        self._region: dict[str, frozenset[str]] = {}

    def best(self, skip: str = "") -> list[Offer]:
        """Return the cheapest region of each machine type and purchase, skipping one rule.

        Speed is the same in every region, and so is the price of everything else in the catalog:
        that drops only dominated offers.
        """
        ignored = {skip}
        found = []
        for kind in self.kinds:
            if not self._of_kind(kind[0]) <= ignored:
                continue
            for offer in kind:
                if self._region_of(offer.region) <= ignored:
                    found.append(offer)
                    break
        return found

    @property
    def allowed(self) -> int:
        """How many offers keep every rule."""
        return self.funnel[-1][1]

    @cached_property
    def funnel(self) -> tuple[tuple[str, int], ...]:
        """How many offers are left after each rule in turn."""
        counts: Counter[frozenset[str]] = Counter()
        for kind in self.kinds:
            machine = self._of_kind(
                kind[0]
            )  # the same for all offers of a kind
            for region, n in Counter(offer.region for offer in kind).items():
                counts[machine | self._region_of(region)] += n
        result = []
        applied: set[str] = set()
        for rule in self.given:
            applied.add(rule.key)
            left = sum(
                n for broken, n in counts.items() if applied.isdisjoint(broken)
            )
            result.append((rule.key, left))
        return tuple(result)

    def breaks(self, offer: Offer) -> frozenset[str]:
        """Return the keys of the rules that an offer breaks."""
        return self._of_kind(offer) | self._region_of(offer.region)

    def _of_kind(self, offer: Offer) -> frozenset[str]:
        machine, purchase = offer.instance, offer.purchase
        found = self._kind.get((id(machine), purchase))
        if found is None:
            found = self._judge("instance", machine) | self._judge(
                "purchase", purchase
            )
            self._kind[id(machine), purchase] = found
        return found

    def _region_of(self, region: str) -> frozenset[str]:
        found = self._region.get(region)
        if found is None:
            found = self._region[region] = self._judge("region", region)
        return found

    def _judge(self, part: str, value: Any) -> frozenset[str]:
        return frozenset(
            r.key for r in self.given if r.part == part and not r.allows(value)
        )


def _known(machine: Instance) -> bool:
    """Whether enough is known of an accelerator to say how fast it is."""
    return bool(machine.chip.bandwidth_gb_s and machine.chip.bf16_tflops)


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)
