"""Microsoft Azure as far as tonnage reads it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from planner.facts.cloud_limit import timezone_name, timezone_names
from planner.market.offer import RESERVED_PURCHASE
from providers.azure.credential import AzureIdentity
from providers.base import NodeGroup
from providers.resource_type import values_at
from providers.size_rule import SizeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


RESERVATION_TYPE: Final = "azure-native:compute:CapacityReservation"
# What gives each machine of a scale set a public address.
ADDRESS_PATH: Final = (
    "virtualMachineProfile.networkProfile.networkInterfaceConfigurations."
    "ipConfigurations.publicIPAddressConfiguration"
)
WEEKDAYS: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)


class AzureProvider:
    """Reads virtual machine scale sets and reservations."""

    name = "azure"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:
        """Return who is signed in."""
        return AzureIdentity(environment)

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of a scale set, or of a reservation."""
        if resource_type == RESERVATION_TYPE:
            reserved = inputs["sku"]
            return NodeGroup(
                (self.name, region, reserved["name"], "on_demand"),
                int(reserved["capacity"]),
                zones=tuple(inputs.get("zones", ())),
                is_kept=True,
            )
        if resource_type != "azure-native:compute:VirtualMachineScaleSet":
            return None
        sku = inputs["sku"]
        is_spot = inputs["virtualMachineProfile"].get("priority") == "Spot"
        purchase = "spot" if is_spot else "on_demand"
        reservation_ids = values_at(
            inputs,
            "virtualMachineProfile.capacityReservation.capacityReservationGroup.id",
        )
        if any(str(group_id) in objects for group_id in reservation_ids):
            purchase = RESERVED_PURCHASE
        storage = inputs["virtualMachineProfile"].get("storageProfile", {})
        return NodeGroup(
            (self.name, region, sku["name"], purchase),
            int(sku["capacity"]),
            boot_gb=int(storage.get("osDisk", {}).get("diskSizeGB", 0)),
            data_gb=sum(
                int(disk["diskSizeGB"]) for disk in storage.get("dataDisks", ())
            ),
            zones=tuple(inputs.get("zones", ())),
            has_address=bool([*values_at(inputs, ADDRESS_PATH)]),
        )

    def size_rules(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],  # noqa: ARG002 - a setting says all itself
        created: datetime,  # noqa: ARG002
    ) -> list[SizeRule]:
        """Return the rules of the profiles of an autoscale setting."""
        if resource_type != "azure-native:monitor:AutoscaleSetting":
            return []
        deadlines = [
            datetime.fromisoformat(profile["fixedDate"]["start"])
            for profile in inputs["profiles"]
            if "fixedDate" in profile
        ]
        group = inputs["targetResourceUri"]
        rules = [
            SizeRule(group=group, minimum=0, maximum=0, at=deadline)
            for deadline in deadlines
        ]
        for profile in inputs["profiles"]:
            if "recurrence" not in profile:
                continue
            schedule = profile["recurrence"]["schedule"]
            rules.append(
                SizeRule(
                    group=group,
                    minimum=int(profile["capacity"]["minimum"]),
                    maximum=int(profile["capacity"]["maximum"]),
                    weekdays=tuple(map(WEEKDAYS.index, schedule["days"])),
                    minute_of_day=schedule["hours"][0] * 60
                    + schedule["minutes"][0],
                    timezone=_iana_name(schedule["timeZone"]),
                    until=min(deadlines, default=None),
                )
            )
        return rules


def _iana_name(windows_name: str) -> str:
    """Return a time zone that Windows calls so."""
    return next(
        name
        for name in timezone_names("azure")
        if timezone_name("azure", name) == windows_name
    )


PROVIDER: Provider = AzureProvider()
