"""Rules of a spec that decide which offers may be used."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cached_property
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from planner.cost.capacity_block import BLOCK_PURCHASE
from planner.facts.accelerator import is_named
from planner.facts.cloud_limit import timezone_name
from planner.facts.rule import rules_of
from planner.facts.software import is_asked_for, missing_software
from planner.market.mix import undominated
from planner.market.offer import (
    COMMITTED_MIX,
    FLEX_PURCHASE,
    MIXED_PURCHASE,
    OWNED_MIX,
    RESERVED_PURCHASE,
)
from planner.market.public_address import ADDRESS_KEY, takes_public_address
from planner.market.term import TERMS
from planner.spec.certificate import certificate_of
from planner.spec.encryption import customer_key
from planner.spec.model import Training
from planner.spec.network import (
    given_network,
    has_public_addresses,
    leaves_range_open,
    network_range,
)
from planner.spec.reservation import reservations_of, reserved_zones, zone_name
from planner.spec.schedule import parse_schedule
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.facts.rule import Phase
    from planner.market.offer import Instance, Offer
    from planner.spec.certificate import Certificate
    from planner.spec.encryption import CustomerKey
    from planner.spec.model import NetworkRule, Spec
    from planner.spec.network import GivenNetwork
    from planner.spec.reservation import Reservation


class OfferRule(Struct, frozen=True):
    """A rule, named by its key in the spec.

    `offer_part`  the part of an offer that the rule reads
    `allows`  whether a value of that part is allowed
    """

    key: str
    offer_part: Literal["instance", "region", "purchase"]
    allows: Callable[[Any], bool]


def _machine_rule(key: str, phase: Phase, **facts: Any) -> OfferRule:
    """Return the rule that machines break no rule of a phase of data/rules.csv.

    `facts` are known beside those of machines.
    """
    return OfferRule(
        key,
        "instance",
        lambda instance: (
            not any(
                rule.is_broken({**asdict(instance), **facts})
                for rule in rules_of(phase, instance.provider)
            )
        ),
    )


# What a cloud reserves when it is asked to, for as long as it is asked to.
RESERVABLE: Final = _machine_rule("buy.reserve", "reservation")
OWNED: Final = _machine_rule("buy.reservations", "owned")
TRAINABLE: Final = _machine_rule("train", "training")
ADDRESSABLE: Final = OfferRule(
    ADDRESS_KEY,
    "instance",
    lambda instance: takes_public_address(instance, spans_nodes=False),
)


def spec_rules(
    spec: Spec,
    unbuilt_reason: Callable[[Instance], str | None],
    *,
    resumes: bool,
    owns: bool = False,
) -> tuple[OfferRule, ...]:
    """Return the rules of a spec in the order in which they are reported.

    `unbuilt_reason` returns why no stack exists for a machine type, or None. `resumes` says
    that the workload goes on after an interruption, `owns` that its account pays for machines
    already.
    """
    where_spec = spec.where
    allowed_words = where_spec.accelerators.allow
    denied_words = where_spec.accelerators.deny
    purchase_options = allowed_purchases(spec, resumes=resumes, owns=owns)
    return (
        OfferRule("data sheet", "instance", _has_data_sheet),
        OfferRule(
            "stack",
            "instance",
            lambda instance: _is_planned(
                instance, unbuilt_reason(instance), allowed_words
            ),
        ),
        *_schedule_rules(spec.shutdown.schedule),
        OfferRule(
            "where.clouds",
            "instance",
            lambda instance: instance.provider in where_spec.clouds,
        ),
        OfferRule(
            "where.regions",
            "region",
            lambda region: (
                # An empty list allows all regions.
                not where_spec.regions
                or _matches_any(region, where_spec.regions)
            ),
        ),
        OfferRule(
            "where.accelerators",
            "instance",
            lambda instance: (
                (
                    not allowed_words
                    or _is_any(instance.accelerator, allowed_words)
                )
                # A denied accelerator stays out even when it is allowed too.
                and not _is_any(instance.accelerator, denied_words)
            ),
        ),
        *_network_rules(given_network(spec.network)),
        *_address_rules(spec.network),
        *_place_rules("endpoint.certificate", certificate_of(spec)),
        *_place_rules("encryption.key", customer_key(spec)),
        *_reservation_rules(reservations_of(spec.buy.reservations or ())),
        *([RESERVABLE] if spec.buy.reserve else []),
        *([TRAINABLE] if isinstance(spec, Training) else []),
        OfferRule(
            "buy", "purchase", lambda purchase: purchase in purchase_options
        ),
    )


def _network_rules(given: GivenNetwork | None) -> tuple[OfferRule, ...]:
    """Machines are where the network is that a spec names; no rule without one."""
    if given is None:
        return ()
    return (
        OfferRule(
            "network.id",
            "instance",
            lambda instance: instance.provider == given.cloud,
        ),
        OfferRule(
            "network.subnets",
            "region",
            lambda region: region in given.regions,
        ),
    )


def _address_rules(network: NetworkRule | None) -> tuple[OfferRule, ...]:
    """Interfaces of machines have no addresses of their network; a range that is open has none.

    Each takes a public address where the spec asks for that.
    """
    public_rules = (ADDRESSABLE,) if has_public_addresses(network) else ()
    if leaves_range_open(network):
        return public_rules
    own_range = IPv4Network(network_range(network))
    return (
        _machine_rule("network.range", "addresses", range=own_range),
        *public_rules,
    )


def _schedule_rules(schedule: str | None) -> tuple[OfferRule, ...]:
    """A cloud keeps a schedule in a time zone that it has a name for; no rule without one."""
    if schedule is None:
        return ()
    *_, timezone = parse_schedule(schedule)
    return (
        OfferRule(
            "shutdown.schedule",
            "instance",
            lambda instance: (
                timezone_name(instance.provider, timezone) is not None
            ),
        ),
    )


def allowed_purchases(
    spec: Spec, *, resumes: bool, owns: bool = False
) -> tuple[str, ...]:
    """Return the purchase options that a spec allows.

    auto adds spot for workloads that resume after an interruption; others break.
    """
    if spec.buy.block is not None:
        return (BLOCK_PURCHASE,)
    if spec.buy.flex_start:
        return (FLEX_PURCHASE,)
    if spec.buy.reserve:
        return (RESERVED_PURCHASE,)
    if spec.buy.spot == "only":
        return ("spot",)
    purchase_options = [*allowed_terms(spec)]
    # none: capacity without a commitment, that is on demand.
    if "none" in spec.buy.commit:
        purchase_options.insert(0, "on_demand")
    if "on_demand" in purchase_options and len(purchase_options) > 1:
        purchase_options.append(COMMITTED_MIX)
    if "on_demand" in purchase_options and (owns or spec.buy.owned is not None):
        purchase_options.append(OWNED_MIX)
    # Where nothing is sold on spot, or it costs more in all, everything is the base.
    if spec.buy.on_demand_base is not None:
        purchase_options.append(MIXED_PURCHASE)
    # A whole spot fleet can be reclaimed at once; runs can resume.
    elif spec.buy.spot == "auto" and resumes and not spec.buy.reservations:
        purchase_options.append("spot")
    return tuple(purchase_options)


def allowed_terms(spec: Spec) -> tuple[str, ...]:
    """Return the commitments that a spec allows, as ways to buy.

    Where machines on demand are allowed too, none outlasts the time to live of the stack.
    """
    ttl_s = spec.shutdown.ttl if "none" in spec.buy.commit else None
    return tuple(
        term.purchase
        for term in TERMS
        if term.word in spec.buy.commit
        and (
            ttl_s is None
            or term.months * HOURS_PER_MONTH * SECONDS_PER_HOUR <= ttl_s
        )
    )


def _place_rules(
    key: str, named: Certificate | CustomerKey | None
) -> tuple[OfferRule, ...]:
    """Certificates and keys are used where they are; no rule without one, or without a region."""
    if named is None:
        return ()
    return (
        OfferRule(
            key,
            "instance",
            lambda instance: instance.provider == named.cloud,
        ),
        OfferRule(
            key,
            "region",
            lambda region: named.region in ("", region),
        ),
    )


def _reservation_rules(
    reservations: tuple[Reservation, ...],
) -> tuple[OfferRule, ...]:
    """Machines are those that are reserved; no rule without a reservation."""
    if not reservations:
        return ()
    return (
        OWNED,
        OfferRule(
            "buy.reservations",
            "instance",
            lambda instance: any(
                (reserved.cloud, reserved.instance_type)
                == (instance.provider, instance.instance_type)
                for reserved in reservations
            ),
        ),
        OfferRule(
            "buy.reservations",
            "region",
            lambda region: any(
                reserved.is_in(region) for reserved in reservations
            ),
        ),
    )


class PlaceOrder(Struct, frozen=True):
    """Clouds and regions of a spec, the preferred first. A region may be a pattern.

    allowed       patterns of zones that may be used; all where none is named
    zones         those that have a subnet; all where none is named
    reservations  what machines are taken from; nothing where none is named
    """

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    def placed(self, offer: Offer) -> Offer | None:
        """Return an offer in the zones that it may be in, with its reservation; or nothing.

        Of several reservations it is the largest.
        """
        zones = tuple(
            zone
            for zone in offer.zones
            if (not self.zones or zone in self.zones)
            and (
                not self.allowed
                or _matches_any(zone_name(offer.region, zone), self.allowed)
            )
        )
        if (self.zones or self.allowed) and not zones:
            return None
        if not self.reservations:
            return replace(offer, place_rank=self.rank(offer), zones=zones)
        for reserved in self.reservations:
            if (
                reserved.cloud,
                reserved.instance_type,
            ) != offer.key[:2] or not reserved.is_in(offer.region):
                continue
            zone = reserved.zone_in(offer.region)
            if zone and zone not in zones:
                continue
            return replace(
                offer,
                place_rank=self.rank(offer),
                zones=reserved_zones(zone, zones),
                reservation=reserved,
                # An account has what is reserved for it already.
                quotas=(),
            )
        return None

    def rank(self, offer: Offer) -> tuple[int, int]:
        """Return the positions of an offer's cloud and region; what is not listed comes last."""
        region_matches = (
            fnmatchcase(offer.region, pattern) for pattern in self.regions
        )
        return (
            _first_match(offer.provider == cloud for cloud in self.clouds),
            _first_match(region_matches),
        )


def place_order(spec: Spec) -> PlaceOrder:
    """Return the order of a spec's clouds and regions, which decides between equal costs."""
    given = given_network(spec.network)
    return PlaceOrder(
        spec.where.clouds,
        spec.where.regions,
        spec.where.zones,
        given.zones if given else (),
        reservations_of(spec.buy.reservations or ()),
    )


def _first_match(matches: Iterable[bool]) -> int:
    """Return the index of the first match, or the number of them without one."""
    count = 0
    for is_match in matches:
        if is_match:
            break
        count += 1
    return count


class OfferFilter:
    """The offers of a catalog under the rules of a spec.

    Violations are cached by machine type and purchase option, and by region.

    counts_reclaims  whether a dearer region is a choice where spot is taken back less often
    counts_zones     whether it is one where machines are in another number of zones
    """

    def __init__(
        self,
        offer_groups: tuple[tuple[Offer, ...], ...],
        offer_rules: tuple[OfferRule, ...],
        order: PlaceOrder | None = None,
        *,
        counts_reclaims: bool = False,
        counts_zones: bool = False,
    ) -> None:
        self.order = order or PlaceOrder()
        self.counts_reclaims = counts_reclaims
        self.counts_zones = counts_zones
        self.offer_groups = offer_groups
        self.offer_rules = offer_rules
        self._instance_cache: dict[tuple[str, str, str], frozenset[str]] = {}
        self._region_cache: dict[str, frozenset[str]] = {}
        self._cheapest_cache: dict[str, tuple[Offer, ...]] = {}

    def cheapest(self, skipped_rule: str = "") -> list[Offer]:
        """Return the cheapest allowed region of each machine type and purchase.

        Of a mix it is each region than which no other one is as cheap in both ways, and where a
        zone may fail it is one for each number of zones. Of regions with the same price it is the
        one that the spec lists first.
        The rule `skipped_rule` is not applied. Performance and service prices are equal in all
        regions of the catalog, so only dominated offers are dropped.
        """
        cheapest_offers = self._cheapest_cache.get(skipped_rule)
        if cheapest_offers is None:
            cheapest_offers = self._cheapest_cache[skipped_rule] = tuple(
                self._find_cheapest({skipped_rule})
            )
        return list(cheapest_offers)

    def everywhere(self, skipped_rule: str = "") -> Iterator[Offer]:
        """Yield the allowed offers of all regions, and not only those of the cheapest.

        The rule `skipped_rule` is not applied.
        """
        ignored_rules = {skipped_rule}
        for offer_group in self.offer_groups:
            if not self._instance_violations(offer_group[0]) <= ignored_rules:
                continue
            for offer in offer_group:
                placed = self.order.placed(offer)
                if (
                    placed is not None
                    and self._region_violations(offer.region) <= ignored_rules
                ):
                    yield placed

    def _find_cheapest(self, ignored_rules: set[str]) -> Iterator[Offer]:
        for offer_group in self.offer_groups:
            # Machine type and purchase option are the same in a whole group.
            if not self._instance_violations(offer_group[0]) <= ignored_rules:
                continue
            # Groups are sorted by price: the first allowed region is cheapest.
            allowed_offers = (
                offer
                for offer in offer_group
                if self._region_violations(offer.region) <= ignored_rules
                and self.order.placed(offer) is not None
            )
            cheapest_offer = next(allowed_offers, None)
            # Where a quota or a reservation may have too few machines, the next region counts too.
            while cheapest_offer is not None and (
                cheapest_offer.quotas or self.order.reservations
            ):
                yield self.order.placed(cheapest_offer) or cheapest_offer
                cheapest_offer = next(allowed_offers, None)
            if cheapest_offer is None:
                continue
            if (
                cheapest_offer.mix is not None
                or self.counts_zones
                or (self.counts_reclaims and cheapest_offer.purchase == "spot")
            ):
                preferred_first = sorted(
                    (cheapest_offer, *allowed_offers), key=self.order.rank
                )
                yield from undominated(
                    [
                        self.order.placed(offer) or offer
                        for offer in preferred_first
                    ],
                    counts_zones=self.counts_zones,
                )
                continue
            # Those after it cost as much at least.
            least_usd_hour = cheapest_offer.usd_hour
            equal_offers = [
                offer
                for offer in allowed_offers
                if offer.usd_hour == least_usd_hour
            ]
            preferred = min(
                (cheapest_offer, *equal_offers), key=self.order.rank
            )
            yield self.order.placed(preferred) or preferred

    @property
    def allowed_count(self) -> int:
        """Number of offers that every rule allows."""
        return self.funnel[-1][1]

    @cached_property
    def funnel(self) -> tuple[tuple[str, int], ...]:
        """Rule keys in order, each with the number of offers left after it."""
        remaining_groups = self.offer_groups
        funnel_stages = []
        for rule in self.offer_rules:
            remaining_groups = self._allowed_groups(remaining_groups, rule)
            funnel_stages.append((rule.key, sum(map(len, remaining_groups))))
        return tuple(funnel_stages)

    def _allowed_groups(
        self, offer_groups: tuple[tuple[Offer, ...], ...], rule: OfferRule
    ) -> tuple[tuple[Offer, ...], ...]:
        """Return the offers that a rule allows, without groups of which none is left."""
        if rule.offer_part != "region":
            # Machine type and purchase option are the same in a whole group.
            return tuple(
                offer_group
                for offer_group in offer_groups
                if rule.key not in self._instance_violations(offer_group[0])
            )
        regional_groups = (
            tuple(
                offer
                for offer in offer_group
                if rule.key not in self._region_violations(offer.region)
            )
            for offer_group in offer_groups
        )
        return tuple(filter(None, regional_groups))

    def violations(self, offer: Offer) -> frozenset[str]:
        """Return the keys of the rules that an offer breaks."""
        return self._instance_violations(offer) | self._region_violations(
            offer.region
        )

    def _instance_violations(self, offer: Offer) -> frozenset[str]:
        instance = offer.instance
        purchase = offer.purchase
        instance_key = (instance.provider, instance.instance_type, purchase)
        violations = self._instance_cache.get(instance_key)
        if violations is None:
            violations = self._violated_keys(
                "instance", instance
            ) | self._violated_keys("purchase", purchase)
            self._instance_cache[instance_key] = violations
        return violations

    def _region_violations(self, region: str) -> frozenset[str]:
        violations = self._region_cache.get(region)
        if violations is None:
            violations = self._region_cache[region] = self._violated_keys(
                "region", region
            )
        return violations

    def _violated_keys(
        self, offer_part: str, part_value: Any
    ) -> frozenset[str]:
        return frozenset(
            rule.key
            for rule in self.offer_rules
            if rule.offer_part == offer_part and not rule.allows(part_value)
        )


def _has_data_sheet(instance: Instance) -> bool:
    """Return whether bandwidth and bf16 rate of an accelerator are known."""
    return bool(instance.chip.bandwidth_gb_s and instance.chip.bf16_tflops)


def _is_planned(
    instance: Instance, unbuilt: str | None, allowed_words: tuple[str, ...]
) -> bool:
    """Whether a plan may have a machine for which no stack is built for a reason, if there is one.

    Where only the software of its accelerator is missing, a spec that asks for it compares it.
    """
    if unbuilt is None:
        return True
    missing = missing_software(instance.provider, instance.accelerator)
    return (
        missing is not None
        and missing.told == unbuilt
        and is_asked_for(instance.provider, instance.accelerator, allowed_words)
    )


def _is_any(accelerator: str, words: tuple[str, ...]) -> bool:
    return any(is_named(accelerator, word) for word in words)


def _matches_any(candidate: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(candidate, pattern) for pattern in patterns)
