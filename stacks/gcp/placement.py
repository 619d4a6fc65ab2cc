"""Close placement for nodes that hold one replica together.

The families with a fabric take a workload policy on the group; the others a compact policy on
the template. Neither is set otherwise: closeness costs availability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.stack_spec import StackSpec

POLICY_TYPE: Final = "gcp:compute/resourcePolicy:ResourcePolicy"


def resources(stack: StackSpec) -> list[Resource]:
    """The policy, when a replica spans nodes."""
    if not stack.spans_nodes:
        return []
    placement_inputs: Properties = {
        "name": f"{stack.name}-together",
        "region": stack.region,
    }
    if _has_workload_policy(stack):
        placement_inputs["workloadPolicy"] = {"type": "HIGH_THROUGHPUT"}
    else:
        placement_inputs["groupPlacementPolicy"] = {"collocation": "COLLOCATED"}
    return [
        Resource(type=POLICY_TYPE, name="together", inputs=placement_inputs)
    ]


def group_policies(stack: StackSpec) -> Properties:
    """What the instance group carries."""
    if stack.spans_nodes and _has_workload_policy(stack):
        return {
            "resourcePolicies": {"workloadPolicy": ref("together", "selfLink")}
        }
    return {}


def template_policies(stack: StackSpec) -> Properties:
    """What the instance template carries: the schema takes one text, not a list."""
    if stack.spans_nodes and not _has_workload_policy(stack):
        return {"resourcePolicies": ref("together")}
    return {}


def _has_workload_policy(stack: StackSpec) -> bool:
    return stack.instance.fabric in ("tcpx", "tcpxo", "roce")
