"""The machines: scale sets, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.cost.usage import usage_value
from stacks.azure import fabric, files, home, network, placement, storage
from stacks.azure.identity import common_inputs
from stacks.cloud import group_outputs
from stacks.graph import Resource, ref
from stacks.operate.logs import WORKSPACE_OUTPUT
from stacks.spec.driver import image_reference
from stacks.spec.rolling import rolling_rule
from stacks.spec.stack import (
    BASTION_OUTPUT,
    GROUP_ID_OUTPUT,
    GROUP_OUTPUT,
    LINK_OUTPUT,
    SERVING_PORT,
)
from stacks.spec.table import lookup_table, stack_error
from stacks.user_data import base64_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot

ADMIN_USER: Final = "tonnage"
# Azure demands a public key. Nobody holds the private half of this one: it is a point of the
# curve that was hashed from a public text, so a login is impossible and run-command is the way in.
NO_LOGIN_KEY: Final = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
    "Npkl58t4nBdSgyOlKrFiGdw7GPJ/FrqfORPhsYEXTMa no-login"
)
# Where the agent of a machine says how it is, to the extension of Azure beside it.
HEALTH_PORT: Final = 8005
# Of the balancer, when it is public.
PUBLIC_ADDRESS: Final = "balancer-address"
# Provider updates these in place although Azure refuses, so the replacement is asked for.
IMMUTABLE_INPUTS: Final = [
    "orchestrationMode",
    "singlePlacementGroup",
    "platformFaultDomainCount",
    "zones",
    "location",
]


def resources(
    stack: StackSpec, node_boots: Mapping[str, NodeBoot]
) -> list[Resource]:
    """The scale sets and, for a service, its internal load balancer."""
    return [
        *(
            _scale_set(stack, fleet, group, node_boots[group.name].script)
            for fleet, group in stack.scaling_groups
        ),
        *([_load_balancer(stack)] if stack.is_serving else []),
        *_public_address(stack),
        *_private_link(stack),
    ]


def outputs(stack: StackSpec) -> dict[str, Reference]:
    """What a user needs afterwards: groups, endpoint, bucket, dashboard."""
    output_refs = {
        **group_outputs(stack),
        GROUP_OUTPUT: ref("group", "name"),
    }
    if stack.homes:
        output_refs[BASTION_OUTPUT] = ref("bastion", "name")
        output_refs[GROUP_ID_OUTPUT] = ref("group")
    if stack.is_serving:
        output_refs["endpoint"] = (
            ref(PUBLIC_ADDRESS, "ipAddress")
            if stack.is_public
            else ref("balancer", "frontendIPConfigurations[0].privateIPAddress")
        )
    if stack.linked_accounts:
        output_refs[LINK_OUTPUT] = ref("link", "alias")
    output_refs["bucket"] = ref("store", "name")
    output_refs["dashboard"] = ref("dashboard")
    output_refs[WORKSPACE_OUTPUT] = ref("logs", "customerId")
    return output_refs


def _scale_set(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup, boot_script: str
) -> Resource:
    scale_set_inputs = {
        **common_inputs(stack),
        "vmScaleSetName": stack.group_name(group),
        "tags": stack.node_tags(fleet, group),
        "sku": {
            "name": fleet.instance.instance_type,
            "tier": "Standard",
            "capacity": group.nodes,
        },
        "identity": {
            "type": "UserAssigned",
            "userAssignedIdentities": [ref("node-identity")],
        },
        "virtualMachineProfile": _machine_profile(
            stack, fleet, group, boot_script
        ),
        "upgradePolicy": _upgrade_policy(fleet),
        **fabric.orchestration(fleet),
        **placement.zone_inputs(fleet),
    }
    if group.is_spot and not fabric.has_infiniband(fleet):
        scale_set_inputs["spotRestorePolicy"] = {
            "enabled": True,
            "restoreTimeout": "PT1H",
        }
    return Resource(
        type="azure-native:compute:VirtualMachineScaleSet",
        name=f"{group.name}-nodes",
        inputs=scale_set_inputs,
        depends_on=(
            *files.prerequisites(stack),
            *home.prerequisites(stack),
            *placement.prerequisites(fleet),
        ),
        options={
            "replace_on_changes": [
                *IMMUTABLE_INPUTS,
                # Azure makes machines that run anew one by one, or not at all.
                *([] if _rolls(fleet) else ["virtualMachineProfile"]),
            ],
            "delete_timeout": "45m",
        },
    )


def _rolls(fleet: FleetSpec) -> bool:
    """Whether a new template reaches the machines of a fleet one after the other."""
    return rolling_rule("azure", fleet.work) is not None


def _upgrade_policy(fleet: FleetSpec) -> Properties:
    """How a new template reaches machines that run.

    A roll stops at the first new machine that is not well. How many old ones are sick does not
    matter: the new template may be the cure.
    """
    if not _rolls(fleet):
        return {"mode": "Manual"}
    return {
        "mode": "Rolling",
        "rollingUpgradePolicy": {
            "maxSurge": True,
            "maxBatchInstancePercent": _limit("azure_roll_percent"),
            "maxUnhealthyInstancePercent": 100,
            "maxUnhealthyUpgradedInstancePercent": 0,
            "pauseTimeBetweenBatches": "PT0S",
        },
    }


def _limit(name: str) -> int:
    return int(lookup_table("limits.csv", "limit", "value")[name])


def _health_extension(fleet: FleetSpec) -> Properties:
    """What tells a scale set how its machines are: a roll waits until a new one is well."""
    if not _rolls(fleet):
        return {}
    publisher, extension_type, version = lookup_table(
        "images.csv", "image", "reference"
    )["azure-health"].split(":")
    extension = {
        "name": "health",
        "publisher": publisher,
        "type": extension_type,
        "typeHandlerVersion": version,
        "autoUpgradeMinorVersion": True,
        "settings": {
            "protocol": "http",
            "port": HEALTH_PORT,
            "requestPath": "/",
            # Until then a machine that loads a model is neither well nor sick.
            "gracePeriod": min(
                _limit("azure_health_grace_s"), fleet.start_limit_s
            ),
        },
    }
    return {"extensionProfile": {"extensions": [extension]}}


def _machine_profile(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup, boot_script: str
) -> Properties:
    image_publisher, image_offer, image_sku, image_version = image_reference(
        fleet.instance
    ).split(":")
    machine_profile: Properties = {
        "priority": "Spot" if group.is_spot else "Regular",
        "osProfile": {
            "computerNamePrefix": group.name[:15].rstrip("-"),
            "adminUsername": ADMIN_USER,
            "customData": base64_text(boot_script),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {
                    "publicKeys": [
                        {
                            "path": f"/home/{ADMIN_USER}/.ssh/authorized_keys",
                            "keyData": NO_LOGIN_KEY,
                        }
                    ]
                },
            },
        },
        "storageProfile": {
            "imageReference": {
                "publisher": image_publisher,
                "offer": image_offer,
                "sku": image_sku,
                "version": image_version,
            },
            "osDisk": {
                "createOption": "FromImage",
                "caching": "ReadWrite",
                "diskSizeGB": int(usage_value("boot_disk_gb")),
                "osType": "Linux",
                "managedDisk": {
                    "storageAccountType": "Premium_LRS",
                    **_disk_key(stack),
                },
            },
            **_data_disk(stack, fleet),
        },
        "networkProfile": _network_profile(stack, fleet),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        **_health_extension(fleet),
    }
    if reservation := placement.reservation(fleet):
        machine_profile["capacityReservation"] = {
            "capacityReservationGroup": {"id": reservation}
        }
    if group.is_spot:
        machine_profile["evictionPolicy"] = "Delete"
        machine_profile["billingProfile"] = {"maxPrice": -1}
    else:
        # Azure refuses this notice on spot machines.
        terminate_notice = {"enable": True, "notBeforeTimeout": "PT5M"}
        machine_profile["scheduledEventsProfile"] = {
            "terminateNotificationProfile": terminate_notice
        }
    return machine_profile


def _disk_key(stack: StackSpec) -> Properties:
    """What brings the key of the customer to a disk; nothing where that of Azure does."""
    if not stack.customer_key:
        return {}
    return {"diskEncryptionSet": {"id": stack.customer_key}}


def _data_disk(stack: StackSpec, fleet: FleetSpec) -> Properties:
    if not fleet.data_disk_gb:
        return {}
    data_disk = {
        "lun": 0,
        "createOption": "Empty",
        "diskSizeGB": fleet.data_disk_gb,
        "caching": "None",
        "managedDisk": {
            "storageAccountType": "PremiumV2_LRS",
            **_disk_key(stack),
        },
    }
    return {"dataDisks": [data_disk]}


def _network_profile(stack: StackSpec, fleet: FleetSpec) -> Properties:
    ip_configuration: Properties = {
        "name": "address",
        "primary": True,
        "subnet": {"id": network.node_subnet(stack)},
    }
    if stack.has_addresses:
        ip_configuration["publicIPAddressConfiguration"] = _own_address(fleet)
    if fleet.is_serving:
        backend_pool = ref("balancer", "backendAddressPools[0].id")
        ip_configuration["loadBalancerBackendAddressPools"] = [
            {"id": backend_pool}
        ]
    host_interface: Properties = {
        "name": "host",
        "primary": True,
        "enableAcceleratedNetworking": True,
        "ipConfigurations": [ip_configuration],
    }
    # The subnet of the stack has its rules; those of others stay as they are.
    if stack.given_network is not None:
        host_interface["networkSecurityGroup"] = {"id": ref("rules")}
    network_profile: Properties = {
        "networkInterfaceConfigurations": [host_interface]
    }
    if not fabric.has_infiniband(fleet):
        network_profile["networkApiVersion"] = "2020-11-01"
    return network_profile


def _own_address(fleet: FleetSpec) -> Properties:
    """The public address of a machine, which goes with it. Standard: nobody calls it by default.

    Raises SpecError for machines on InfiniBand: a Uniform scale set leaves the kind of an address
    to Azure.
    """
    if fabric.has_infiniband(fleet):
        raise stack_error(
            "machines on InfiniBand are in a Uniform scale set, "
            "and only a Flexible one gives its machines Standard addresses",
            "leave network.public_addresses out",
        )
    return {
        "name": "own",
        "sku": {"name": "Standard"},
        "deleteOption": "Delete",
    }


def _front_address(stack: StackSpec) -> Properties:
    """The address of the balancer: a public one, or in the network, of others one that is free."""
    if stack.is_public:
        return {"publicIPAddress": {"id": ref(PUBLIC_ADDRESS)}}
    subnet = {"subnet": {"id": network.node_subnet(stack)}}
    if stack.given_network is not None:
        return {"privateIPAllocationMethod": "Dynamic", **subnet}
    return {
        "privateIPAllocationMethod": "Static",
        "privateIPAddress": stack.addresses("0.4"),
        **subnet,
    }


def _public_address(stack: StackSpec) -> list[Resource]:
    """The address that the internet calls."""
    if not stack.is_public:
        return []
    return [
        Resource(
            type="azure-native:network:PublicIPAddress",
            name=PUBLIC_ADDRESS,
            inputs={
                "publicIpAddressName": f"{stack.name}-balancer",
                "sku": {"name": "Standard"},
                "publicIPAllocationMethod": "Static",
                **common_inputs(stack),
            },
        )
    ]


def _private_link(stack: StackSpec) -> list[Resource]:
    """The service that networks of other subscriptions connect to; those named, unasked."""
    if not stack.linked_accounts:
        return []
    subscriptions = {"subscriptions": list(stack.linked_accounts)}
    return [
        Resource(
            type="azure-native:network:PrivateLinkService",
            name="link",
            inputs={
                "serviceName": f"{stack.name}-link",
                "loadBalancerFrontendIpConfigurations": [
                    {"id": ref("balancer", "frontendIPConfigurations[0].id")}
                ],
                "ipConfigurations": [
                    {
                        "name": "address",
                        "primary": True,
                        "privateIPAllocationMethod": "Dynamic",
                        "subnet": {"id": ref("link-subnet")},
                    }
                ],
                "visibility": subscriptions,
                "autoApproval": subscriptions,
                **common_inputs(stack),
            },
        )
    ]


def _load_balancer(stack: StackSpec) -> Resource:
    """`$self` is how the provider names parts of the resource that is being created."""
    serving_rule = {
        "name": "serve",
        "protocol": "Tcp",
        "frontendPort": stack.client_port,
        "backendPort": stack.machine_port,
        "idleTimeoutInMinutes": 30,
        "enableTcpReset": True,
        "frontendIPConfiguration": {
            "id": "$self/frontendIPConfigurations/front"
        },
        "backendAddressPool": {"id": "$self/backendAddressPools/nodes"},
        "probe": {"id": "$self/probes/health"},
        # Machines go out through the NAT, also when the balancer has a public address.
        **({"disableOutboundSnat": True} if stack.is_public else {}),
    }
    return Resource(
        type="azure-native:network:LoadBalancer",
        name="balancer",
        inputs={
            "loadBalancerName": f"{stack.name}-balancer",
            "sku": {"name": "Standard"},
            "frontendIPConfigurations": [
                {
                    "name": "front",
                    **_front_address(stack),
                }
            ],
            "backendAddressPools": [{"name": "nodes"}],
            "probes": [
                {
                    "name": "health",
                    "protocol": "Http",
                    "port": SERVING_PORT,
                    "requestPath": "/health",
                    "intervalInSeconds": 5,
                    "probeThreshold": 2,
                }
            ],
            "loadBalancingRules": [serving_rule],
            **common_inputs(stack),
        },
    )


def _weights(stack: StackSpec) -> dict[str, str]:
    """The account and the container of weights that there are already."""
    if stack.weights_place is None:
        return {}
    container, _, host = stack.weights_place.bucket.partition("@")
    return {"account": host.partition(".")[0], "container": container}


def node_settings(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """What a node needs to know to speak to Azure."""
    return {
        "region": stack.region,
        "account": storage.account_name(stack),
        "numbers_machines": fabric.has_infiniband(fleet),
        **({"health_port": HEALTH_PORT} if _rolls(fleet) else {}),
        "file_system": files.file_system_name(stack),
        "dataset": files.dataset_url(stack.dataset_uri),
        "homes": home.disk_names(stack),
        "weights": _weights(stack),
    }
