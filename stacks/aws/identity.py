"""Who nodes are and what they may do: end themselves, read their weights, write their logs.

Policies are text and cannot hold references, so the names in them are fixed beforehand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stacks.aws import storage
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec
    from stacks.spec.upload import BucketPlace


def log_group_name(stack: StackSpec) -> str:
    """The name of the log group."""
    return f"/tonnage/{stack.name}"


def iam_role_name(stack: StackSpec, principal_name: str) -> str:
    """Roles are global to an account, so their names carry the digest."""
    return f"{stack.name}-{principal_name}-{stack.digest}"


def group_arn_patterns(stack: StackSpec) -> list[str]:
    """A pattern for each Auto Scaling group of the stack, which only that group matches."""
    any_group = (
        "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName"
    )
    return [
        f"{any_group}/{stack.group_pattern(group)}"
        for _, group in stack.scaling_groups
    ]


def resources(stack: StackSpec) -> list[Resource]:
    """The role of the nodes with its policies, and the profile that carries it."""
    profile_name = iam_role_name(stack, "node")
    role_policies = [
        role_policy(
            "node-own-group", "node", "own-group", _group_statements(stack)
        ),
        role_policy("node-logs", "node", "logs", _log_statements(stack)),
        role_policy("node-session", "node", "session", _session_statements()),
        role_policy("node-models", "node", "models", _model_statements(stack)),
    ]
    role_policies += [
        role_policy(f"node-{part}", "node", part, [_secret_statement(name)])
        for part, name in stack.secrets.items()
    ]
    role_policies += [
        role_policy(
            f"node-{part}", "node", part, _folder_statements(bucket_folder)
        )
        for part, bucket_folder in (
            ("weights", stack.weights_place),
            ("dataset", stack.dataset_place),
        )
        if bucket_folder is not None
    ]
    if stack.customer_key:
        role_policies.append(
            role_policy("node-key", "node", "key", [_key_statement(stack)])
        )
    if stack.file_system is not None:
        find_statement = {
            "Effect": "Allow",
            "Action": "fsx:DescribeFileSystems",
            "Resource": "*",
        }
        role_policies.append(
            role_policy("node-files", "node", "files", [find_statement])
        )
    return [
        iam_role(stack, "node", "ec2.amazonaws.com"),
        *role_policies,
        Resource(
            type="aws:iam/instanceProfile:InstanceProfile",
            name="node-profile",
            inputs={
                "name": profile_name,
                "role": ref("node", "name"),
                "tags": stack.tags,
            },
            depends_on=tuple(sorted(policy.name for policy in role_policies)),
        ),
    ]


def iam_role(
    stack: StackSpec, principal_name: str, service_domain: str
) -> Resource:
    """A role that one service of AWS may assume."""
    trust_statement = {
        "Effect": "Allow",
        "Principal": {"Service": service_domain},
        "Action": "sts:AssumeRole",
    }
    return Resource(
        type="aws:iam/role:Role",
        name=principal_name,
        inputs={
            "name": iam_role_name(stack, principal_name),
            "assumeRolePolicy": policy_document([trust_statement]),
            "tags": stack.tags,
        },
    )


def policy_document(statements: list[Properties]) -> str:
    """A policy document as the text that AWS takes."""
    policy_body = {"Version": "2012-10-17", "Statement": statements}
    return json.dumps(policy_body, sort_keys=True, separators=(",", ":"))


def role_policy(
    resource_name: str,
    principal_name: str,
    policy_name: str,
    statements: list[Properties],
) -> Resource:
    """What a role of the stack may do."""
    return Resource(
        type="aws:iam/rolePolicy:RolePolicy",
        name=resource_name,
        inputs={
            "role": ref(principal_name, "name"),
            "name": policy_name,
            "policy": policy_document(statements),
        },
    )


def scale_policy(stack: StackSpec, principal_name: str) -> Resource:
    """Lets a role set the sizes of the stack's own groups, and nothing else."""
    allow_statement = {
        "Effect": "Allow",
        "Action": "autoscaling:UpdateAutoScalingGroup",
        "Resource": group_arn_patterns(stack),
    }
    return role_policy(
        f"{principal_name}-scale",
        principal_name,
        "scale-own-group",
        [allow_statement],
    )


def _group_statements(stack: StackSpec) -> list[Properties]:
    actions = ["autoscaling:TerminateInstanceInAutoScalingGroup"]
    reading: list[Properties] = []
    if stack.is_elastic:
        actions.append("autoscaling:SetDesiredCapacity")
        reading.append(
            {
                "Effect": "Allow",
                "Action": ["autoscaling:DescribeAutoScalingGroups"],
                # What describes groups knows no single ones.
                "Resource": "*",
            }
        )
    return [
        {
            "Effect": "Allow",
            "Action": actions,
            "Resource": group_arn_patterns(stack),
        },
        *reading,
    ]


def _log_statements(stack: StackSpec) -> list[Properties]:
    return [
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": f"arn:aws:logs:*:*:log-group:{log_group_name(stack)}:*",
        },
        {
            "Effect": "Allow",
            "Action": "cloudwatch:PutMetricData",
            "Resource": "*",
            "Condition": {"StringEquals": {"cloudwatch:namespace": "tonnage"}},
        },
    ]


def _model_statements(stack: StackSpec) -> list[Properties]:
    bucket_arn = f"arn:aws:s3:::{storage.bucket_name(stack)}"
    return [
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket_arn},
        {
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": f"{bucket_arn}/*",
        },
        {
            "Effect": "Allow",
            "Action": ["s3:DeleteObject", "s3:PutObject"],
            "Resource": [
                f"{bucket_arn}/{folder}/*" for folder in stack.written_folders
            ],
        },
    ]


def _folder_statements(place: BucketPlace) -> list[Properties]:
    """One folder of a bucket, to be read."""
    bucket_arn = f"arn:aws:s3:::{place.bucket}"
    return [
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket_arn,
            "Condition": {"StringLike": {"s3:prefix": f"{place.prefix}*"}},
        },
        {
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": f"{bucket_arn}/{place.prefix}*",
        },
    ]


def key_inputs(stack: StackSpec) -> Properties:
    """The key of disks, file systems and logs; nothing where that of AWS does."""
    return {"kmsKeyId": stack.customer_key} if stack.customer_key else {}


def _key_statement(stack: StackSpec) -> Properties:
    """What machines do with the key of the objects that they read and write."""
    return {
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Resource": stack.customer_key,
    }


def _secret_statement(secret_name: str) -> Properties:
    """One secret, whose ARN ends with six letters that AWS adds."""
    return {
        "Effect": "Allow",
        "Action": "secretsmanager:GetSecretValue",
        "Resource": f"arn:aws:secretsmanager:*:*:secret:{secret_name}-??????",
    }


def _session_statements() -> list[Properties]:
    """A shell through Session Manager, without an open port or a key."""
    session_actions = [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ]
    return [{"Effect": "Allow", "Action": session_actions, "Resource": "*"}]
