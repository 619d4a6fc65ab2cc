"""What has been in a simulated world, and for how long: what a bill is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from planner.plan.part import (
    Properties,  # noqa: TC001 - msgspec reads the annotations
)
from planner.units import SECONDS_PER_HOUR
from providers.base import (
    NodeGroup,  # noqa: TC001 - msgspec reads the annotations
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class SizedGroup(Struct, frozen=True):
    """Which nodes a group has, from a second of the world on."""

    second: float
    group: NodeGroup

    @property
    def nodes(self) -> int:
        """How many they are."""
        return self.group.node_count


def stack_of(origin: str) -> str:
    """Return the stack that a call was made for, by what identifies the call.

    That is `STACK/...` of the in-process engine, and a URN of Pulumi.
    """
    if origin.startswith("urn:pulumi:"):
        return origin.removeprefix("urn:pulumi:").partition("::")[0]
    return origin.partition("/")[0]


class ObjectHistory(Struct, kw_only=True):
    """An object from its creation to its end.

    stack   that it was made for
    second  of the world in which it was made
    until   second in which it was deleted; none while it exists
    sizes   of a group of machines, in the order of time; empty for everything else
    next_loss  second in which the group loses a machine; none before it was drawn
    due_back   seconds in which machines that were lost come back
    is_silent  whether machines of its last template do not answer
    """

    type: str
    name: str
    region: str
    inputs: Properties
    stack: str
    second: float
    until: float | None = None
    sizes: list[SizedGroup] = field(default_factory=list)
    next_loss: float | None = None
    due_back: list[float] = field(default_factory=list)
    is_silent: bool = False

    @property
    def nodes(self) -> int:
        """Nodes that run in it now; 0 for what is no group, and for a reservation."""
        if not self.sizes or self.sizes[-1].group.is_kept:
            return 0
        return self.sizes[-1].nodes if self.until is None else 0

    def hours(self, begin: float, end: float) -> float:
        """Return for how long it existed between two seconds, hours."""
        last = end if self.until is None else min(end, self.until)
        return max(0.0, last - max(begin, self.second)) / SECONDS_PER_HOUR

    def spans(
        self, begin: float, end: float
    ) -> Iterator[tuple[NodeGroup, float, float]]:
        """Yield what each size of a group was, with the seconds from and to which it was so."""
        if not self.sizes:
            return
        last = end if self.until is None else min(end, self.until)
        ends = [*(size.second for size in self.sizes[1:]), last]
        for size, size_end in zip(self.sizes, ends, strict=True):
            start, stop = max(begin, size.second), min(size_end, last)
            if start < stop:
                yield size.group, start, stop

    def node_hours(
        self, begin: float, end: float
    ) -> Iterator[tuple[NodeGroup, float]]:
        """Yield what each size of a group was between two seconds, and its node-hours then."""
        for group, start, stop in self.spans(begin, end):
            yield group, group.node_count * (stop - start) / SECONDS_PER_HOUR

    def resize(self, second: float, group: NodeGroup) -> None:
        """Let the group be another one from a second on."""
        self.sizes.append(SizedGroup(second, group))


EventKind: TypeAlias = Literal["resized", "notice", "lost", "back", "refused"]


class WorldEvent(Struct, frozen=True):
    """Something that happened in a world by itself.

    kind  resized: by a rule; notice, lost and back: of a machine; refused: there was no capacity
    """

    second: float
    kind: EventKind
    stack: str
    name: str
    detail: str
