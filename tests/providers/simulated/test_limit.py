"""Limits of zones, compared with dealing machines out one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.facts.cloud import clouds
from providers.base import NodeGroup, NodeLimit
from providers.simulated.limit import capacity_refusal
from providers.simulated.world import default_world

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
KEY = ("aws", "us-east-1", "g6.xlarge", "on_demand")


def group(nodes: int, *zones: str) -> NodeGroup:
    return NodeGroup(KEY, nodes, zones=zones)


def zone_limit(
    zone: str, amount: int, machine_type: str = "g6.xlarge"
) -> NodeLimit:
    return NodeLimit("aws", "*", machine_type, "*", amount, zone=zone)


def refused(
    limits: list[NodeLimit], wanted: NodeGroup, *others: NodeGroup
) -> bool:
    world = replace(default_world(), capacity=tuple(limits))
    refusal = capacity_refusal(world, wanted, others)
    assert refusal is None or refusal[0] == clouds()["aws"].capacity_code
    return refusal is not None


@given(
    amounts=st.dictionaries(st.sampled_from(ZONES), st.integers(0, 5)),
    zones=st.sets(st.sampled_from(ZONES), min_size=1),
    nodes=st.integers(0, 16),
)
def test_a_group_gets_what_its_zones_have_together(
    amounts, zones, nodes
) -> None:
    left = {zone: amounts.get(zone, nodes) for zone in zones}
    for _ in range(nodes):
        zone = max(left, key=lambda name: left[name])
        left[zone] -= 1
    limits = [zone_limit(zone, amount) for zone, amount in amounts.items()]
    assert refused(limits, group(nodes, *zones)) == (min(left.values()) < 0)


def test_what_runs_in_the_same_zones_is_used_up() -> None:
    limits = [zone_limit("*a", 2), zone_limit("*b", 1)]
    a, b = ZONES[:2]
    assert not refused(limits, group(2, a, b), group(1, a))
    assert refused(limits, group(3, a, b), group(1, a))
    # Elsewhere, or in more zones than these.
    assert not refused(limits, group(3, a, b), group(9, ZONES[2]))
    assert not refused(limits, group(2, a), group(1, a, b))


def test_the_least_of_the_rows_of_a_zone_counts() -> None:
    limits = [zone_limit("us-*", 4), zone_limit("us-east-1a", 1)]
    assert refused(limits, group(2, ZONES[0]))
    assert not refused(limits, group(5, *ZONES[:2]))
    assert refused(limits, group(6, *ZONES[:2]))


def test_other_machines_and_groups_of_no_zone_are_not_meant() -> None:
    assert not refused([zone_limit("us-*", 0, "p5*")], group(3, ZONES[0]))
    assert not refused([zone_limit("us-*", 0)], group(3))
