"""The rules of a simulated world, and the state of its clouds."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.plan.part import (
    Properties,  # noqa: TC001 - msgspec reads the annotations
)
from providers.base import Caller, NodeLimit, matches_patterns
from providers.files import read_regular, write_atomically
from providers.simulated.history import (  # noqa: TC001 - msgspec reads the annotations
    ObjectHistory,
    WorldEvent,
)

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from planner.market.offer import Catalog, Offer
    from planner.market.offer_key import OfferKey
    from providers.base import PriceSource

DEFAULT_CLOCK: Final = datetime(2026, 1, 1, tzinfo=UTC)
CALLER: Final = Caller("00000000-0000-0000-0000-0000000000ca", "User")


class PriceOverride(Struct, frozen=True):
    """A price in USD an hour that replaces that of the catalog.

    The first four fields are patterns of offers.
    """

    provider: str
    region: str
    instance_type: str
    purchase: str
    usd_hour: Decimal

    def applies(self, offer: Offer) -> bool:
        """Whether it is the price of an offer."""
        patterns = (
            self.provider,
            self.region,
            self.instance_type,
            self.purchase,
        )
        offer_key = (
            offer.provider,
            offer.region,
            offer.instance.instance_type,
            offer.purchase,
        )
        return matches_patterns(offer_key, patterns)


class LossRule(Struct, frozen=True):
    """How often a machine is lost: it fails, or one on spot is taken back.

    The first four fields are patterns of offers; `per_day` is how often a node is lost in a day.
    """

    provider: str
    region: str
    instance_type: str
    purchase: str
    per_day: Decimal

    def applies(self, offer_key: OfferKey) -> bool:
        """Whether nodes of an offer are meant."""
        patterns = (
            self.provider,
            self.region,
            self.instance_type,
            self.purchase,
        )
        return matches_patterns(offer_key, patterns)


class CallRule(Struct, frozen=True):
    """A call that the clouds refuse, whenever it is made.

    on     operation: create, update or delete
    type   pattern of the resource type
    name   pattern of the resource name
    code   error code of the cloud
    """

    on: str
    type: str
    name: str
    code: str

    def applies(
        self, operation: str, resource_type: str, resource_name: str
    ) -> bool:
        """Whether a call is meant."""
        return (
            self.on == operation
            and fnmatchcase(resource_type, self.type)
            and fnmatchcase(resource_name, self.name)
        )


class FaultRule(CallRule, frozen=True):
    """A call that fails for a while.

    times  matching calls that fail
    after  matching calls that succeed before
    """

    times: int
    after: int


class ThrottleRule(CallRule, frozen=True):
    """Calls that are refused when too many were made.

    per_minute  calls that succeed within any minute
    """

    per_minute: int


class SilenceRule(Struct, frozen=True):
    """A new template of a group with which machines do not answer.

    type   pattern of the resource type
    name   pattern of the resource name
    times  updates of a group that bring such a template
    after  updates that bring a good one before
    """

    type: str
    name: str
    times: int
    after: int

    def applies(self, resource_type: str, resource_name: str) -> bool:
        """Whether a group is meant."""
        return fnmatchcase(resource_type, self.type) and fnmatchcase(
            resource_name, self.name
        )


class DelayRule(Struct, frozen=True):
    """How long calls for resources of a type take, seconds. `type` is a pattern."""

    type: str
    seconds: float


class LagRule(Struct, frozen=True):
    """How long a new object is not known everywhere in its cloud.

    type     pattern of the type of the new object
    seconds  for so long, calls that name it are refused
    code     error code of the cloud
    """

    type: str
    seconds: float
    code: str


class World(Struct, frozen=True, kw_only=True):
    """The rules of a simulated world.

    clock     time at which the world begins
    project   project or account
    capacity  nodes that the clouds have
    quota     nodes that the account may have
    prices    prices that replace those of the catalog
    refuses   calls that always fail: a permission that is missing, a service that is off
    faults    calls that fail for a while
    throttles  calls of which only so many succeed in a minute
    delays    how long calls take, other than they usually do
    lags      how long new objects are not known everywhere
    losses    how often machines are lost
    silences  templates with which machines do not answer
    seed      of everything that is drawn
    """

    clock: datetime
    project: str = "simulated-project"
    capacity: tuple[NodeLimit, ...] = ()
    quota: tuple[NodeLimit, ...] = ()
    prices: tuple[PriceOverride, ...] = ()
    refuses: tuple[CallRule, ...] = ()
    faults: tuple[FaultRule, ...] = ()
    throttles: tuple[ThrottleRule, ...] = ()
    delays: tuple[DelayRule, ...] = ()
    lags: tuple[LagRule, ...] = ()
    losses: tuple[LossRule, ...] = ()
    silences: tuple[SilenceRule, ...] = ()
    seed: int = 1

    @property
    def account(self) -> str:
        """The one account of the world."""
        return self.project

    @property
    def caller(self) -> Caller:
        """Who is signed in to simulated clouds."""
        return CALLER


def default_world() -> World:
    """Return a world without limits, price changes and faults."""
    return World(clock=DEFAULT_CLOCK)


class WorldPrices(Struct, frozen=True):
    """The prices of another source, but for those that a world gives."""

    world: World
    source: PriceSource

    def catalog(self) -> Catalog:
        """Return the catalog with the prices of the world.

        Its digest also covers these prices, so plans for both catalogs differ.
        """
        catalog = self.source.catalog()
        if not self.world.prices:
            return catalog
        # The same prices always give the same digest.
        digest_seed = catalog.sha256 + repr(self.world.prices)
        offers = tuple(
            _reprice_offer(self.world, offer) for offer in catalog.offers
        )
        return replace(
            catalog,
            offers=offers,
            sha256=hashlib.sha256(digest_seed.encode()).hexdigest(),
        )


def _reprice_offer(world: World, offer: Offer) -> Offer:
    for override in world.prices:
        # The first matching row applies.
        if override.applies(offer):
            return replace(
                offer,
                usd_hour=override.usd_hour,
                source="world file",
                old_price=None,
                price_range=None,
            )
    return offer


class WorldMemory(Struct):
    """The state of a simulated world.

    seconds  time since the clock of the world began
    serial   number of the last created object
    objects  objects by id
    fired    matching calls so far, by index of the fault
    recent   times of calls in the last minute, s, by index of the throttle
    history  what has been, by the id of the object
    events   what happened by itself, the newest last
    """

    seconds: float = 0.0
    serial: int = 0
    objects: dict[str, Properties] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    recent: dict[str, list[float]] = field(default_factory=dict)
    history: dict[str, ObjectHistory] = field(default_factory=dict)
    events: list[WorldEvent] = field(default_factory=list)


class WorldEnvelope(Struct):
    """The state of a world in its file, with its checksum."""

    sha256: str
    world: msgspec.Raw


def load_memory(memory_path: Path) -> WorldMemory:
    """Return the state in a file, or an empty state without a file.

    Raises SpecError for a damaged file.
    """
    try:
        content = read_regular(memory_path)
    except FileNotFoundError:
        return WorldMemory()
    try:
        envelope = msgspec.json.decode(content, type=WorldEnvelope)
        if envelope.sha256 != hashlib.sha256(envelope.world).hexdigest():
            raise _damaged_error(memory_path, "its checksum differs")
        memory = msgspec.json.decode(envelope.world, type=WorldMemory)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as read_error:
        raise _damaged_error(memory_path, str(read_error)) from read_error
    if not memory.objects.keys() <= memory.history.keys():
        raise _damaged_error(memory_path, "an older version wrote it")
    return memory


def save_memory(memory_path: Path, world_memory: WorldMemory) -> None:
    """Write the state atomically."""
    world_bytes = msgspec.json.encode(world_memory, order="sorted")
    envelope = WorldEnvelope(
        sha256=hashlib.sha256(world_bytes).hexdigest(),
        world=msgspec.Raw(world_bytes),
    )
    write_atomically(memory_path, msgspec.json.encode(envelope))


def _damaged_error(memory_path: Path, cause: str) -> SpecError:
    return SpecError(
        Problem(
            code="world",
            message=f"{memory_path} is damaged",
            cause=cause,
            next_step="restore the file, or remove it to forget the simulated clouds",
        )
    )
