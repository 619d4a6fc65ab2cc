"""Amazon Web Services as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.base import NodeGroup, ProjectIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


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
        instance_type = template["inputs"]["instanceType"] if template else ""
        purchase = "spot" if mixed_policy else "on_demand"
        return NodeGroup(
            (self.name, region, instance_type, purchase),
            int(inputs["desiredCapacity"]),
        )


PROVIDER: Provider = AwsProvider()
