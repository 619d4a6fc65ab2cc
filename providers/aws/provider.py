"""Amazon Web Services as far as tonnage reads it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from providers.base import NodeGroup, ProjectIdentity
from providers.size_rule import SizeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


CRON_DAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


class AwsProvider:
    """Reads Auto Scaling groups."""

    name = "aws"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:  # noqa: ARG002 - there are no projects
        """Return an identity without a project."""
        return ProjectIdentity()

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of an Auto Scaling group."""
        if resource_type != "aws:autoscaling/group:Group":
            return None
        mixed_policy = inputs.get("mixedInstancesPolicy")
        launch_template = inputs.get("launchTemplate") or {}
        # The stack uses a mixed instances policy for spot only.
        if mixed_policy:
            launch_template = mixed_policy["launchTemplate"][
                "launchTemplateSpecification"
            ]
        template_id = launch_template.get("id") or launch_template.get(
            "launchTemplateId"
        )
        template = objects.get(str(template_id))
        template_inputs = template["inputs"] if template else {}
        purchase = "spot" if mixed_policy else "on_demand"
        if "instanceMarketOptions" in template_inputs:
            purchase = "capacity_block"
        disks_gb = [
            int(disk["ebs"]["volumeSize"])
            for disk in template_inputs.get("blockDeviceMappings", ())
        ]
        return NodeGroup(
            (
                self.name,
                region,
                template_inputs.get("instanceType", ""),
                purchase,
            ),
            int(inputs["desiredCapacity"]),
            boot_gb=sum(disks_gb[:1]),
            data_gb=sum(disks_gb[1:]),
            zones=tuple(
                objects[subnet_id]["inputs"]["availabilityZone"]
                for subnet_id in inputs.get("vpcZoneIdentifiers", ())
                if subnet_id in objects
            ),
        )

    def size_rules(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],  # noqa: ARG002 - a schedule says all itself
        created: datetime,  # noqa: ARG002
    ) -> list[SizeRule]:
        """Return the rules of a scheduled action, or of a schedule that calls Auto Scaling."""
        if resource_type == "aws:autoscaling/schedule:Schedule":
            if "startTime" in inputs:
                return [
                    SizeRule(
                        group=inputs["autoscalingGroupName"],
                        minimum=inputs["desiredCapacity"],
                        maximum=inputs["desiredCapacity"],
                        at=datetime.fromisoformat(inputs["startTime"]),
                    )
                ]
            minute, hour, _, _, days = inputs["recurrence"].split()
            end_text = inputs.get("endTime")
            return [
                SizeRule(
                    group=inputs["autoscalingGroupName"],
                    minimum=inputs["desiredCapacity"],
                    maximum=inputs["desiredCapacity"],
                    weekdays=tuple(map(CRON_DAYS.index, days.split(","))),
                    minute_of_day=int(hour) * 60 + int(minute),
                    timezone=inputs["timeZone"],
                    until=datetime.fromisoformat(end_text)
                    if end_text
                    else None,
                )
            ]
        if resource_type == "aws:scheduler/schedule:Schedule":
            sizes = json.loads(inputs["target"]["input"])
            time_text = inputs["scheduleExpression"][len("at(") : -1]
            return [
                SizeRule(
                    group=sizes["AutoScalingGroupName"],
                    minimum=sizes["DesiredCapacity"],
                    maximum=sizes["DesiredCapacity"],
                    at=datetime.fromisoformat(time_text).replace(tzinfo=UTC),
                )
            ]
        return []


PROVIDER: Provider = AwsProvider()
