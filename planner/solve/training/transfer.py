"""How fast machines read and write storage while all of them do, bytes/s of one machine.

parallel file system  min(NIC, client, file system / machines)
object storage        min(NIC, machine, account / machines)

Every machine has a limit of its own, and all of them share that of the account.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from planner.facts.cloud import clouds
from planner.perf.common.constant import constant
from planner.units import BYTES_PER_GB

if TYPE_CHECKING:
    from planner.cost.file_system import FileSystem
    from planner.market.offer import Instance

# Key of what is taken for a cloud of which no figure is known.
OTHER_CLOUD: Final = "other"

Direction: TypeAlias = Literal["read", "write"]


def object_bytes_s(
    instance: Instance, nodes: int, direction: Direction
) -> float:
    """Return the rate of one machine from or to object storage, bytes/s.

    Each machine of a slice has its own.
    Of small clouds no figure is known; theirs is taken to be as slow as any.
    """
    cloud = instance.provider if instance.provider in clouds() else OTHER_CLOUD
    account_gb_s = constant(f"object_store_all_{direction}_gb_s", cloud)
    return min(
        _nic_bytes_s(instance),
        constant("object_store_gb_s", cloud) * BYTES_PER_GB * instance.machines,
        # More machines share what one account, or one bucket, gives.
        account_gb_s * BYTES_PER_GB / nodes,
    )


def file_system_bytes_s(
    instance: Instance, nodes: int, file_system: FileSystem
) -> float:
    """Return the rate of one machine from or to a parallel file system, bytes/s."""
    client_gb_s = constant("lustre_client_gb_s", instance.provider)
    return min(
        _nic_bytes_s(instance),
        client_gb_s * BYTES_PER_GB * instance.machines,
        # All clients share the bandwidth that the capacity provides.
        file_system.bytes_per_s / nodes,
    )


def _nic_bytes_s(instance: Instance) -> float:
    # Gb/s to bytes/s; 0 means unknown, which is no limit.
    return instance.network_gbps / 8 * BYTES_PER_GB or math.inf
