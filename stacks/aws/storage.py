"""The bucket of the model weights, private and encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec


def bucket_name(stack: StackSpec) -> str:
    """Its name, which must be unique in the world."""
    return f"{stack.name}-models-{stack.digest}"


def _checkpoint_expiry(stack: StackSpec) -> Resource:
    """Checkpoints go a month after the run; what is to stay is copied elsewhere in the bucket."""
    return Resource(
        type="aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        name="checkpoints-expire",
        inputs={
            "bucket": ref("models"),
            "rules": [
                {
                    "id": "checkpoints",
                    "status": "Enabled",
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
    """The bucket, with public access blocked and encryption at rest."""
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
            type="aws:s3/bucketServerSideEncryptionConfiguration:"
            "BucketServerSideEncryptionConfiguration",
            name="models-encrypted",
            inputs={
                "bucket": ref("models"),
                "rules": [
                    {
                        "applyServerSideEncryptionByDefault": {
                            "sseAlgorithm": "AES256"
                        }
                    }
                ],
            },
        ),
    ]
