"""What `providers` knows of every cloud: the protocol of a cloud's room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from planner.plan.types import Properties


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes that a group of machines requests.

    offer_key   cloud, region, machine type and purchase option
    node_count  requested nodes
    """

    offer_key: tuple[str, str, str, str]
    node_count: int


class Provider(Protocol):
    """A cloud as far as tonnage reads it. It never changes anything."""

    name: str

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes that a resource asks for; nothing for a resource that has none.

        `inputs` are those of the resource with references filled. `objects` are all objects of
        the account by id, each with its `inputs`: a group may name a template among them.
        """
