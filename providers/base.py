"""What `providers` knows of every cloud: the protocol of a cloud's room, and of its sources.

A source answers one question about the world in which a plan is made or carried out. The embedded
snapshot answers that of prices, a simulated world all of them.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from planner.market.offer import RESERVED_PURCHASE
from planner.market.offer_key import (
    OfferKey,  # noqa: TC001 - msgspec reads the annotations
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from planner.market.offer import Catalog
    from planner.plan.types import Properties
    from providers.size_rule import SizeRule

LimitUnit: TypeAlias = Literal["nodes", "vcpus", "accelerators"]


class NodeGroup(Struct, frozen=True):
    """The nodes that a scaling group asks for.

    offer_key   cloud, region, machine type and purchase option
    node_count  requested nodes
    boot_gb     boot disk of each node, GB
    data_gb     other disks of each node that go with it, GB
    zones       where they may be; empty where nobody says
    is_kept     whether nothing runs: it is a reservation, which is paid for as its machines are
    has_address whether each node has a public address while it runs
    stand_ins   machine types that come where there is none of the first, in their order
    """

    offer_key: OfferKey
    node_count: int
    boot_gb: int = 0
    data_gb: int = 0
    zones: tuple[str, ...] = ()
    is_kept: bool = False
    has_address: bool = False
    stand_ins: tuple[str, ...] = ()

    @property
    def is_in_reservation(self) -> bool:
        """Whether its nodes count against no limit, because a reservation of them does."""
        return self.offer_key[3] == RESERVED_PURCHASE


class NodeLimit(Struct, frozen=True):
    """A limit on the nodes of all matching offers together.

    The first four fields are patterns, in which * and ? stand for others. Clouds count capacity in
    nodes, and quota in nodes, vCPUs or accelerators.

    zone  pattern of the zones that have so much, each of them; * for a limit of the whole region
    """

    provider: str
    region: str
    instance_type: str
    purchase: str
    amount: int
    unit: LimitUnit = "nodes"
    zone: str = "*"

    def applies(self, offer_key: OfferKey) -> bool:
        """Whether nodes of an offer count against the limit."""
        patterns = (
            self.provider,
            self.region,
            self.instance_type,
            self.purchase,
        )
        return matches_patterns(offer_key, patterns)


def matches_patterns(offer_key: OfferKey, patterns: OfferKey) -> bool:
    """Whether each part of an offer's key matches the pattern in its place."""
    return all(
        fnmatchcase(key_part, pattern)
        for key_part, pattern in zip(offer_key, patterns, strict=True)
    )


class PriceSource(Protocol):
    """Where prices are from."""

    def catalog(self) -> Catalog:
        """Return all offers and service prices. Raises CatalogError when they are damaged."""


class QuotaSource(Protocol):
    """What an account may have."""

    @property
    def quota(self) -> tuple[NodeLimit, ...]:
        """Limits of the account; offers that none of them matches are not limited."""


class CapacitySource(Protocol):
    """How many nodes clouds have."""

    @property
    def capacity(self) -> tuple[NodeLimit, ...]:
        """Limits of the clouds; offers that none of them matches are not limited."""


class Caller(NamedTuple):
    """Somebody who is signed in: the id, and what sort of somebody that is, as a cloud says it."""

    id: str = ""
    kind: str = ""


class IdentitySource(Protocol):
    """Whose account it is."""

    @property
    def project(self) -> str:
        """The project in which resources live; empty on a cloud that has none.

        Raises UsageError when the cloud needs one and none is set.
        """

    @property
    def account(self) -> str:
        """What no two accounts of the cloud have in common: a number, a project, a subscription.

        Raises CredentialError or UsageError when it is not known.
        """

    @property
    def caller(self) -> Caller:
        """Who is signed in, as grants name them; nobody where no graph names anybody.

        Raises CredentialError when nobody is signed in.
        """


class ProjectIdentity(Struct, frozen=True):
    """An identity that is known beforehand."""

    project: str = ""
    account: str = ""
    caller: Caller = Caller()


class Provider(Protocol):
    """A cloud as far as tonnage reads it. It never changes anything."""

    name: str

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:
        """Return whose account the environment of a command names."""

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes that a resource asks for; nothing for a resource that has none.

        Machines that come from a reservation among the objects have its purchase option.

        `inputs` are those of the resource with references filled. `objects` are all objects of
        the account by id, each with its `inputs`: a group may name a template among them.
        """

    def size_rules(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        created: datetime,
    ) -> list[SizeRule]:
        """Return the rules by which a resource, made at a time, changes the size of a group."""
