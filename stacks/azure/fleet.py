"""The machines: a scale set, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.azure import fabric, files, placement, storage
from stacks.azure.identity import common
from stacks.graph import Resource, ref
from stacks.node.bootstrap import encoded, script
from stacks.site import PORT, table

if TYPE_CHECKING:
    from stacks.site import Site

ADMIN: Final = "tonnage"
# Azure demands a public key. Nobody holds the private half of this one: it is a point of the
# curve that was hashed from a public text, so a login is impossible and run-command is the way in.
NO_LOGIN: Final = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
    "Npkl58t4nBdSgyOlKrFiGdw7GPJ/FrqfORPhsYEXTMa no-login"
)
# Provider updates these in place although Azure refuses, so the replacement is asked for.
IMMUTABLE: Final = [
    "orchestrationMode",
    "singlePlacementGroup",
    "platformFaultDomainCount",
    "zones",
    "location",
    "virtualMachineProfile.priority",
]


def resources(site: Site) -> list[Resource]:
    """The scale set and, for a service, its internal load balancer."""
    return [_scale_set(site), *([_balancer(site)] if site.served else [])]


def outputs(site: Site) -> dict[str, dict[str, str]]:
    """What a user needs afterwards: the group, where it answers, where the weights go."""
    found = {
        "group": ref("nodes", "name"),
        "resource_group": ref("group", "name"),
    }
    if site.served:
        found["endpoint"] = ref(
            "balancer", "frontendIPConfigurations[0].privateIPAddress"
        )
    if site.layout is not None:
        found["models"] = ref("store", "name")
    return found


def _scale_set(site: Site) -> Resource:
    inputs = {
        "vmScaleSetName": f"{site.name}-nodes",
        "sku": {
            "name": site.instance.instance_type,
            "tier": "Standard",
            "capacity": site.nodes,
        },
        "identity": {
            "type": "UserAssigned",
            "userAssignedIdentities": [ref("node-identity")],
        },
        "virtualMachineProfile": _profile(site),
        **fabric.orchestration(site),
        **placement.zones(site),
        **common(site),
    }
    if site.spot and not fabric.infiniband(site):
        inputs["spotRestorePolicy"] = {
            "enabled": True,
            "restoreTimeout": "PT1H",
        }
    return Resource(
        type="azure-native:compute:VirtualMachineScaleSet",
        name="nodes",
        inputs=inputs,
        depends_on=files.ready(site),
        options={
            "replace_on_changes": IMMUTABLE,
            "delete_before_replace": True,
            "delete_timeout": "45m",
        },
    )


def _profile(site: Site) -> dict[str, Any]:
    publisher, offer, sku, version = table("images.csv", "image", "reference")[
        "azure"
    ].split(":")
    profile: dict[str, Any] = {
        "priority": "Spot" if site.spot else "Regular",
        "osProfile": {
            "computerNamePrefix": site.short[:9],
            "adminUsername": ADMIN,
            "customData": encoded(script(site, _commands(site))),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {
                    "publicKeys": [
                        {
                            "path": f"/home/{ADMIN}/.ssh/authorized_keys",
                            "keyData": NO_LOGIN,
                        }
                    ]
                },
            },
        },
        "storageProfile": {
            "imageReference": {
                "publisher": publisher,
                "offer": offer,
                "sku": sku,
                "version": version,
            },
            "osDisk": {
                "createOption": "FromImage",
                "caching": "ReadWrite",
                "diskSizeGB": 128,
                "osType": "Linux",
                "managedDisk": {"storageAccountType": "Premium_LRS"},
            },
            **_data_disk(site),
        },
        "networkProfile": _network(site),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }
    if site.spot:
        profile["evictionPolicy"] = "Delete"
        profile["billingProfile"] = {"maxPrice": -1}
    else:
        # Azure refuses this notice on spot machines.
        notice = {"enable": True, "notBeforeTimeout": "PT5M"}
        profile["scheduledEventsProfile"] = {
            "terminateNotificationProfile": notice
        }
    return profile


def _data_disk(site: Site) -> dict[str, Any]:
    if not site.cache_gb:
        return {}
    disk = {
        "lun": 0,
        "createOption": "Empty",
        "diskSizeGB": site.cache_gb,
        "caching": "None",
        "managedDisk": {"storageAccountType": "PremiumV2_LRS"},
    }
    return {"dataDisks": [disk]}


def _network(site: Site) -> dict[str, Any]:
    address: dict[str, Any] = {
        "name": "address",
        "primary": True,
        "subnet": {"id": ref("subnet")},
    }
    if site.served:
        pool = ref("balancer", "backendAddressPools[0].id")
        address["loadBalancerBackendAddressPools"] = [{"id": pool}]
    interface = {
        "name": "host",
        "primary": True,
        "enableAcceleratedNetworking": True,
        "ipConfigurations": [address],
    }
    profile: dict[str, Any] = {"networkInterfaceConfigurations": [interface]}
    if not fabric.infiniband(site):
        profile["networkApiVersion"] = "2020-11-01"
    return profile


def _balancer(site: Site) -> Resource:
    """`$self` is how the provider names parts of the resource that is being created."""
    rule = {
        "name": "serve",
        "protocol": "Tcp",
        "frontendPort": PORT,
        "backendPort": PORT,
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
            "loadBalancerName": f"{site.name}-balancer",
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
                    "port": PORT,
                    "requestPath": "/health",
                    "intervalInSeconds": 5,
                    "probeThreshold": 2,
                }
            ],
            "loadBalancingRules": [rule],
            **common(site),
        },
    )


def _commands(site: Site) -> dict[str, str]:
    """The commands of a node that are Azure's own; a machine that only halts still bills."""
    meta = "curl -sH Metadata:true 'http://169.254.169.254/metadata/instance/compute"
    login = "az login --identity --only-show-errors >/dev/null"
    # Uniform sets number their machines after the last _, Flexible ones use the whole name.
    instance = "${N##*_}" if fabric.infiniband(site) else "$N"
    leave = (
        f"{login}; N=$({meta}/name?api-version=2021-02-01&format=text');"
        f" G=$({meta}/resourceGroupName?api-version=2021-02-01&format=text');"
        f" az vmss delete-instances -g $G -n {site.name}-nodes --instance-ids {instance} --no-wait"
    )
    peers = (
        f"{login}; G=$({meta}/resourceGroupName?api-version=2021-02-01&format=text');"
        f" az vmss nic list -g $G --vmss-name {site.name}-nodes"
        " --query '[].ipConfigurations[0].privateIPAddress' -o tsv | sort"
    )
    url = f"https://{storage.account(site)}.blob.core.windows.net/models"
    fetch = (
        f"AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync '{url}' /models --recursive"
    )
    keep = (
        f"AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync {site.checkpoints} '{url}/checkpoints'"
        " --recursive"
    )
    notice = (
        "curl -sH Metadata:true"
        " 'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'"
        " | grep -q Preempt"
    )
    return {
        "give_back": leave,
        "peers": peers,
        "fetch": fetch,
        "keep": keep,
        "notice": notice,
        **files.commands(site),
    }
