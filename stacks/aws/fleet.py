"""The machines: a launch template, an Auto Scaling group, and a load balancer in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.bill_line import usage_value
from stacks.aws import fabric, files, identity, network, storage
from stacks.cloud import read_node_commands
from stacks.graph import Resource, ref
from stacks.stack_spec import SERVING_PORT, lookup_table
from stacks.user_data import base64_text

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.cloud import NodeCommands
    from stacks.graph import Reference
    from stacks.stack_spec import StackSpec


def resources(stack: StackSpec, boot_script: str) -> list[Resource]:
    """Template, group and, for a service, its internal network load balancer."""
    return [
        _node_template(stack, boot_script),
        _node_group(stack),
        *(_load_balancer(stack) if stack.is_serving else []),
    ]


def outputs(stack: StackSpec) -> dict[str, Reference]:
    """What a user needs afterwards: the group, where it answers, where the weights go."""
    output_refs = {"group": ref("nodes", "name")}
    if stack.is_serving:
        output_refs["endpoint"] = ref("balancer", "dnsName")
    if stack.layout is not None:
        output_refs["models"] = ref("models", "bucket")
    return output_refs


def _node_template(stack: StackSpec, boot_script: str) -> Resource:
    template_inputs = {
        "instanceType": stack.instance.instance_type,
        "imageId": lookup_table("images.csv", "image", "reference")["aws"],
        "iamInstanceProfile": {"arn": ref("node-profile", "arn")},
        "ebsOptimized": "true",
        "instanceInitiatedShutdownBehavior": "terminate",
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 2,
        },
        "monitoring": {"enabled": True},
        "blockDeviceMappings": _node_disks(stack),
        "networkInterfaces": fabric.interfaces(stack),
        "userData": base64_text(boot_script),
        "tagSpecifications": [
            {
                "resourceType": resource_type,
                "tags": {**stack.tags, "Name": f"{stack.name}-node"},
            }
            for resource_type in ("instance", "volume", "network-interface")
        ],
        "tags": stack.tags,
    }
    return Resource(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        name="node-template",
        inputs=template_inputs,
    )


def _node_disks(stack: StackSpec) -> list[Properties]:
    disk_sizes_gb = {"/dev/sda1": int(usage_value("boot_disk_gb"))}
    if stack.data_disk_gb:
        disk_sizes_gb["/dev/sdf"] = stack.data_disk_gb
    return [
        {
            "deviceName": device_name,
            "ebs": {
                "volumeType": "gp3",
                "volumeSize": size_gb,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
        }
        for device_name, size_gb in disk_sizes_gb.items()
    ]


def _node_group(stack: StackSpec) -> Resource:
    """The group. It may shrink to nothing, or an idle node could not leave it.

    The schedule and the agents change the number of nodes too; an apply sets it only when the plan
    asks for another one, because inputs are compared with inputs.
    """
    template_version = {"version": ref("node-template", "latestVersion")}
    group_inputs: Properties = {
        "name": identity.group_name(stack),
        "minSize": 0,
        "maxSize": stack.nodes,
        "desiredCapacity": stack.nodes,
        "vpcZoneIdentifiers": network.subnet_refs(stack),
        "healthCheckType": "EC2",
        "healthCheckGracePeriod": 900,
        "waitForCapacityTimeout": "0",
        # A new template reaches running machines too, half of them at a time.
        "instanceRefresh": {
            "strategy": "Rolling",
            "preferences": {"minHealthyPercentage": 50},
        },
        "tags": [
            {"key": tag_key, "value": tag_value, "propagateAtLaunch": False}
            for tag_key, tag_value in sorted(stack.tags.items())
        ],
    }
    if stack.is_spot:
        launch_template = {
            "launchTemplateId": ref("node-template"),
            **template_version,
        }
        group_inputs["capacityRebalance"] = True
        group_inputs["mixedInstancesPolicy"] = {
            "launchTemplate": {"launchTemplateSpecification": launch_template},
            "instancesDistribution": {
                "onDemandBaseCapacity": 0,
                "onDemandPercentageAboveBaseCapacity": 0,
                "spotAllocationStrategy": "price-capacity-optimized",
            },
        }
    else:
        group_inputs["launchTemplate"] = {
            "id": ref("node-template"),
            **template_version,
        }
    if stack.spans_nodes:
        group_inputs["placementGroup"] = ref("together", "name")
    dependencies = [*network.prerequisites(stack), *files.prerequisites(stack)]
    if stack.is_serving:
        group_inputs["targetGroupArns"] = [ref("targets", "arn")]
        dependencies.append("listener")
    return Resource(
        type="aws:autoscaling/group:Group",
        name="nodes",
        inputs=group_inputs,
        depends_on=tuple(sorted(dependencies)),
        options={"delete_timeout": "45m"},
    )


def _load_balancer(stack: StackSpec) -> list[Resource]:
    health_check = {
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
                "subnets": network.subnet_refs(stack),
                "securityGroups": [ref("nodes-group")],
                "enableCrossZoneLoadBalancing": True,
                "tags": stack.tags,
            },
        ),
        Resource(
            type="aws:lb/targetGroup:TargetGroup",
            name="targets",
            inputs={
                "port": SERVING_PORT,
                "protocol": "TCP",
                "targetType": "instance",
                "vpcId": ref("vpc"),
                "deregistrationDelay": 120,
                "healthCheck": health_check,
                "tags": stack.tags,
            },
        ),
        Resource(
            type="aws:lb/listener:Listener",
            name="listener",
            inputs={
                "loadBalancerArn": ref("balancer", "arn"),
                "port": SERVING_PORT,
                "protocol": "TCP",
                "defaultActions": [
                    {"type": "forward", "targetGroupArn": ref("targets", "arn")}
                ],
                "tags": stack.tags,
            },
        ),
    ]


def node_commands(stack: StackSpec) -> NodeCommands:
    """The commands of a node that are AWS's own."""
    return read_node_commands(
        "stacks.aws",
        {
            "region": stack.region,
            "group": identity.group_name(stack),
            "bucket": storage.bucket_name(stack),
            "checkpoints": stack.checkpoint_dir,
            "stack": stack.name,
        },
    )
