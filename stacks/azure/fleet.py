"""The machines: a scale set, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.azure import fabric, files, placement, storage
from stacks.azure.identity import common_inputs
from stacks.cloud import NodeCommands
from stacks.graph import Resource, ref
from stacks.stack_spec import SERVING_PORT, lookup_table
from stacks.user_data import base64_text

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.stack_spec import StackSpec

ADMIN_USER: Final = "tonnage"
# Azure demands a public key. Nobody holds the private half of this one: it is a point of the
# curve that was hashed from a public text, so a login is impossible and run-command is the way in.
NO_LOGIN_KEY: Final = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
    "Npkl58t4nBdSgyOlKrFiGdw7GPJ/FrqfORPhsYEXTMa no-login"
)
# Provider updates these in place although Azure refuses, so the replacement is asked for.
IMMUTABLE_INPUTS: Final = [
    "orchestrationMode",
    "singlePlacementGroup",
    "platformFaultDomainCount",
    "zones",
    "location",
    "virtualMachineProfile.priority",
]


def resources(stack: StackSpec, boot_script: str) -> list[Resource]:
    """The scale set and, for a service, its internal load balancer."""
    return [
        _scale_set(stack, boot_script),
        *([_load_balancer(stack)] if stack.is_serving else []),
    ]


def outputs(stack: StackSpec) -> dict[str, Reference]:
    """What a user needs afterwards: the group, where it answers, where the weights go."""
    output_refs = {
        "group": ref("nodes", "name"),
        "resource_group": ref("group", "name"),
    }
    if stack.is_serving:
        output_refs["endpoint"] = ref(
            "balancer", "frontendIPConfigurations[0].privateIPAddress"
        )
    if stack.layout is not None:
        output_refs["models"] = ref("store", "name")
    return output_refs


def _scale_set(stack: StackSpec, boot_script: str) -> Resource:
    scale_set_inputs = {
        "vmScaleSetName": f"{stack.name}-nodes",
        "sku": {
            "name": stack.instance.instance_type,
            "tier": "Standard",
            "capacity": stack.nodes,
        },
        "identity": {
            "type": "UserAssigned",
            "userAssignedIdentities": [ref("node-identity")],
        },
        "virtualMachineProfile": _machine_profile(stack, boot_script),
        **fabric.orchestration(stack),
        **placement.zone_inputs(stack),
        **common_inputs(stack),
    }
    if stack.is_spot and not fabric.has_infiniband(stack):
        scale_set_inputs["spotRestorePolicy"] = {
            "enabled": True,
            "restoreTimeout": "PT1H",
        }
    return Resource(
        type="azure-native:compute:VirtualMachineScaleSet",
        name="nodes",
        inputs=scale_set_inputs,
        depends_on=files.prerequisites(stack),
        options={
            "replace_on_changes": IMMUTABLE_INPUTS,
            "delete_before_replace": True,
            "delete_timeout": "45m",
        },
    )


def _machine_profile(stack: StackSpec, boot_script: str) -> Properties:
    image_publisher, image_offer, image_sku, image_version = lookup_table(
        "images.csv", "image", "reference"
    )["azure"].split(":")
    machine_profile: Properties = {
        "priority": "Spot" if stack.is_spot else "Regular",
        "osProfile": {
            "computerNamePrefix": stack.short_name[:9],
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
                "diskSizeGB": 128,
                "osType": "Linux",
                "managedDisk": {"storageAccountType": "Premium_LRS"},
            },
            **_data_disk(stack),
        },
        "networkProfile": _network_profile(stack),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }
    if stack.is_spot:
        machine_profile["evictionPolicy"] = "Delete"
        machine_profile["billingProfile"] = {"maxPrice": -1}
    else:
        # Azure refuses this notice on spot machines.
        terminate_notice = {"enable": True, "notBeforeTimeout": "PT5M"}
        machine_profile["scheduledEventsProfile"] = {
            "terminateNotificationProfile": terminate_notice
        }
    return machine_profile


def _data_disk(stack: StackSpec) -> Properties:
    if not stack.data_disk_gb:
        return {}
    data_disk = {
        "lun": 0,
        "createOption": "Empty",
        "diskSizeGB": stack.data_disk_gb,
        "caching": "None",
        "managedDisk": {"storageAccountType": "PremiumV2_LRS"},
    }
    return {"dataDisks": [data_disk]}


def _network_profile(stack: StackSpec) -> Properties:
    ip_configuration: Properties = {
        "name": "address",
        "primary": True,
        "subnet": {"id": ref("subnet")},
    }
    if stack.is_serving:
        backend_pool = ref("balancer", "backendAddressPools[0].id")
        ip_configuration["loadBalancerBackendAddressPools"] = [
            {"id": backend_pool}
        ]
    host_interface = {
        "name": "host",
        "primary": True,
        "enableAcceleratedNetworking": True,
        "ipConfigurations": [ip_configuration],
    }
    network_profile: Properties = {
        "networkInterfaceConfigurations": [host_interface]
    }
    if not fabric.has_infiniband(stack):
        network_profile["networkApiVersion"] = "2020-11-01"
    return network_profile


def _load_balancer(stack: StackSpec) -> Resource:
    """`$self` is how the provider names parts of the resource that is being created."""
    serving_rule = {
        "name": "serve",
        "protocol": "Tcp",
        "frontendPort": SERVING_PORT,
        "backendPort": SERVING_PORT,
        "idleTimeoutInMinutes": 30,
        "enableTcpReset": True,
        "frontendIPConfiguration": {
            "id": "$self/frontendIPConfigurations/front"
        },
        "backendAddressPool": {"id": "$self/backendAddressPools/nodes"},
        "probe": {"id": "$self/probes/health"},
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
                    "privateIPAllocationMethod": "Static",
                    "privateIPAddress": "10.42.0.4",
                    "subnet": {"id": ref("subnet")},
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


def node_commands(stack: StackSpec) -> NodeCommands:
    """The commands of a node that are Azure's own; a machine that only halts still bills."""
    metadata_query = "curl -sH Metadata:true 'http://169.254.169.254/metadata/instance/compute"
    login_command = "az login --identity --only-show-errors >/dev/null"
    # Uniform sets number their machines after the last _, Flexible ones use the whole name.
    instance_id_text = "${N##*_}" if fabric.has_infiniband(stack) else "$N"
    leave_command = (
        f"{login_command}; N=$({metadata_query}/name?api-version=2021-02-01&format=text');"
        f" G=$({metadata_query}/resourceGroupName?api-version=2021-02-01&format=text');"
        f" az vmss delete-instances -g $G -n {stack.name}-nodes"
        f" --instance-ids {instance_id_text} --no-wait"
    )
    peers_command = (
        f"{login_command};"
        f" G=$({metadata_query}/resourceGroupName?api-version=2021-02-01&format=text');"
        f" az vmss nic list -g $G --vmss-name {stack.name}-nodes"
        " --query '[].ipConfigurations[0].privateIPAddress' -o tsv | sort"
    )
    models_url = (
        f"https://{storage.account_name(stack)}.blob.core.windows.net/models"
    )
    fetch_command = f"AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync '{models_url}' /models --recursive"
    save_command = (
        f"AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync {stack.checkpoint_dir} '{models_url}/checkpoints'"
        " --recursive"
    )
    notice_command = (
        "curl -sH Metadata:true"
        " 'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'"
        " | grep -q Preempt"
    )
    return NodeCommands(
        give_back=leave_command,
        list_peers=peers_command,
        fetch_models=fetch_command,
        save_checkpoints=save_command,
        notice=notice_command,
        mount_files=files.mount_command(stack),
        fill_files=files.fill_command(stack),
    )
