"""How many machines a managed instance group has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from providers.gcp.client import open_account
from providers.live.rest import send

if TYPE_CHECKING:
    from stacks.operate.size import GroupSize

COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"


def set_size(size: GroupSize) -> None:
    """Set the size of a group. Raises the errors of `providers.live.access`."""
    account = open_account()
    project_url = f"{COMPUTE_URL}/projects/{account.project}"
    # The zone of a group is that in which its machines were to be had.
    answer = send(
        account.session,
        "GET",
        f"{project_url}/aggregated/instanceGroupManagers"
        f"?filter=name%3D{size.group}&returnPartialSuccess=false",
    )
    zones = [
        place.removeprefix("zones/")
        for place, found in answer.get("items", {}).items()
        if any(
            group["name"] == size.group
            for group in found.get("instanceGroupManagers", [])
        )
    ]
    if len(zones) != 1:
        raise FileNotFoundError(
            f"{len(zones)} groups of {account.project} are named {size.group}"
        )
    send(
        account.session,
        "POST",
        f"{project_url}/zones/{zones[0]}/instanceGroupManagers/{size.group}"
        f"/resize?size={size.nodes}",
    )
