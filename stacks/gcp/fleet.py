"""The machines: an instance template, a managed group, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.cost.line import usage
from stacks.gcp import fabric, files, identity, network, placement, storage
from stacks.graph import Resource, ref
from stacks.node.bootstrap import script
from stacks.site import PORT, table

if TYPE_CHECKING:
    from stacks.site import Site


DISK: Final = "pd-balanced"  # of every family that asks for no other


def resources(site: Site) -> list[Resource]:
    """Template, group and, for a service, its internal load balancer."""
    return [
        _template(site),
        _group(site),
        *(_balancer(site) if site.served else []),
    ]


def outputs(site: Site) -> dict[str, dict[str, str]]:
    """What a user needs afterwards: the group, where it answers, where the weights go."""
    found = {"group": ref("nodes", "name")}
    if site.served:
        found["endpoint"] = ref("balancer", "ipAddress")
    if site.layout is not None:
        found["models"] = ref("models", "name")
    return found


def group(site: Site) -> str:
    """The name of the managed group."""
    return f"{site.name}-nodes"


def _template(site: Site) -> Resource:
    """Templates cannot change, so this one has no fixed name and is replaced by another."""
    inputs = {
        "machineType": site.instance.instance_type,
        "region": site.region,
        "disks": _disks(site),
        "networkInterfaces": fabric.interfaces(site),
        "scheduling": _scheduling(site),
        "serviceAccount": {
            "email": ref("node-account", "email"),
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        },
        "shieldedInstanceConfig": {
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        },
        "tags": [f"{site.name}-node"],
        "labels": storage.labels(site),
        "metadata": {"startup-script": script(site, _commands(site))},
        **placement.of_template(site),
    }
    return Resource(
        type="gcp:compute/instanceTemplate:InstanceTemplate",
        name="node-template",
        inputs=inputs,
    )


def _disks(site: Site) -> list[dict[str, Any]]:
    families = table("boot_disks.csv", "family", "disk")
    name = site.instance.instance_type
    kind = next(
        (disk for family, disk in families.items() if name.startswith(family)),
        DISK,
    )
    boot = {
        "boot": True,
        "autoDelete": True,
        "diskType": kind,
        "diskSizeGb": int(usage("boot_disk_gb")),
        "sourceImage": table("images.csv", "image", "reference")["gcp"],
    }
    if not site.cache_gb:
        return [boot]
    extra = {
        "boot": False,
        "autoDelete": True,
        "diskType": kind,
        "diskSizeGb": site.cache_gb,
    }
    return [boot, extra]


def _scheduling(site: Site) -> dict[str, Any]:
    """GPU machines cannot migrate; spot machines are deleted when they are taken back."""
    if not site.spot:
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


def _group(site: Site) -> Resource:
    """The group. It refers to the template by its unique link, so that a new one rolls out.

    The schedule and the agents change its size too; an apply sets it only when the plan asks for
    another one, because inputs are compared with inputs.
    """
    inputs = {
        "name": group(site),
        "zone": network.zone(site),
        "baseInstanceName": f"{site.short}-n",
        "versions": [
            {
                "name": "primary",
                "instanceTemplate": ref("node-template", "selfLinkUnique"),
            }
        ],
        "targetSize": site.nodes,
        "waitForInstances": False,
        "updatePolicy": {
            "type": "PROACTIVE",
            "minimalAction": "REPLACE",
            "replacementMethod": "RECREATE",
            "maxSurgeFixed": 0,
            "maxUnavailableFixed": 1,
        },
        "instanceLifecyclePolicy": {
            "defaultActionOnFailure": "REPAIR",
            "forceUpdateOnRepair": "YES",
        },
        **placement.of_group(site),
    }
    rules = [
        "net-inside",
        "net-proxy",
        *(["net-probes"] if site.served else []),
    ]
    return Resource(
        type="gcp:compute/instanceGroupManager:InstanceGroupManager",
        name="nodes",
        inputs=inputs,
        depends_on=tuple(
            sorted([*rules, "nat", *identity.ready(site), *files.ready(site)])
        ),
        options={"delete_timeout": "45m"},
    )


def _balancer(site: Site) -> list[Resource]:
    return [
        Resource(
            type="gcp:compute/regionHealthCheck:RegionHealthCheck",
            name="health",
            inputs={
                "name": f"{site.name}-health",
                "region": site.region,
                "checkIntervalSec": 10,
                "timeoutSec": 5,
                "healthyThreshold": 2,
                "unhealthyThreshold": 3,
                "httpHealthCheck": {"port": PORT, "requestPath": "/health"},
            },
        ),
        Resource(
            type="gcp:compute/regionBackendService:RegionBackendService",
            name="backend",
            inputs={
                "name": f"{site.name}-backend",
                "region": site.region,
                "protocol": "TCP",
                "loadBalancingScheme": "INTERNAL",
                "healthChecks": ref("health"),
                "connectionDrainingTimeoutSec": 120,
                "backends": [
                    {
                        "group": ref("nodes", "instanceGroup"),
                        "balancingMode": "CONNECTION",
                    }
                ],
            },
        ),
        Resource(
            type="gcp:compute/forwardingRule:ForwardingRule",
            name="balancer",
            inputs={
                "name": f"{site.name}-balancer",
                "region": site.region,
                "loadBalancingScheme": "INTERNAL",
                "ipProtocol": "TCP",
                "ports": [str(PORT)],
                "network": ref("net"),
                "subnetwork": ref("net-subnet"),
                "backendService": ref("backend"),
                "labels": storage.labels(site),
            },
        ),
    ]


def _commands(site: Site) -> dict[str, str]:
    """The commands of a node that are Google Cloud's own."""
    where = f"--zone {network.zone(site)}"
    leave = (
        f"gcloud --quiet compute instance-groups managed delete-instances {group(site)} {where}"
        ' --instances "$(hostname -s)"'
    )
    peers = (
        f"gcloud compute instances list --filter='name~^{site.short}-n-'"
        " --format='value(networkInterfaces[0].networkIP)' | sort"
    )
    fetch = f"gcloud storage rsync -r gs://{storage.bucket(site)}/ /models/"
    keep = f"gcloud storage rsync -r {site.checkpoints} gs://{storage.bucket(site)}/checkpoints"
    notice = (
        "curl -sH Metadata-Flavor:Google"
        " http://metadata.google.internal/computeMetadata/v1/instance/preempted | grep -q TRUE"
    )
    return {
        "give_back": leave,
        "peers": peers,
        "fetch": fetch,
        "keep": keep,
        "notice": notice,
        **files.commands(site),
    }
