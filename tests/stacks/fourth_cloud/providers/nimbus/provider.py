"""Nimbus as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from providers.base import NodeGroup, ProjectIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from providers.base import IdentitySource, Provider
    from providers.size_rule import SizeRule


class NimbusProvider:
    """Reads flocks of machines."""

    name = "nimbus"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:
        return ProjectIdentity()

    def node_group(
        self,
        resource_type: str,
        inputs: dict[str, Any],
        objects: dict[str, dict[str, Any]],
        region: str,
    ) -> NodeGroup | None:
        if resource_type != "nimbus:compute:Flock":
            return None
        return NodeGroup(
            (self.name, region, inputs["machine"], inputs["purchase"]),
            inputs["size"],
        )

    def size_rules(
        self,
        resource_type: str,
        inputs: dict[str, Any],
        objects: dict[str, dict[str, Any]],
        created: datetime,
    ) -> list[SizeRule]:
        return []


PROVIDER: Provider = NimbusProvider()
