"""The disks that users of a workspace keep, and the right of machines to attach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import identity
from stacks.graph import Resource
from stacks.spec.stack import HOME_TAG, STACK_TAG

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """A volume for each user, in the zone of the machines."""
    if not stack.homes:
        return []
    return [
        *(
            Resource(
                type="aws:ebs/volume:Volume",
                name=name,
                inputs={
                    "availabilityZone": fleet.zones[0],
                    "size": fleet.home_gb,
                    "type": "gp3",
                    "encrypted": True,
                    **identity.key_inputs(stack),
                    "tags": {
                        **stack.fleet_tags(fleet),
                        HOME_TAG: stack.name,
                        "Name": f"{stack.name}-{name}",
                    },
                },
                # A disk with files keeps the size and the key that it was made with.
                options={
                    "ignore_changes": [
                        "kmsKeyId",
                        "size",
                        "type",
                    ]
                },
            )
            for name, fleet in stack.homes.items()
        ),
        identity.role_policy("node-home", "node", "home", _statements(stack)),
    ]


def _statements(stack: StackSpec) -> list[Properties]:
    """To find all volumes, and to attach those of the stack to machines of the stack."""
    own = {"StringEquals": {f"ec2:ResourceTag/{STACK_TAG}": stack.name}}
    return [
        {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": "ec2:AttachVolume",
            "Resource": [
                "arn:aws:ec2:*:*:instance/*",
                "arn:aws:ec2:*:*:volume/*",
            ],
            "Condition": own,
        },
    ]


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What a machine attaches, and must leave before it is deleted."""
    return (*stack.homes, "node-home") if stack.homes else ()
