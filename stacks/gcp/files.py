"""The parallel file system of a training job: Managed Lustre, reached over a peered network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp import network, storage
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.stack_spec import StackSpec

# Bits of the range that Google Cloud takes addresses of.
PEERED_PREFIX_BITS: Final = 20
MOUNT_SCRIPT: Final = """
command -v mount.lustre || {{
  curl -fsSL https://us-apt.pkg.dev/doc/repo-signing-key.gpg \\
    | gpg --dearmor > /usr/share/keyrings/lustre.gpg
  echo "deb [signed-by=/usr/share/keyrings/lustre.gpg] \\
https://us-apt.pkg.dev/projects/lustre-client-binaries \\
lustre-client-ubuntu-$(lsb_release -cs) main" \\
    > /etc/apt/sources.list.d/lustre.list
  apt-get update -q
  apt-get install -qy lustre-client-modules-$(uname -r) lustre-client-utils
}}
mount -t lustre "$(gcloud lustre instances describe {name} --location {zone} \\
  --format='value(mountPoint)')" /data"""
FILL_COMMAND: Final = (
    "gcloud --quiet lustre instances import-data {name} --location {zone}"
    " --gcs-path-uri {location} --lustre-path /dataset"
)


def resources(stack: StackSpec) -> list[Resource]:
    """A range of addresses, the peering that uses it, and the file system."""
    if stack.file_system is None:
        return []
    return [
        Resource(
            type="gcp:compute/globalAddress:GlobalAddress",
            name="peered-range",
            inputs={
                "name": f"{stack.name}-peered",
                "purpose": "VPC_PEERING",
                "addressType": "INTERNAL",
                "prefixLength": PEERED_PREFIX_BITS,
                "network": ref("net"),
            },
        ),
        Resource(
            type="gcp:servicenetworking/connection:Connection",
            name="peering",
            inputs={
                "network": ref("net"),
                "service": "servicenetworking.googleapis.com",
                "reservedPeeringRanges": [ref("peered-range", "name")],
            },
        ),
        Resource(
            type="gcp:lustre/instance:Instance",
            name="data-files",
            inputs={
                "instanceId": _file_system_name(stack),
                "filesystem": "data",
                "network": ref("net"),
                "location": network.fleet_zone(stack),
                "capacityGib": str(stack.file_system.capacity_gib),
                "perUnitStorageThroughput": str(stack.file_system.mb_s_per_tib),
                "labels": storage.resource_labels(stack),
            },
            depends_on=("peering",),
        ),
    ]


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return ("data-files",) if stack.file_system is not None else ()


def mount_command(stack: StackSpec) -> str:
    """How a node mounts it."""
    return MOUNT_SCRIPT.format(
        name=_file_system_name(stack), zone=network.fleet_zone(stack)
    )


def fill_command(stack: StackSpec) -> str:
    """How the dataset comes into it."""
    return FILL_COMMAND.format(
        name=_file_system_name(stack),
        zone=network.fleet_zone(stack),
        location=stack.dataset_uri,
    )


def _file_system_name(stack: StackSpec) -> str:
    return f"{stack.name}-data"
