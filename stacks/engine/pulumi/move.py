"""Moves from one place to another: for a while a checkpoint has the objects of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.pulumi.checkpoint import place_of

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.engine.pulumi.stack import PulumiStack

# How Pulumi marks an object that has a successor and is still to be deleted.
SUPERSEDED_FLAG = "delete"
NO_PLACE = ("", "")


def is_move(deployment: Properties, place: tuple[str, str]) -> bool:
    """Tell whether a stack has objects in another place than the one that is asked for."""
    return any(
        place_of(deployment, state_record) not in (place, NO_PLACE)
        for state_record in deployment.get("resources") or ()
    )


def taken_back(deployment: Properties, place: tuple[str, str]) -> Properties:
    """Return a checkpoint in which what stands in a place is current again.

    A move that was cut leaves objects there that wait for their deletion. To go back is to let
    them stay, and to delete their successors.
    """
    state_records = deployment.get("resources") or ()
    waiting_urns = {
        state_record["urn"]
        for state_record in state_records
        if state_record.get(SUPERSEDED_FLAG)
        and place_of(deployment, state_record) == place
    }
    superseded_urns = {
        state_record["urn"]
        for state_record in state_records
        if state_record["urn"] in waiting_urns
        and not state_record.get(SUPERSEDED_FLAG)
        and place_of(deployment, state_record) != place
    }
    return {
        **deployment,
        "resources": [
            {
                **state_record,
                SUPERSEDED_FLAG: place_of(deployment, state_record) != place,
            }
            if state_record["urn"] in superseded_urns
            else state_record
            for state_record in state_records
        ],
    }


def take_back(pulumi_stack: PulumiStack, place: tuple[str, str]) -> None:
    """Let a stack have again what stands in a place, if a move away from there was cut."""
    settled = taken_back(pulumi_stack.deployment, place)
    if settled.get("resources") != pulumi_stack.deployment.get("resources"):
        pulumi_stack.write_deployment(settled)
