"""The bucket of the model weights, private and uniform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import Resource, ref
from stacks.runtime.vm.node.unique import unique_place

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec
    from stacks.spec.upload import BucketPlace


def bucket_name(stack: StackSpec) -> str:
    """Its name, which must be unique in the world."""
    return f"{stack.name}-models-{unique_place(stack.digest)}"


def resource_labels(stack: StackSpec) -> dict[str, str]:
    """The tags of a stack as labels."""
    return labels_of(stack.tags)


def labels_of(tags: dict[str, str]) -> dict[str, str]:
    """Tags as labels: lower case, of a-z, 0-9, _ and -."""

    def clean_label(tag_text: str) -> str:
        label_letters = (
            letter
            if letter.isascii() and (letter.isalnum() or letter in "_-")
            else "-"
            for letter in tag_text.lower()
        )
        return "".join(label_letters)[:63]

    return {
        clean_label(tag_key): clean_label(tag_value)
        for tag_key, tag_value in tags.items()
    }


def disk_key(stack: StackSpec) -> Properties:
    """The key of a disk; nothing where that of Google Cloud does."""
    if not stack.customer_key:
        return {}
    return {"diskEncryptionKey": {"kmsKeySelfLink": stack.customer_key}}


def _checkpoint_expiry(stack: StackSpec) -> list[Properties]:
    """Checkpoints go a month after the run, unless the stack is protected."""
    if not stack.expires_checkpoints:
        return []
    return [
        {
            "action": {"type": "Delete"},
            "condition": {
                "age": stack.checkpoint_expiry_days,
                "matchesPrefixes": ["checkpoints/"],
            },
        }
    ]


def _written_objects(stack: StackSpec) -> str:
    """The condition, in the language of Google, that an object is in a folder for nodes."""
    bucket = bucket_name(stack)
    return " || ".join(
        f'resource.name.startsWith("projects/_/buckets/{bucket}/objects/{folder}/")'
        for folder in stack.written_folders
    )


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes read from buckets of others."""
    return tuple(f"{part}-read" for part, _ in _other_buckets(stack))


def _other_buckets(stack: StackSpec) -> list[tuple[str, BucketPlace]]:
    """Return the buckets of others that nodes read, each with what is in it."""
    places = {"weights": stack.weights_place, "dataset": stack.dataset_place}
    return [
        (part, place) for part, place in places.items() if place is not None
    ]


def resources(stack: StackSpec) -> list[Resource]:
    """The bucket, and the right of the nodes to read it, and to write some of its folders.

    They also read the buckets of weights and dataset, when these are others.
    """
    others = [
        Resource(
            type="gcp:storage/bucketIAMMember:BucketIAMMember",
            name=f"{part}-read",
            inputs={
                "bucket": place.bucket,
                "role": "roles/storage.objectViewer",
                "member": ref("node-account", "member"),
            },
        )
        for part, place in _other_buckets(stack)
    ]
    return [
        *others,
        Resource(
            type="gcp:storage/bucket:Bucket",
            name="models",
            inputs={
                "name": bucket_name(stack),
                "location": stack.region.upper(),
                "storageClass": "STANDARD",
                "uniformBucketLevelAccess": True,
                "publicAccessPrevention": "enforced",
                "forceDestroy": True,
                "labels": resource_labels(stack),
                **(
                    {"encryption": {"defaultKmsKeyName": stack.customer_key}}
                    if stack.customer_key
                    else {}
                ),
                "lifecycleRules": _checkpoint_expiry(stack),
            },
        ),
        Resource(
            type="gcp:storage/bucketIAMMember:BucketIAMMember",
            name="models-read",
            inputs={
                "bucket": ref("models", "name"),
                "role": "roles/storage.objectViewer",
                "member": ref("node-account", "member"),
            },
        ),
        Resource(
            type="gcp:storage/bucketIAMMember:BucketIAMMember",
            name="models-write",
            inputs={
                "bucket": ref("models", "name"),
                "role": "roles/storage.objectUser",
                "member": ref("node-account", "member"),
                "condition": {
                    "title": "folders that nodes write",
                    "expression": _written_objects(stack),
                },
            },
        ),
    ]
