"""The part of an accelerator that one engine has: a share of the time, or a MIG slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.mig import memory_share
from planner.perf.common.constant import constant
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.accelerator import MigProfile
    from planner.perf.common.layout import Node

# How the engines of one accelerator are kept apart.
DeviceLayout: TypeAlias = Literal["time", "mig"]


class DevicePart(Struct, frozen=True, kw_only=True):
    """What one engine has of each accelerator that it shares.

    memory_gib      memory of the part, GiB
    memory_share    share of the memory that the engine is told of: of its slice all of it
    speed_share     share of compute and bandwidth that it has when all others are busy
    profile         MIG profile, empty where the engines share the time
    """

    memory_gib: float
    memory_share: float
    speed_share: float
    profile: str = ""

    @property
    def device_layout(self) -> DeviceLayout:
        """How it is kept apart from the others."""
        return "mig" if self.profile else "time"

    def node(self, whole: Node) -> Node:
        """Return a machine whose accelerators are these parts."""
        return replace(
            whole,
            memory_gib=self.memory_gib,
            compute_fraction=whole.compute_fraction * self.speed_share,
            # Parts have no link to each other: an engine has one part of one accelerator.
            scaleup_link="none",
        )


def time_part(node: Node, engines: int, memory_share: float) -> DevicePart:
    """Return the part of one of several engines that share the time of each accelerator.

    memory      = share * (that of the accelerator - engine_context_gib of each other engine)
    speed share = 1 / engines: the driver gives processes turns of equal length, so an engine has
                  that much also when all others are busy, and more when they are not
    """
    contexts_gib = (engines - 1) * constant("engine_context_gib")
    memory_gib = max(0.0, node.memory_gib - contexts_gib) * memory_share
    return DevicePart(
        memory_gib=memory_gib,
        memory_share=memory_gib / node.memory_gib,
        speed_share=1 / engines,
    )


def slice_part(node: Node, profile: MigProfile) -> DevicePart:
    """Return the part that a MIG slice is.

    memory      = the lesser of its share of the accelerator's, and of what its name says in GB
    speed share = the lesser of its shares of compute and of memory, which carries the bandwidth
    """
    share = memory_share(profile)
    return DevicePart(
        memory_gib=min(
            node.memory_gib * share,
            profile.memory_gb * BYTES_PER_GB / BYTES_PER_GIB,
        ),
        memory_share=1.0,
        speed_share=min(float(profile.compute_fraction), share),
        profile=profile.profile,
    )
