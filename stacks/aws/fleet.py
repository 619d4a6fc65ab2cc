"""The machines: a launch template, an Auto Scaling group, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.cost.line import usage
from stacks.aws import fabric, files, identity, network, storage
from stacks.graph import Resource, ref
from stacks.node.bootstrap import encoded, script
from stacks.site import PORT, table

if TYPE_CHECKING:
    from stacks.site import Site


def resources(site: Site) -> list[Resource]:
    """Template, group and, for a service, its internal network load balancer."""
    return [
        _template(site),
        _group(site),
        *(_balancer(site) if site.served else []),
    ]


def outputs(site: Site) -> dict[str, dict[str, str]]:
    """What a user needs afterwards: the group, where it answers, where the weights go."""
    found = {"group": ref("nodes", "name")}
    if site.served:
        found["endpoint"] = ref("balancer", "dnsName")
    if site.layout is not None:
        found["models"] = ref("models", "bucket")
    return found


def _template(site: Site) -> Resource:
    inputs = {
        "instanceType": site.instance.instance_type,
        "imageId": table("images.csv", "image", "reference")["aws"],
        "iamInstanceProfile": {"arn": ref("node-profile", "arn")},
        "ebsOptimized": "true",
        "instanceInitiatedShutdownBehavior": "terminate",
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 2,
        },
        "monitoring": {"enabled": True},
        "blockDeviceMappings": _disks(site),
        "networkInterfaces": fabric.interfaces(site),
        "userData": encoded(script(site, _commands(site))),
        "tagSpecifications": [
            {
                "resourceType": kind,
                "tags": {**site.tags, "Name": f"{site.name}-node"},
            }
            for kind in ("instance", "volume", "network-interface")
        ],
        "tags": site.tags,
    }
    return Resource(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        name="node-template",
        inputs=inputs,
    )


def _disks(site: Site) -> list[dict[str, Any]]:
    sizes = {"/dev/sda1": int(usage("boot_disk_gb"))}
    if site.cache_gb:
        sizes["/dev/sdf"] = site.cache_gb
    return [
        {
            "deviceName": name,
            "ebs": {
                "volumeType": "gp3",
                "volumeSize": size,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
        }
        for name, size in sizes.items()
    ]


def _group(site: Site) -> Resource:
    """The group. It may shrink to nothing, or an idle node could not leave it.

    The schedule and the agents change the number of nodes too; an apply sets it only when the plan
    asks for another one, because inputs are compared with inputs.
    """
    template = {"version": ref("node-template", "latestVersion")}
    inputs: dict[str, Any] = {
        "name": identity.group(site),
        "minSize": 0,
        "maxSize": site.nodes,
        "desiredCapacity": site.nodes,
        "vpcZoneIdentifiers": network.subnets(site),
        "healthCheckType": "EC2",
        "healthCheckGracePeriod": 900,
        "waitForCapacityTimeout": "0",
        # A new template reaches running machines too, half of them at a time.
        "instanceRefresh": {
            "strategy": "Rolling",
            "preferences": {"minHealthyPercentage": 50},
        },
        "tags": [
            {"key": key, "value": value, "propagateAtLaunch": False}
            for key, value in sorted(site.tags.items())
        ],
    }
    if site.spot:
        launch = {"launchTemplateId": ref("node-template"), **template}
        inputs["capacityRebalance"] = True
        inputs["mixedInstancesPolicy"] = {
            "launchTemplate": {"launchTemplateSpecification": launch},
            "instancesDistribution": {
                "onDemandBaseCapacity": 0,
                "onDemandPercentageAboveBaseCapacity": 0,
                "spotAllocationStrategy": "price-capacity-optimized",
            },
        }
    else:
        inputs["launchTemplate"] = {"id": ref("node-template"), **template}
    if site.together:
        inputs["placementGroup"] = ref("together", "name")
    after = [*network.ready(site), *files.ready(site)]
    if site.served:
        inputs["targetGroupArns"] = [ref("targets", "arn")]
        after.append("listener")
    return Resource(
        type="aws:autoscaling/group:Group",
        name="nodes",
        inputs=inputs,
        depends_on=tuple(sorted(after)),
        options={"delete_timeout": "45m"},
    )


def _balancer(site: Site) -> list[Resource]:
    health = {
        "enabled": True,
        "protocol": "HTTP",
        "path": "/health",
        "port": "traffic-port",
        "matcher": "200",
        "interval": 10,
        "timeout": 6,
        "healthyThreshold": 2,
        "unhealthyThreshold": 3,
    }
    return [
        Resource(
            type="aws:lb/loadBalancer:LoadBalancer",
            name="balancer",
            inputs={
                "loadBalancerType": "network",
                "internal": True,
                "ipAddressType": "ipv4",
                "subnets": network.subnets(site),
                "securityGroups": [ref("nodes-group")],
                "enableCrossZoneLoadBalancing": True,
                "tags": site.tags,
            },
        ),
        Resource(
            type="aws:lb/targetGroup:TargetGroup",
            name="targets",
            inputs={
                "port": PORT,
                "protocol": "TCP",
                "targetType": "instance",
                "vpcId": ref("vpc"),
                "deregistrationDelay": 120,
                "healthCheck": health,
                "tags": site.tags,
            },
        ),
        Resource(
            type="aws:lb/listener:Listener",
            name="listener",
            inputs={
                "loadBalancerArn": ref("balancer", "arn"),
                "port": PORT,
                "protocol": "TCP",
                "defaultActions": [
                    {"type": "forward", "targetGroupArn": ref("targets", "arn")}
                ],
                "tags": site.tags,
            },
        ),
    ]


def _commands(site: Site) -> dict[str, str]:
    """The commands of a node that are AWS's own."""
    itself = (
        "T=$(curl -sX PUT http://169.254.169.254/latest/api/token"
        " -H 'X-aws-ec2-metadata-token-ttl-seconds: 60');"
        ' I=$(curl -sH "X-aws-ec2-metadata-token: $T"'
        " http://169.254.169.254/latest/meta-data/instance-id);"
    )
    leave = (
        f" aws --region {site.region} autoscaling terminate-instance-in-auto-scaling-group"
        " --instance-id $I --should-decrement-desired-capacity"
    )
    peers = (
        f"aws --region {site.region} ec2 describe-instances"
        f" --filters Name=tag:aws:autoscaling:groupName,Values={identity.group(site)}"
        " Name=instance-state-name,Values=running"
        " --query 'Reservations[].Instances[].PrivateIpAddress' --output text | tr '\\t' '\\n'"
        " | sort"
    )
    fetch = f"aws --region {site.region} s3 sync s3://{storage.bucket(site)}/ /models/"
    keep = (
        f"aws --region {site.region} s3 sync {site.checkpoints}"
        f" s3://{storage.bucket(site)}/checkpoints"
    )
    notice = (
        "T=$(curl -sX PUT http://169.254.169.254/latest/api/token"
        " -H 'X-aws-ec2-metadata-token-ttl-seconds: 60');"
        ' curl -sfH "X-aws-ec2-metadata-token: $T"'
        " http://169.254.169.254/latest/meta-data/spot/instance-action"
    )
    return {
        "give_back": itself + leave,
        "peers": peers,
        "fetch": fetch,
        "keep": keep,
        "notice": notice,
        **files.commands(site),
    }
