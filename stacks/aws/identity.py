"""Who nodes are and what they may do: end themselves, read their weights, write their logs.

Policies are text and cannot hold references, so the names in them are fixed beforehand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stacks.aws import storage
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site


def group(site: Site) -> str:
    """The name of the Auto Scaling group."""
    return f"{site.name}-nodes"


def log_group(site: Site) -> str:
    """The name of the log group."""
    return f"/tonnage/{site.name}"


def role_name(site: Site, part: str) -> str:
    """Roles are global to an account, so their names carry the digest."""
    return f"{site.name}-{part}-{site.digest}"


def group_arn(site: Site) -> str:
    """A pattern that only the fleet's own group matches."""
    return f"arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/{group(site)}"


def resources(site: Site) -> list[Resource]:
    """The role of the nodes with its policies, and the profile that carries it."""
    name = role_name(site, "node")
    policies = [
        _policy("node-own-group", "node", "own-group", _own_group(site)),
        _policy("node-logs", "node", "logs", _logs(site)),
        _policy("node-session", "node", "session", _session()),
    ]
    if site.layout is not None:
        policies.append(_policy("node-models", "node", "models", _models(site)))
    if site.together:
        find = {
            "Effect": "Allow",
            "Action": "ec2:DescribeInstances",
            "Resource": "*",
        }
        policies.append(_policy("node-peers", "node", "peers", [find]))
    if site.files is not None:
        find = {
            "Effect": "Allow",
            "Action": "fsx:DescribeFileSystems",
            "Resource": "*",
        }
        policies.append(_policy("node-files", "node", "files", [find]))
    return [
        role(site, "node", "ec2.amazonaws.com"),
        *policies,
        Resource(
            type="aws:iam/instanceProfile:InstanceProfile",
            name="node-profile",
            inputs={
                "name": name,
                "role": ref("node", "name"),
                "tags": site.tags,
            },
            depends_on=tuple(sorted(p.name for p in policies)),
        ),
    ]


def role(site: Site, name: str, service: str) -> Resource:
    """A role that one service of AWS may assume."""
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    return Resource(
        type="aws:iam/role:Role",
        name=name,
        inputs={
            "name": role_name(site, name),
            "assumeRolePolicy": document([trust]),
            "tags": site.tags,
        },
    )


def document(statements: list[dict[str, Any]]) -> str:
    """A policy document as the text that AWS takes."""
    body = {"Version": "2012-10-17", "Statement": statements}
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _policy(
    name: str, role_: str, title: str, statements: list[dict[str, Any]]
) -> Resource:
    return Resource(
        type="aws:iam/rolePolicy:RolePolicy",
        name=name,
        inputs={
            "role": ref(role_, "name"),
            "name": title,
            "policy": document(statements),
        },
    )


def scale_policy(site: Site, role_: str) -> Resource:
    """Lets a role set the size of the fleet's own group, and nothing else."""
    allow = {
        "Effect": "Allow",
        "Action": "autoscaling:UpdateAutoScalingGroup",
        "Resource": group_arn(site),
    }
    return _policy(f"{role_}-scale", role_, "scale-own-group", [allow])


def _own_group(site: Site) -> list[dict[str, Any]]:
    return [
        {
            "Effect": "Allow",
            "Action": ["autoscaling:TerminateInstanceInAutoScalingGroup"],
            "Resource": group_arn(site),
        },
        {
            "Effect": "Allow",
            "Action": ["autoscaling:DescribeAutoScalingInstances"],
            "Resource": "*",
        },
    ]


def _logs(site: Site) -> list[dict[str, Any]]:
    return [
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": f"arn:aws:logs:*:*:log-group:{log_group(site)}:*",
        },
        {
            "Effect": "Allow",
            "Action": "cloudwatch:PutMetricData",
            "Resource": "*",
            "Condition": {"StringEquals": {"cloudwatch:namespace": "tonnage"}},
        },
    ]


def _models(site: Site) -> list[dict[str, Any]]:
    arn = f"arn:aws:s3:::{storage.bucket(site)}"
    return [
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": arn},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{arn}/*"},
        *(
            [
                {
                    "Effect": "Allow",
                    "Action": "s3:PutObject",
                    "Resource": f"{arn}/checkpoints/*",
                }
            ]
            if site.trains
            else []
        ),
    ]


def _session() -> list[dict[str, Any]]:
    """A shell through Session Manager, without an open port or a key."""
    actions = [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]
    return [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
