"""The bucket of the model weights: private, and encrypted at rest and on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stacks.graph import Resource, ref
from stacks.runtime.vm.node.unique import unique_place

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec


def bucket_name(stack: StackSpec) -> str:
    """Its name, which must be unique in the world."""
    return f"{stack.name}-models-{unique_place(stack.digest)}"


def _tls_policy(name: str) -> Properties:
    """Nobody reads or writes it without encryption on the way."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OverTlsAlone",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


def _encryption_rule(stack: StackSpec) -> Properties:
    """How objects are encrypted. A key of the bucket saves a request for each object."""
    if not stack.customer_key:
        return {
            "applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}
        }
    return {
        "applyServerSideEncryptionByDefault": {
            "sseAlgorithm": "aws:kms",
            "kmsMasterKeyId": stack.customer_key,
        },
        "bucketKeyEnabled": True,
    }


def _checkpoint_expiry(stack: StackSpec) -> Resource:
    """Checkpoints go a month after the run, unless the stack is protected.

    The rule stands in both cases: what would be taken away may be kept beside its bucket.
    """
    return Resource(
        type="aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        name="checkpoints-expire",
        inputs={
            "bucket": ref("models"),
            "rules": [
                {
                    "id": "checkpoints",
                    "status": "Enabled"
                    if stack.expires_checkpoints
                    else "Disabled",
                    "filter": {"prefix": "checkpoints/"},
                    "expiration": {"days": stack.checkpoint_expiry_days},
                    "abortIncompleteMultipartUpload": {
                        "daysAfterInitiation": 1
                    },
                }
            ],
        },
    )


def resources(stack: StackSpec) -> list[Resource]:
    """The bucket, with public access blocked, and encryption at rest and on the way."""
    resource_tags = {**stack.tags, "Name": f"{stack.name}-models"}
    return [
        *([_checkpoint_expiry(stack)] if stack.is_training else []),
        Resource(
            type="aws:s3/bucket:Bucket",
            name="models",
            inputs={
                "bucket": bucket_name(stack),
                "forceDestroy": True,
                "tags": resource_tags,
            },
        ),
        Resource(
            type="aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
            name="models-private",
            inputs={
                "bucket": ref("models"),
                "blockPublicAcls": True,
                "blockPublicPolicy": True,
                "ignorePublicAcls": True,
                "restrictPublicBuckets": True,
            },
        ),
        Resource(
            type="aws:s3/bucketPolicy:BucketPolicy",
            name="models-over-tls",
            inputs={
                "bucket": ref("models"),
                "policy": json.dumps(
                    _tls_policy(bucket_name(stack)), sort_keys=True
                ),
            },
            # A policy that comes at the same time as the block may be refused for it.
            depends_on=("models-private",),
        ),
        Resource(
            type="aws:s3/bucketServerSideEncryptionConfiguration:"
            "BucketServerSideEncryptionConfiguration",
            name="models-encrypted",
            inputs={
                "bucket": ref("models"),
                "rules": [_encryption_rule(stack)],
            },
        ),
    ]
