"""The bucket of the model weights, private and uniform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site


# Checkpoints are kept for a month; what is to stay is copied elsewhere in the bucket.
LIFECYCLE: Final = [
    {
        "action": {"type": "Delete"},
        "condition": {"age": 30, "matchesPrefixes": ["checkpoints/"]},
    }
]


def bucket(site: Site) -> str:
    """Its name, which must be unique in the world."""
    return f"{site.name}-models-{site.digest}"


def labels(site: Site) -> dict[str, str]:
    """Tags as labels: lower case, of a-z, 0-9, _ and -."""

    def clean(word: str) -> str:
        kept = (
            c if c.isascii() and (c.isalnum() or c in "_-") else "-"
            for c in word.lower()
        )
        return "".join(kept)[:63]

    return {clean(key): clean(value) for key, value in site.tags.items()}


def resources(site: Site) -> list[Resource]:
    """The bucket, and the right of the nodes to read it, or to write checkpoints too."""
    if site.layout is None:
        return []
    return [
        Resource(
            type="gcp:storage/bucket:Bucket",
            name="models",
            inputs={
                "name": bucket(site),
                "location": site.region.upper(),
                "storageClass": "STANDARD",
                "uniformBucketLevelAccess": True,
                "publicAccessPrevention": "enforced",
                "forceDestroy": True,
                "labels": labels(site),
                **({"lifecycleRules": LIFECYCLE} if site.trains else {}),
            },
        ),
        Resource(
            type="gcp:storage/bucketIAMMember:BucketIAMMember",
            name="models-read",
            inputs={
                "bucket": ref("models", "name"),
                "role": f"roles/storage.object{'User' if site.trains else 'Viewer'}",
                "member": ref("node-account", "member"),
            },
        ),
    ]
