"""Google Cloud as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import Problem, UsageError
from providers.base import NodeGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


PROJECT_VARIABLE: Final = "GOOGLE_CLOUD_PROJECT"


class _EnvironmentProject(Struct, frozen=True):
    """The project of the environment in which a command runs."""

    environment: Mapping[str, str]

    @property
    def project(self) -> str:
        """The project. Raises UsageError when none is set."""
        project = self.environment.get(PROJECT_VARIABLE, "")
        if not project:
            problem = Problem(
                code="project",
                message="no Google Cloud project is set",
                next_step=f"set {PROJECT_VARIABLE}",
            )
            raise UsageError(problem)
        return project


class GcpProvider:
    """Reads managed instance groups."""

    name = "gcp"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:
        """Return the project that the environment names."""
        return _EnvironmentProject(environment)

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of a managed instance group."""
        if (
            resource_type
            != "gcp:compute/instanceGroupManager:InstanceGroupManager"
        ):
            return None
        # The link contains the id of the template; a group has one version.
        template_link = str(inputs["versions"][0]["instanceTemplate"])
        template_inputs: Properties = next(
            (
                cloud_object["inputs"]
                for object_id, cloud_object in objects.items()
                if object_id in template_link
            ),
            {},
        )
        scheduling = template_inputs.get("scheduling") or {}
        is_spot = scheduling.get("provisioningModel") == "SPOT"
        purchase = "spot" if is_spot else "on_demand"
        machine_type = template_inputs.get("machineType", "")
        return NodeGroup(
            (self.name, region, machine_type, purchase),
            int(inputs["targetSize"]),
        )


PROVIDER: Provider = GcpProvider()
