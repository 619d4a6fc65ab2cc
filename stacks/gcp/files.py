"""The parallel file system of a training job: Managed Lustre, reached over a peered network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp import network, storage
from stacks.graph import Resource, ref
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

# The range that Google Cloud takes addresses of.
PEERED_END: Final = "64.0"
PEERED_PREFIX_BITS: Final = 20
# Servers of Lustre open connections to its clients too.
LUSTRE_PORT: Final = 988


def resources(stack: StackSpec) -> list[Resource]:
    """A range of addresses, the peering that uses it, and the file system."""
    job_fleet = stack.job_fleet
    if stack.file_system is None or job_fleet is None:
        return []
    if stack.given_network is not None:
        raise stack_error(
            "Managed Lustre needs a peering, which tonnage makes in no network of others",
            "read the data from objects: data: {storage: object}",
        )
    return [
        Resource(
            type="gcp:compute/globalAddress:GlobalAddress",
            name="peered-range",
            inputs={
                "name": network.global_name(stack, "peered"),
                "purpose": "VPC_PEERING",
                "addressType": "INTERNAL",
                "address": stack.addresses(PEERED_END),
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
                # Google Cloud keeps it for days after its last user; it goes with the network.
                "deletionPolicy": "ABANDON",
            },
        ),
        network.security_rule(
            stack,
            "net-files",
            ref("net"),
            (stack.addresses(f"{PEERED_END}/{PEERED_PREFIX_BITS}"),),
            [{"protocol": "tcp", "ports": [str(LUSTRE_PORT)]}],
        ),
        Resource(
            type="gcp:lustre/instance:Instance",
            name="data-files",
            inputs={
                "instanceId": file_system_name(stack),
                "filesystem": "data",
                "network": ref("net"),
                "location": network.fleet_zone(job_fleet),
                "capacityGib": str(stack.file_system.capacity_gib),
                "perUnitStorageThroughput": str(stack.file_system.mb_s_per_tib),
                **(
                    {"kmsKey": stack.customer_key} if stack.customer_key else {}
                ),
                "labels": storage.resource_labels(stack),
            },
            depends_on=("peering",),
        ),
    ]


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return ("data-files", "net-files") if stack.file_system is not None else ()


def file_system_name(stack: StackSpec) -> str:
    """Return the name of the file system of a stack."""
    return f"{stack.name}-data"
