"""How many machines a scale set has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from providers.azure.client import open_session, subscription
from providers.live.rest import send

if TYPE_CHECKING:
    from stacks.operate.size import GroupSize

MANAGEMENT_URL: Final = "https://management.azure.com"
API_VERSION: Final = "2024-03-01"


def set_size(size: GroupSize) -> None:
    """Set the size of a scale set. Raises the errors of `providers.live.access`."""
    send(
        open_session("https://management.azure.com"),
        "PATCH",
        f"{MANAGEMENT_URL}/subscriptions/{subscription()}/resourceGroups/"
        f"{size.resource_group}/providers/Microsoft.Compute/"
        f"virtualMachineScaleSets/{size.group}?api-version={API_VERSION}",
        {"sku": {"capacity": size.nodes}},
    )
