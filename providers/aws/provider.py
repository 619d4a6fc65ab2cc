"""Amazon Web Services as far as tonnage reads it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from planner.market.offer import RESERVED_PURCHASE
from providers.aws.credential import AwsIdentity
from providers.base import NodeGroup
from providers.resource_type import values_at
from providers.size_rule import SizeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


RESERVATION_TYPE: Final = "aws:ec2/capacityReservation:CapacityReservation"
CRON_DAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


class AwsProvider:
    """Reads Auto Scaling groups and reservations."""

    name = "aws"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:  # noqa: ARG002 - the client reads it by itself
        """Return who is signed in."""
        return AwsIdentity()

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of an Auto Scaling group, or of a reservation."""
        if resource_type == RESERVATION_TYPE:
            return NodeGroup(
                (self.name, region, inputs["instanceType"], "on_demand"),
                int(inputs["instanceCount"]),
                zones=(inputs["availabilityZone"],),
                is_kept=True,
            )
        if resource_type != "aws:autoscaling/group:Group":
            return None
        mixed_policy = inputs.get("mixedInstancesPolicy") or {}
        mixed_template = mixed_policy.get("launchTemplate", {})
        launch_template = (
            mixed_template.get("launchTemplateSpecification")
            or inputs.get("launchTemplate")
            or {}
        )
        template_id = launch_template.get("id") or launch_template.get(
            "launchTemplateId"
        )
        template = objects.get(str(template_id))
        template_inputs = template["inputs"] if template else {}
        disks_gb = [
            int(disk["ebs"]["volumeSize"])
            for disk in template_inputs.get("blockDeviceMappings", ())
        ]
        return NodeGroup(
            (
                self.name,
                region,
                template_inputs.get("instanceType", ""),
                _purchase(mixed_policy, template_inputs, objects),
            ),
            int(inputs["desiredCapacity"]),
            boot_gb=sum(disks_gb[:1]),
            data_gb=sum(disks_gb[1:]),
            zones=tuple(
                objects[subnet_id]["inputs"]["availabilityZone"]
                for subnet_id in inputs.get("vpcZoneIdentifiers", ())
                if subnet_id in objects
            ),
            has_address="true"
            in values_at(
                template_inputs, "networkInterfaces.associatePublicIpAddress"
            ),
            # The first is the type of the template.
            stand_ins=tuple(
                override["instanceType"]
                for override in mixed_template.get("overrides", ())
            )[1:],
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


def _purchase(
    mixed_policy: Properties,
    template_inputs: Properties,
    objects: dict[str, Properties],
) -> str:
    """Return how machines of a group are bought."""
    if "instanceMarketOptions" in template_inputs:
        return "capacity_block"
    reservation_ids = values_at(
        template_inputs,
        "capacityReservationSpecification.capacityReservationTarget.capacityReservationId",
    )
    if any(
        objects.get(str(reservation_id), {}).get("type") == RESERVATION_TYPE
        for reservation_id in reservation_ids
    ):
        return RESERVED_PURCHASE
    distribution = mixed_policy.get("instancesDistribution", {})
    on_demand_percent = distribution.get(
        "onDemandPercentageAboveBaseCapacity", 100
    )
    return "on_demand" if on_demand_percent else "spot"


PROVIDER: Provider = AwsProvider()
