"""Google Cloud as far as tonnage reads it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import Problem, UsageError
from planner.market.offer import RESERVED_PURCHASE
from providers.base import Caller, NodeGroup
from providers.resource_type import values_at
from providers.size_rule import SizeRule, yearly_moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


PURCHASES: Final = {
    "SPOT": "spot",
    "FLEX_START": "flex_start",
    "RESERVATION_BOUND": "capacity_block",
}
RESERVATION_TYPE: Final = "gcp:compute/reservation:Reservation"
REQUEST_TYPE: Final = "gcp:compute/resizeRequest:ResizeRequest"
# Until a simulated cloud has all machines of a request.
REQUEST_WAIT: Final = timedelta(minutes=10)
JOB_TYPE: Final = "gcp:cloudscheduler/job:Job"
RESIZE_PATTERN: Final = re.compile(
    r"/instanceGroupManagers/(?P<group>[^/]+)/resize\?size=(?P<nodes>\d+)$"
)
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

    @property
    def account(self) -> str:
        """The project. Raises UsageError when none is set."""
        return self.project

    @property
    def caller(self) -> Caller:
        """Nobody: the tools of Google Cloud need no grant of the graph."""
        return Caller()


class GcpProvider:
    """Reads managed instance groups and reservations."""

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
        """Return the nodes of a managed instance group, or of a reservation."""
        if resource_type == RESERVATION_TYPE:
            reserved = inputs["specificReservation"]
            machine_type = reserved["instanceProperties"]["machineType"]
            return NodeGroup(
                (self.name, region, machine_type, "on_demand"),
                int(reserved["count"]),
                zones=(inputs["zone"],),
                is_kept=True,
            )
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
        purchase = PURCHASES.get(
            scheduling.get("provisioningModel", ""), "on_demand"
        )
        if _comes_from_reservation(template_inputs, objects):
            purchase = RESERVED_PURCHASE
        machine_type = template_inputs.get("machineType", "")
        disks = template_inputs.get("disks", ())
        return NodeGroup(
            (self.name, region, machine_type, purchase),
            int(inputs["targetSize"]),
            boot_gb=sum(disk["diskSizeGb"] for disk in disks if disk["boot"]),
            data_gb=sum(
                disk["diskSizeGb"] for disk in disks if not disk["boot"]
            ),
            zones=(inputs["zone"],) if "zone" in inputs else (),
            has_address=bool(
                [*values_at(template_inputs, "networkInterfaces.accessConfigs")]
            ),
        )

    def size_rules(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        created: datetime,
    ) -> list[SizeRule]:
        """Return the rule of a job that resizes a group, or of a request for all its machines."""
        if resource_type == REQUEST_TYPE:
            return _request_rules(inputs, created)
        resize = (
            RESIZE_PATTERN.search(inputs.get("httpTarget", {}).get("uri", ""))
            if resource_type == JOB_TYPE
            else None
        )
        if resize is None:
            return []
        nodes = int(resize["nodes"])
        cron_line = inputs["schedule"]
        minute, hour, day, _, days = cron_line.split()
        if day != "*":
            moment = yearly_moment(cron_line, created)
            return [
                SizeRule(
                    group=resize["group"],
                    minimum=nodes,
                    maximum=nodes,
                    at=moment,
                )
            ]
        pauses = [
            yearly_moment(cloud_object["inputs"]["schedule"], created)
            for cloud_object in objects.values()
            if cloud_object["type"] == JOB_TYPE
            and cloud_object["inputs"]["httpTarget"]["uri"].endswith(
                f"/jobs/{inputs['name']}:pause"
            )
        ]
        return [
            SizeRule(
                group=resize["group"],
                minimum=nodes,
                maximum=nodes,
                # Cron counts from Sunday.
                weekdays=tuple((int(day) - 1) % 7 for day in days.split(",")),
                minute_of_day=int(hour) * 60 + int(minute),
                timezone=inputs["timeZone"],
                until=min(pauses, default=None),
            )
        ]


def _comes_from_reservation(
    template_inputs: Properties, objects: dict[str, Properties]
) -> bool:
    """Whether a template names a reservation among the objects."""
    names = set(
        values_at(
            template_inputs, "reservationAffinity.specificReservation.values"
        )
    )
    return any(
        cloud_object["type"] == RESERVATION_TYPE
        and cloud_object["inputs"]["name"] in names
        for cloud_object in objects.values()
    )


def _request_rules(inputs: Properties, created: datetime) -> list[SizeRule]:
    """Return when machines of a request come, and when they go."""
    begins = created + REQUEST_WAIT
    duration = timedelta(seconds=int(inputs["requestedRunDuration"]["seconds"]))
    return [
        SizeRule(
            group=inputs["instanceGroupManager"],
            minimum=nodes,
            maximum=nodes,
            at=moment,
        )
        for nodes, moment in (
            (inputs["resizeBy"], begins),
            (0, begins + duration),
        )
    ]


PROVIDER: Provider = GcpProvider()
