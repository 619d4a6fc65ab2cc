"""Nimbus as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from providers.base import NodeGroup

if TYPE_CHECKING:
    from providers.base import Provider


class NimbusProvider:
    """Reads flocks of machines."""

    name = "nimbus"

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


PROVIDER: Provider = NimbusProvider()
