"""Networks of a spec: that of the stack, or one that there is already."""

from __future__ import annotations

import re
from functools import cache
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.facts.cloud import clouds
from planner.facts.rule import rules_of
from planner.spec.certificate import machine_certificate
from planner.spec.model import (
    OWN_RANGE,
    Batch,
    Inference,
    NetworkRule,
    Workspace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.facts.private_endpoint import EndpointNeed
    from planner.spec.model import Spec

# What a network of its own has, as the pattern of its range says too.
OWN_PREFIX_BITS: Final = 16
# The order in which stacks choose from 10.0.0.0/8: most other networks have the low addresses.
SECOND_NUMBERS: Final = (*range(42, 256), *range(42))


class GivenNetwork(Struct, frozen=True):
    """A network that there is already.

    subnets  each its name, and the zone or the region that it is in
    """

    cloud: str
    network_id: str
    subnets: tuple[tuple[str, str], ...]

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the subnets, each once; none on clouds whose subnets are of a region."""
        if clouds()[self.cloud].subnet_place != "zone":
            return ()
        return tuple(dict.fromkeys(place for _, place in self.subnets))

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of the subnets, each once."""
        # The name of a zone is that of its region and a letter.
        cut = -1 if clouds()[self.cloud].subnet_place == "zone" else None
        return tuple(dict.fromkeys(place[:cut] for _, place in self.subnets))


def given_network(network: NetworkRule | None) -> GivenNetwork | None:
    """Return the network that a spec names; nothing where the stack has its own."""
    if network is None or network.id is None:
        return None
    cloud = next(
        name
        for name, facts in clouds().items()
        if re.fullmatch(facts.network_form, network.id)
    )
    places = (subnet.partition("@") for subnet in network.subnets)
    return GivenNetwork(
        cloud, network.id, tuple((name, place) for name, _, place in places)
    )


def network_range(network: NetworkRule | None) -> str:
    """Return the addresses that the nodes of a spec are in."""
    return (network.range if network else None) or OWN_RANGE


def endpoint_needs(
    spec: Spec, *, has_files: bool = False
) -> frozenset[EndpointNeed]:
    """Return what machines ask their cloud for by private endpoints.

    Nothing where the spec asks for no such endpoints. `has_files` says that a file system stands
    beside them.
    """
    if spec.network is None or not spec.network.private_endpoints:
        return frozenset()
    needs: set[EndpointNeed] = {"always", "logs"}
    if isinstance(spec, Workspace):
        needs.add("disks")
    if has_files:
        needs.add("files")
    token = spec.model.token if isinstance(spec, Inference | Batch) else None
    endpoint = spec.endpoint if isinstance(spec, Inference) else None
    api_key = endpoint.api_key if endpoint is not None else None
    if token or api_key or machine_certificate(spec):
        needs.add("secrets")
    return frozenset(needs)


def has_public_addresses(network: NetworkRule | None) -> bool:
    """Whether machines go out by addresses of their own while they run, instead of by a NAT."""
    return network is not None and network.public_addresses


def leaves_range_open(network: NetworkRule | None) -> bool:
    """Whether a stack has a network of its own, and its spec does not say of which addresses."""
    return network is None or (network.id is None and network.range is None)


def chosen_range(network: NetworkRule | None, taken: Iterable[str]) -> str:
    """Return the first range that no cloud refuses, no other stack has, and no peer is in.

    A peer that holds all ranges, such as 10.0.0.0/8, is everything that a company has, and no
    network of its own. When nothing is free, or nothing is open, the first range of all.
    """
    if not leaves_range_open(network):
        return OWN_RANGE
    taken_ranges = tuple(taken)
    peers = [
        IPv4Network(text) for text in (network.peer_cidrs if network else ())
    ]
    narrow_peers = [
        peer
        for peer in peers
        if not all(peer.overlaps(own_range) for own_range in _usable_ranges())
    ]
    for own_range in _usable_ranges():
        if not overlaps_any(str(own_range), taken_ranges) and not any(
            peer.overlaps(own_range) for peer in narrow_peers
        ):
            return str(own_range)
    return OWN_RANGE


def _usable_ranges() -> Iterator[IPv4Network]:
    """Yield the ranges that a stack may have on every cloud, for it may move."""
    for second in SECOND_NUMBERS:
        own_range = IPv4Network(f"10.{second}.0.0/{OWN_PREFIX_BITS}")
        if _is_usable(own_range):
            yield own_range


# Most stacks take the first one: the others are looked at when they are asked for.
@cache
def _is_usable(own_range: IPv4Network) -> bool:
    network = {
        "range": own_range,
        "is_given": False,
        "kind": "",
        "is_shared": False,
    }
    return not any(
        rule.is_broken(network)
        for cloud in clouds()
        for rule in rules_of("network", cloud)
    ) and not any(
        condition.path == "range" and condition.holds({"range": own_range}, {})
        for cloud in clouds()
        for rule in rules_of("addresses", cloud)
        for condition in rule.conditions
    )


def overlaps_any(own_range: str, others: Iterable[str]) -> bool:
    """Whether a range has an address that is in another one too."""
    network = IPv4Network(own_range)
    return any(network.overlaps(IPv4Network(other)) for other in others)


def with_range(spec: Spec, own_range: str) -> Spec:
    """Return a spec with the addresses of its own network, where it leaves them open."""
    if not leaves_range_open(spec.network):
        return spec
    network = spec.network or NetworkRule()
    return replace(spec, network=replace(network, range=own_range))


def network_problems(spec: Spec) -> Iterator[Problem]:
    """Yield what is wrong of the network of a spec."""
    network = spec.network
    if network is None:
        return
    given = given_network(network)
    yield from _given_problems(network, given, spec.where.clouds)
    try:
        own_range = IPv4Network(network_range(network))
    except ValueError:
        yield _range_problem(network, "network.range", str(network.range))
        return
    if given is None and own_range.prefixlen != OWN_PREFIX_BITS:
        yield Problem(
            code="network",
            message=f"network.range: {own_range} is not of 65,536 addresses",
            cause="the network that a stack makes has as many",
            place=network.place,
            next_step="write one that ends in .0.0/16; of a network that there is, its id too",
        )
    yield from _rule_problems(spec, own_range, given)
    yield from _peer_problems(network, own_range, given)


def _given_problems(
    network: NetworkRule,
    given: GivenNetwork | None,
    allowed_clouds: tuple[str, ...],
) -> Iterator[Problem]:
    """Yield what a network that there is lacks, or has in vain."""
    if given is None:
        if network.subnets:
            yield Problem(
                code="network",
                message="network.subnets are those of a network that there is",
                place=network.place,
                next_step="name it: network.id",
            )
        return
    for key, value in (("subnets", network.subnets), ("range", network.range)):
        if not value:
            yield Problem(
                code="missing-key",
                message=f"network.{key} is missing: a plan looks nothing up in an account",
                place=network.place,
                next_step="write subnets: [NAME@PLACE] and range: 10.20.0.0/20, the addresses "
                "of the subnets",
            )
    if given.cloud not in allowed_clouds:
        yield Problem(
            code="network",
            message=f"network.id is of {given.cloud}, which where.clouds leaves out",
            place=network.place,
            next_step=f"allow it: where: {{clouds: [{given.cloud}]}}",
        )
    if not given.zones and len(given.subnets) > 1:
        yield Problem(
            code="network",
            message=f"network.subnets: machines on {given.cloud} are in one subnet",
            cause="a subnet is in all zones of its region there",
            place=network.place,
            next_step="name the one for the nodes",
        )
    elif len(given.regions) > 1:
        yield Problem(
            code="network",
            message=f"network.subnets are in {len(given.regions)} regions",
            cause=", ".join(given.regions),
            place=network.place,
            next_step="a stack is in one region: name subnets of one",
        )


def _rule_problems(
    spec: Spec, own_range: IPv4Network, given: GivenNetwork | None
) -> Iterator[Problem]:
    """Yield the rules that the network of a spec breaks on a cloud that it allows."""
    allowed_clouds = (given.cloud,) if given else spec.where.clouds
    facts = {
        "range": own_range,
        "is_given": given is not None,
        "kind": type(spec).__name__,
        "is_shared": bool(
            isinstance(spec, Inference)
            and spec.endpoint is not None
            and spec.endpoint.share
        ),
    }
    broken_rules = {
        rule.id: rule
        for cloud in allowed_clouds
        for rule in rules_of("network", cloud)
        if rule.is_broken(facts)
    }
    for rule in broken_rules.values():
        yield Problem(
            code=rule.id,
            message=f"network: {rule.reason}",
            place=spec.network.place if spec.network else None,
            cause=f"{own_range}: {rule.when}",
            next_step=rule.remedy,
        )


def refuse_inner_peers(network: NetworkRule | None, own_range: str) -> None:
    """Raise SpecError for peers with addresses of the range that a stack has already."""
    if network is None:
        return
    problems = [
        Problem(
            code="network",
            message=f"network.peer_cidrs: {peer_cidr} is in the network of the stack itself",
            cause=f"the stack stands with the addresses {own_range}",
            place=network.place,
            next_step="let a new stack have another name: it takes addresses beside its peers",
        )
        for peer_cidr in network.peer_cidrs
        if IPv4Network(peer_cidr).subnet_of(IPv4Network(own_range))
    ]
    if problems:
        raise SpecError(*problems)


def _peer_problems(
    network: NetworkRule, own_range: IPv4Network, given: GivenNetwork | None
) -> Iterator[Problem]:
    """Yield peers that are none, or that are in the network of the stack itself."""
    for peer_cidr in network.peer_cidrs:
        try:
            peer_range = IPv4Network(peer_cidr)
        except ValueError:
            yield _range_problem(network, "network.peer_cidrs", peer_cidr)
            continue
        # A wider range, such as 10.0.0.0/8, is everything that a company has.
        if (
            given is None
            and network.range is not None
            and peer_range.subnet_of(own_range)
        ):
            yield Problem(
                code="network",
                message=f"network.peer_cidrs: {peer_cidr} is in the network of the stack itself",
                place=network.place,
                next_step="give the stack other addresses: network: {range: 10.50.0.0/16}",
            )


def _range_problem(network: NetworkRule, key: str, text: str) -> Problem:
    return Problem(
        code="value",
        message=f"{key}: {text} is no range of addresses",
        place=network.place,
        next_step="write the first address of the range, such as 10.20.0.0/16",
    )
