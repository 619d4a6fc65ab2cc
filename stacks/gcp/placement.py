"""Close placement for nodes that hold one replica together.

The families with a fabric take a workload policy on the group; the others a compact policy on
the template. Neither is set otherwise: closeness costs availability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

POLICY: Final = "gcp:compute/resourcePolicy:ResourcePolicy"


def resources(site: Site) -> list[Resource]:
    """The policy, when a replica spans nodes."""
    if not site.together:
        return []
    inputs: dict[str, Any] = {
        "name": f"{site.name}-together",
        "region": site.region,
    }
    if _by_workload(site):
        inputs["workloadPolicy"] = {"type": "HIGH_THROUGHPUT"}
    else:
        inputs["groupPlacementPolicy"] = {"collocation": "COLLOCATED"}
    return [Resource(type=POLICY, name="together", inputs=inputs)]


def of_group(site: Site) -> dict[str, Any]:
    """What the instance group carries."""
    if site.together and _by_workload(site):
        return {
            "resourcePolicies": {"workloadPolicy": ref("together", "selfLink")}
        }
    return {}


def of_template(site: Site) -> dict[str, Any]:
    """What the instance template carries: the schema takes one text, not a list."""
    if site.together and not _by_workload(site):
        return {"resourcePolicies": ref("together")}
    return {}


def _by_workload(site: Site) -> bool:
    return site.instance.fabric in ("tcpx", "tcpxo", "roce")
