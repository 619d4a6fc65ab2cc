"""The machines: launch templates, Auto Scaling groups, and a load balancer in front."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from planner.cost.lifetime import release_time
from planner.cost.usage import usage_value
from stacks.aws import (
    alarm,
    fabric,
    files,
    home,
    identity,
    network,
    placement,
    storage,
)
from stacks.cloud import group_outputs
from stacks.graph import Resource, ref
from stacks.spec.block import saving_moment
from stacks.spec.driver import image_reference
from stacks.spec.rolling import rolling_rule
from stacks.spec.stack import LINK_OUTPUT, SERVING_PORT
from stacks.spec.table import lookup_table
from stacks.user_data import base64_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot


def resources(
    stack: StackSpec, node_boots: Mapping[str, NodeBoot]
) -> list[Resource]:
    """Templates, groups and, for a service, its internal network load balancer."""
    fleet_resources = []
    for fleet, group in stack.scaling_groups:
        boot_script = node_boots[group.name].script
        fleet_resources += [
            *_program_object(group, node_boots[group.name]),
            _node_template(stack, fleet, group, boot_script),
            _node_group(stack, fleet, group),
        ]
    if stack.is_serving:
        fleet_resources += [*_load_balancer(stack), *_private_link(stack)]
    return fleet_resources


def outputs(stack: StackSpec) -> dict[str, Reference]:
    """What a user needs afterwards: groups, endpoint, bucket, dashboard."""
    output_refs = group_outputs(stack)
    if stack.is_serving:
        output_refs["endpoint"] = ref("balancer", "dnsName")
    if stack.linked_accounts:
        output_refs[LINK_OUTPUT] = ref("link", "serviceName")
    output_refs["bucket"] = ref("models", "bucket")
    output_refs["dashboard"] = ref("dashboard")
    return output_refs


def _program_object(group: ScalingGroup, node_boot: NodeBoot) -> list[Resource]:
    """What does not fit into user data; the agent of a machine brings it."""
    if not node_boot.program_key:
        return []
    return [
        Resource(
            type="aws:s3/bucketObjectv2:BucketObjectv2",
            name=f"{group.name}-program",
            inputs={
                "bucket": ref("models"),
                "key": node_boot.program_key,
                "content": node_boot.program_text,
            },
        )
    ]


def _node_template(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup, boot_script: str
) -> Resource:
    node_tags = {
        **stack.node_tags(fleet, group),
        "Name": stack.group_name(group),
    }
    template_inputs = {
        "instanceType": fleet.instance.instance_type,
        "imageId": image_reference(fleet.instance),
        "iamInstanceProfile": {"arn": ref("node-profile", "arn")},
        "ebsOptimized": "true",
        "instanceInitiatedShutdownBehavior": "terminate",
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 2,
        },
        "monitoring": {"enabled": True},
        "blockDeviceMappings": _node_disks(stack, fleet),
        "networkInterfaces": fabric.interfaces(stack, fleet),
        "userData": base64_text(boot_script),
        "tagSpecifications": [
            {"resourceType": resource_type, "tags": node_tags}
            for resource_type in ("instance", "volume", "network-interface")
        ],
        "tags": stack.tags,
    }
    if reservation := placement.reservation(fleet):
        template_inputs["capacityReservationSpecification"] = {
            "capacityReservationTarget": {"capacityReservationId": reservation}
        }
    if fleet.block is not None:
        template_inputs["instanceMarketOptions"] = {
            "marketType": "capacity-block"
        }
    return Resource(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        name=f"{group.name}-template",
        inputs=template_inputs,
    )


def _node_disks(stack: StackSpec, fleet: FleetSpec) -> list[Properties]:
    disk_sizes_gb = {"/dev/sda1": int(usage_value("boot_disk_gb"))}
    if fleet.data_disk_gb:
        disk_sizes_gb["/dev/sdf"] = fleet.data_disk_gb
    return [
        {
            "deviceName": device_name,
            "ebs": {
                "volumeType": "gp3",
                "volumeSize": size_gb,
                "encrypted": "true",
                **identity.key_inputs(stack),
                "deleteOnTermination": "true",
            },
        }
        for device_name, size_gb in disk_sizes_gb.items()
    ]


def _node_group(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Resource:
    """The group. It may shrink to nothing, or an idle node could not leave it.

    The schedule and the agents change the number of nodes too; an apply sets it only when the plan
    asks for another one, because inputs are compared with inputs.
    """
    template = f"{group.name}-template"
    group_inputs: Properties = {
        "name": stack.group_name(group),
        "minSize": 0,
        "maxSize": group.most_nodes,
        # Machines of a block come when it begins.
        "desiredCapacity": 0 if fleet.block is not None else group.nodes,
        "vpcZoneIdentifiers": network.subnets(stack, [fleet]),
        "healthCheckType": "EC2",
        "healthCheckGracePeriod": 900,
        "waitForCapacityTimeout": (
            f"{int(release_time('arrival_limit_s'))}s"
            if stack.awaits_machines
            else "0"
        ),
        # The alarm on lost agents compares them with the machines that are there.
        "metricsGranularity": "1Minute",
        "enabledMetrics": ["GroupInServiceInstances"],
        # A new template reaches running machines too.
        "instanceRefresh": {
            "strategy": "Rolling",
            "preferences": _refresh(stack, fleet, group),
        },
        "tags": [
            {"key": tag_key, "value": tag_value, "propagateAtLaunch": False}
            for tag_key, tag_value in sorted(
                stack.node_tags(fleet, group).items()
            )
        ],
    }
    if group.is_spot:
        group_inputs["capacityRebalance"] = True
    if group.is_spot or fleet.stand_ins:
        group_inputs["mixedInstancesPolicy"] = _mixed_policy(fleet, group)
    else:
        group_inputs["launchTemplate"] = {
            "id": ref(template),
            "version": ref(template, "latestVersion"),
        }
    if fleet.is_placed:
        group_inputs["placementGroup"] = ref(
            placement.group_resource(fleet), "name"
        )
    dependencies = [
        *network.prerequisites(stack, fleet),
        *files.prerequisites(stack),
        *home.prerequisites(stack),
    ]
    if fleet.is_serving:
        group_inputs["targetGroupArns"] = [ref("targets", "arn")]
        dependencies.append("listener")
    return Resource(
        type="aws:autoscaling/group:Group",
        name=f"{group.name}-nodes",
        inputs=group_inputs,
        depends_on=tuple(sorted(dependencies)),
        options={"delete_timeout": "45m"},
    )


def _mixed_policy(fleet: FleetSpec, group: ScalingGroup) -> Properties:
    """How a group takes machines on spot, or of several types: in their order, the own first."""
    template = f"{group.name}-template"
    launch_template: Properties = {
        "launchTemplateSpecification": {
            "launchTemplateId": ref(template),
            "version": ref(template, "latestVersion"),
        }
    }
    if fleet.stand_ins:
        launch_template["overrides"] = [
            {"instanceType": instance_type}
            for instance_type in (
                fleet.instance.instance_type,
                *fleet.stand_ins,
            )
        ]
    spot_strategy = (
        "capacity-optimized-prioritized"
        if fleet.stand_ins
        else "price-capacity-optimized"
    )
    return {
        "launchTemplate": launch_template,
        "instancesDistribution": {
            "onDemandBaseCapacity": 0,
            "onDemandPercentageAboveBaseCapacity": 0 if group.is_spot else 100,
            **(
                {"spotAllocationStrategy": spot_strategy}
                if group.is_spot
                else {"onDemandAllocationStrategy": "prioritized"}
            ),
        },
    }


def _refresh(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Properties:
    """How a refresh replaces machines. One that fails, or at which machines do, ends.

    The apply that began it goes back: Auto Scaling goes back to no template whose image is a
    parameter.

    percent that stay = 100 * (1 - share at once); those of a surge are rounded up to a machine
    """
    rule = rolling_rule("aws", fleet.work)
    if rule is None or not group.nodes:
        return {}
    preferences: Properties = {
        "minHealthyPercentage": int(100 * (1 - rule.share_at_once)),
        "skipMatching": True,
    }
    if rule.surge_nodes:
        surge_percent = math.ceil(100 * rule.surge_nodes / group.nodes)
        preferences |= {
            "maxHealthyPercentage": 100 + min(100, surge_percent),
            # Until then a new machine answers nothing.
            "instanceWarmup": str(math.ceil(fleet.startup_s)),
            "alarmSpecification": {
                "alarms": [alarm.trouble_name(stack, group)]
            },
        }
    return preferences


def _load_balancer(stack: StackSpec) -> list[Resource]:
    health_check = {
        "enabled": True,
        "protocol": "HTTP",
        "path": "/health",
        "port": str(SERVING_PORT),
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
                "internal": not stack.is_public,
                "ipAddressType": "ipv4",
                "subnets": network.balancer_subnets(stack),
                "securityGroups": [network.balancer_group(stack)],
                "enableCrossZoneLoadBalancing": True,
                **_link_rules(stack),
                "tags": stack.tags,
            },
            depends_on=network.balancer_prerequisites(stack),
        ),
        Resource(
            type="aws:lb/targetGroup:TargetGroup",
            name="targets",
            inputs={
                "port": stack.machine_port,
                "protocol": "TCP",
                "targetType": "instance",
                "vpcId": network.vpc(stack),
                "deregistrationDelay": 120,
                "healthCheck": health_check,
                # Answers on their way outlive the health of a machine, and of a router.
                "targetHealthStates": [
                    {"enableUnhealthyConnectionTermination": False}
                ],
                "tags": stack.tags,
            },
        ),
        Resource(
            type="aws:lb/listener:Listener",
            name="listener",
            inputs={
                "loadBalancerArn": ref("balancer", "arn"),
                "port": stack.client_port,
                **_listener_protocol(stack),
                "defaultActions": [
                    {"type": "forward", "targetGroupArn": ref("targets", "arn")}
                ],
                "tags": stack.tags,
            },
        ),
    ]


def _link_rules(stack: StackSpec) -> Properties:
    """Let clients of a private link through: their addresses are those of other networks."""
    if not stack.linked_accounts:
        return {}
    return {"enforceSecurityGroupInboundRulesOnPrivateLinkTraffic": "off"}


def _private_link(stack: StackSpec) -> list[Resource]:
    """The service that networks of other accounts connect to; those that are named, unasked."""
    if not stack.linked_accounts:
        return []
    return [
        Resource(
            type="aws:ec2/vpcEndpointService:VpcEndpointService",
            name="link",
            inputs={
                "acceptanceRequired": False,
                "networkLoadBalancerArns": [ref("balancer", "arn")],
                "allowedPrincipals": [
                    f"arn:aws:iam::{account}:root"
                    for account in stack.linked_accounts
                ],
                "tags": {**stack.tags, "Name": f"{stack.name}-link"},
            },
        )
    ]


def _listener_protocol(stack: StackSpec) -> Properties:
    """How clients speak to the balancer; what it does not end, it passes on."""
    if not stack.certificate:
        return {"protocol": "TCP"}
    return {
        "protocol": "TLS",
        "certificateArn": stack.certificate,
        "sslPolicy": lookup_table("limits.csv", "limit", "value")[
            "aws_tls_policy"
        ],
    }


def node_settings(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """What a node needs to know to speak to AWS."""
    place = stack.weights_place
    return {
        "region": stack.region,
        "bucket": storage.bucket_name(stack),
        "weights": {"bucket": place.bucket} if place else {},
        **(
            {"ends": saving_moment(fleet.block).isoformat()}
            if fleet.block is not None
            else {}
        ),
    }
