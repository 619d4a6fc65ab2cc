"""How many machines an Auto Scaling group has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.aws.client import service

if TYPE_CHECKING:
    from stacks.operate.size import GroupSize


def set_size(size: GroupSize) -> None:
    """Set the size of a group. Raises the errors of `providers.live.access`."""
    # A deadline has set the most machines to 0; the plan has another most.
    most_nodes = max(size.nodes, size.most)
    limits = {"MinSize": 0, "MaxSize": most_nodes} if size.nodes else {}
    with service("autoscaling", size.region) as client:
        client.update_auto_scaling_group(
            AutoScalingGroupName=size.group,
            DesiredCapacity=size.nodes,
            **limits,
        )
