"""Checkpoints of moves: what waits for its deletion in a place can be current again."""

from __future__ import annotations

from planner.plan.types import Properties
from stacks.engine.pulumi.move import is_move, taken_back

EAST, WEST = ("aws", "us-east-1"), ("aws", "us-west-2")


def provider(region: str) -> Properties:
    return {
        "urn": f"urn:aws-{region}",
        "id": region,
        "type": "pulumi:providers:aws",
        "inputs": {"region": region},
    }


def record(
    name: str, place: tuple[str, str], *, is_waiting: bool = False
) -> Properties:
    return {
        "urn": f"urn:{name}",
        "id": f"{name}-{place[1]}",
        "type": "aws:ec2/vpc:Vpc",
        "provider": f"urn:aws-{place[1]}::{place[1]}",
        **({"delete": True} if is_waiting else {}),
    }


def half_moved() -> Properties:
    """A stack on its way from east to west."""
    return {
        "manifest": {},
        "resources": [
            {"urn": "urn:stack", "type": "pulumi:pulumi:Stack"},
            provider(WEST[1]),
            record("vpc", WEST),
            record("only-west", WEST),
            provider(EAST[1]),
            record("vpc", EAST, is_waiting=True),
            record("nodes", EAST),
        ],
    }


def current(deployment: Properties) -> list[str]:
    return sorted(
        found["id"]
        for found in deployment["resources"]
        if not found.get("delete") and "provider" in found
    )


def test_going_back_makes_current_what_waits_there() -> None:
    back = taken_back(half_moved(), EAST)
    assert current(back) == [
        "nodes-us-east-1",
        "only-west-us-west-2",
        "vpc-us-east-1",
    ]
    assert back["manifest"] == {}
    assert taken_back(back, EAST) == back, "once is enough"


def test_going_on_changes_nothing() -> None:
    assert taken_back(half_moved(), WEST) == half_moved()
    assert taken_back({}, WEST) == {"resources": []}


def test_no_object_is_lost_and_each_resource_has_one_that_is_current() -> None:
    for place in (EAST, WEST):
        settled = taken_back(half_moved(), place)
        assert [found.get("id") for found in settled["resources"]] == [
            found.get("id") for found in half_moved()["resources"]
        ]
        assert len(current(settled)) == 3


def test_what_waits_in_its_own_place_still_goes() -> None:
    """A replacement in one place is no move."""
    deployment = {
        "resources": [
            provider(EAST[1]),
            record("vpc", EAST),
            {**record("vpc", EAST, is_waiting=True), "id": "older"},
        ]
    }
    assert taken_back(deployment, EAST) == deployment


def test_a_move_is_told_by_objects_of_another_place() -> None:
    assert is_move(half_moved(), EAST)
    assert is_move(half_moved(), WEST)
    alone = {"resources": [provider(EAST[1]), record("vpc", EAST)]}
    assert not is_move(alone, EAST)
    assert is_move(alone, WEST)
    assert not is_move({}, EAST)
