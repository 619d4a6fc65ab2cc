"""The machines: instance templates, managed groups, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.cost.usage import usage_value
from stacks.cloud import group_outputs
from stacks.gcp import (
    fabric,
    files,
    home,
    identity,
    network,
    observe,
    placement,
    storage,
)
from stacks.graph import Resource, ref
from stacks.spec.block import saving_moment
from stacks.spec.driver import image_reference
from stacks.spec.rolling import rolling_rule
from stacks.spec.stack import LINK_OUTPUT, SERVING_PORT
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot


# How a group knows that a machine answers.
REPAIR_CHECK: Final = "repair-health"


def resources(
    stack: StackSpec, node_boots: Mapping[str, NodeBoot]
) -> list[Resource]:
    """Templates, groups and, for a service, its internal load balancer."""
    fleet_resources = []
    for fleet, group in stack.scaling_groups:
        boot_script = node_boots[group.name].script
        fleet_resources += [
            _node_template(stack, fleet, group, boot_script),
            _node_group(stack, fleet, group),
        ]
        if fleet.flex_s:
            fleet_resources.append(_resize_request(stack, fleet, group))
    if stack.is_serving:
        fleet_resources += [*_load_balancer(stack), *_private_link(stack)]
    return fleet_resources


def outputs(stack: StackSpec) -> dict[str, Reference]:
    """What a user needs afterwards: groups, endpoint, bucket, dashboard."""
    output_refs = group_outputs(stack)
    if stack.is_serving:
        output_refs["endpoint"] = (
            ref("balancer-address", "address")
            if stack.is_public
            else ref("balancer", "ipAddress")
        )
    if stack.linked_accounts:
        output_refs[LINK_OUTPUT] = ref(network.LINK, "selfLink")
    output_refs["bucket"] = ref("models", "name")
    output_refs["dashboard"] = ref("dashboard")
    return output_refs


def _node_template(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup, boot_script: str
) -> Resource:
    """Templates cannot change, so this one has no fixed name and is replaced by another."""
    template_inputs: Properties = {
        "machineType": fleet.instance.instance_type,
        "region": stack.region,
        "disks": [
            {**disk, **storage.disk_key(stack)} for disk in _node_disks(fleet)
        ],
        "networkInterfaces": fabric.interfaces(stack, fleet),
        "scheduling": _scheduling(fleet, group),
        "serviceAccount": {
            "email": ref("node-account", "email"),
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        },
        "shieldedInstanceConfig": {
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        },
        "tags": [f"{stack.name}-node"],
        "labels": storage.labels_of(stack.node_tags(fleet, group)),
        # IAM says who may log in, instead of keys in the metadata.
        "metadata": {"startup-script": boot_script, "enable-oslogin": "TRUE"},
        **placement.template_policies(fleet),
    }
    if reservation := placement.reservation(fleet):
        template_inputs["reservationAffinity"] = {
            "type": "SPECIFIC_RESERVATION",
            "specificReservation": {
                "key": "compute.googleapis.com/reservation-name",
                "values": [reservation],
            },
        }
    if fleet.flex_s:
        template_inputs["reservationAffinity"] = {"type": "NO_RESERVATION"}
    return Resource(
        type="gcp:compute/instanceTemplate:InstanceTemplate",
        name=f"{group.name}-template",
        inputs=template_inputs,
    )


def _node_disks(fleet: FleetSpec) -> list[Properties]:
    disk_type = home.disk_type(fleet.instance.instance_type)
    boot_disk = {
        "boot": True,
        "autoDelete": True,
        "diskType": disk_type,
        "diskSizeGb": int(usage_value("boot_disk_gb")),
        "sourceImage": image_reference(fleet.instance),
    }
    if not fleet.data_disk_gb:
        return [boot_disk]
    data_disk = {
        "boot": False,
        "autoDelete": True,
        "diskType": disk_type,
        "diskSizeGb": fleet.data_disk_gb,
        # By this name the node finds it.
        "deviceName": "tonnage-data",
    }
    return [boot_disk, data_disk]


def _scheduling(fleet: FleetSpec, group: ScalingGroup) -> Properties:
    """GPU machines cannot migrate; spot machines are deleted when they are taken back."""
    if fleet.flex_s:
        return {
            "provisioningModel": "FLEX_START",
            "preemptible": False,
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
            "instanceTerminationAction": "DELETE",
            "maxRunDuration": {"seconds": fleet.flex_s},
        }
    if fleet.block is not None:
        return {
            "provisioningModel": "RESERVATION_BOUND",
            "preemptible": False,
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
            "instanceTerminationAction": "DELETE",
        }
    if not group.is_spot:
        return {
            "provisioningModel": "STANDARD",
            "preemptible": False,
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": True,
        }
    return {
        "provisioningModel": "SPOT",
        "preemptible": True,
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "instanceTerminationAction": "DELETE",
    }


def _node_group(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Resource:
    """The group. It refers to the template by its unique link, so that a new one rolls out.

    The schedule and the agents change its size too; an apply sets it only when the plan asks for
    another one, because inputs are compared with inputs.
    """
    group_inputs = {
        "name": stack.group_name(group),
        "zone": network.fleet_zone(fleet),
        "baseInstanceName": f"{stack.short_name}-{group.name}",
        "versions": [
            {
                "name": "primary",
                "instanceTemplate": ref(
                    f"{group.name}-template", "selfLinkUnique"
                ),
            }
        ],
        # A request brings all machines that come by flex start; those of a block come with it.
        "targetSize": 0 if fleet.flex_s or fleet.block else group.nodes,
        # It waits for as long as a group may take to be created.
        "waitForInstances": stack.awaits_machines,
        "updatePolicy": _update_policy(fleet, group),
        **_healing(fleet),
        "instanceLifecyclePolicy": {
            "defaultActionOnFailure": "DO_NOTHING"
            if fleet.flex_s
            else "REPAIR",
            "forceUpdateOnRepair": "YES",
        },
        **placement.group_policies(fleet),
    }
    return Resource(
        type="gcp:compute/instanceGroupManager:InstanceGroupManager",
        name=f"{group.name}-nodes",
        inputs=group_inputs,
        depends_on=tuple(
            sorted(
                [
                    *network.prerequisites(stack),
                    *identity.prerequisites(),
                    *storage.prerequisites(stack),
                    *files.prerequisites(stack),
                    *home.prerequisites(stack),
                ]
            )
        ),
        options={"delete_timeout": "45m"},
    )


def _resize_request(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Resource:
    """What asks for all machines of a group at once, which come when there are as many.

    It is good for one time, so another number of machines takes another request.
    """
    return Resource(
        type="gcp:compute/resizeRequest:ResizeRequest",
        name=f"{group.name}-request",
        inputs={
            "name": f"{stack.group_name(group)}-{group.nodes}",
            "zone": network.fleet_zone(fleet),
            "instanceGroupManager": ref(f"{group.name}-nodes", "name"),
            "resizeBy": group.nodes,
            "requestedRunDuration": {"seconds": str(fleet.flex_s)},
        },
    )


def _update_policy(fleet: FleetSpec, group: ScalingGroup) -> Properties:
    """How a new template reaches machines that run.

    Machines of a surge have names of their own; without one, each keeps its name.
    """
    rule = rolling_rule("gcp", fleet.work)
    surge_nodes = rule.surge_nodes if rule else 0
    policy: Properties = {
        "type": "PROACTIVE",
        "minimalAction": "REPLACE",
        "replacementMethod": "SUBSTITUTE" if surge_nodes else "RECREATE",
        "maxSurgeFixed": surge_nodes,
        "maxUnavailableFixed": 0
        if surge_nodes
        else max(1, rule.nodes_away(group.nodes) if rule else 1),
    }
    return policy


def _healing(fleet: FleetSpec) -> Properties:
    """What tells a group that a machine of a service answers.

    A roll waits for it, and stops where it never comes. A machine that answers no more is made
    anew, later than its own agent would do that. Of those that work together one answers alone.
    """
    if not fleet.is_serving or fleet.spans_nodes:
        return {}
    return {
        "autoHealingPolicies": {
            "healthCheck": ref(REPAIR_CHECK),
            # Until then a machine that loads a model is neither well nor sick.
            "initialDelaySec": min(
                _limit("gcp_most_healing_delay_s"), fleet.start_limit_s
            ),
        }
    }


def _limit(name: str) -> int:
    return int(lookup_table("limits.csv", "limit", "value")[name])


def _load_balancer(stack: StackSpec) -> list[Resource]:
    scheme = "EXTERNAL" if stack.is_public else "INTERNAL"
    return [
        *_public_address(stack),
        Resource(
            type="gcp:compute/regionHealthCheck:RegionHealthCheck",
            name="health",
            inputs={
                "name": f"{stack.name}-health",
                "region": stack.region,
                "checkIntervalSec": 10,
                "timeoutSec": 5,
                "healthyThreshold": 2,
                "unhealthyThreshold": 3,
                **_probe(),
            },
        ),
        *_repair_check(stack),
        Resource(
            type="gcp:compute/regionBackendService:RegionBackendService",
            name="backend",
            inputs={
                "name": f"{stack.name}-backend",
                "region": stack.region,
                "protocol": "TCP",
                "loadBalancingScheme": scheme,
                "healthChecks": ref("health"),
                "connectionDrainingTimeoutSec": 120,
                "backends": [
                    {
                        "group": ref(f"{group.name}-nodes", "instanceGroup"),
                        "balancingMode": "CONNECTION",
                    }
                    for fleet, group in stack.scaling_groups
                    if fleet.is_serving
                ],
            },
        ),
        Resource(
            type="gcp:compute/forwardingRule:ForwardingRule",
            name="balancer",
            inputs={
                "name": f"{stack.name}-balancer",
                "region": stack.region,
                "loadBalancingScheme": scheme,
                "ipProtocol": "TCP",
                # It passes connections on to the same port of a machine.
                "ports": [str(stack.client_port)],
                "backendService": ref("backend"),
                **_front_address(stack),
                "labels": storage.resource_labels(stack),
            },
        ),
    ]


def _probe() -> Properties:
    return {"httpHealthCheck": {"port": SERVING_PORT, "requestPath": "/health"}}


def _repair_check(stack: StackSpec) -> list[Resource]:
    """Slower than the check of the balancer: an engine may start again on its machine."""
    if not any(_healing(fleet) for fleet in stack.fleets):
        return []
    return [
        Resource(
            type="gcp:compute/regionHealthCheck:RegionHealthCheck",
            name=REPAIR_CHECK,
            inputs={
                "name": f"{stack.name}-repair",
                "region": stack.region,
                "checkIntervalSec": 60,
                "timeoutSec": 10,
                "healthyThreshold": 1,
                "unhealthyThreshold": 10,
                **_probe(),
            },
        )
    ]


def _public_address(stack: StackSpec) -> list[Resource]:
    """The address that the internet calls, which stays when the balancer is made anew."""
    if not stack.is_public:
        return []
    return [
        Resource(
            type="gcp:compute/address:Address",
            name="balancer-address",
            inputs={
                "name": f"{stack.name}-balancer",
                "region": stack.region,
                "addressType": "EXTERNAL",
                "networkTier": "PREMIUM",
                "labels": storage.resource_labels(stack),
            },
        )
    ]


def _private_link(stack: StackSpec) -> list[Resource]:
    """The service that networks of other projects connect to; those that are named, unasked."""
    if not stack.linked_accounts:
        return []
    return [
        Resource(
            type="gcp:compute/serviceAttachment:ServiceAttachment",
            name=network.LINK,
            inputs={
                "name": f"{stack.name}-link",
                "region": stack.region,
                "targetService": ref("balancer"),
                "natSubnets": [ref(f"{network.LINK}-subnet")],
                "enableProxyProtocol": False,
                "connectionPreference": "ACCEPT_MANUAL",
                "consumerAcceptLists": [
                    {
                        "projectIdOrNum": project,
                        "connectionLimit": _limit("gcp_links_of_project"),
                    }
                    for project in stack.linked_accounts
                ],
                # Whoever is taken off the list loses the connection.
                "reconcileConnections": True,
            },
        )
    ]


def _front_address(stack: StackSpec) -> Properties:
    """Where the balancer is reached: at an address of its own, or in the network of the hosts."""
    if stack.is_public:
        return {"ipAddress": ref("balancer-address")}
    return {
        "network": network.host_network(stack),
        "subnetwork": network.host_subnet(stack),
        # Clients in joined networks may be in other regions.
        **({"allowGlobalAccess": True} if stack.peer_cidrs else {}),
    }


def node_settings(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """What a node needs to know to speak to Google Cloud."""
    place = stack.weights_place
    return {
        "bucket": storage.bucket_name(stack),
        "metrics": observe.metric_prefix(stack),
        "file_system": files.file_system_name(stack),
        "dataset": stack.dataset_uri,
        "homes": home.disk_names(stack),
        "weights": {"bucket": place.bucket} if place else {},
        **(
            {"ends": saving_moment(fleet.block).isoformat()}
            if fleet.block is not None
            else {}
        ),
    }
