"""The rules of a simulated world, and the file with its objects.

A world file is YAML (all keys optional):

    clock: 2026-11-21T08:00:00Z
    project: my-project
    capacity: [{provider: aws, region: us-east-1, instance_type: p5.48xlarge, nodes: 2}]
    quota:    [{provider: aws, region: us-east-1, purchase: spot, nodes: 4}]
    prices:   [{provider: gcp, region: "*", instance_type: a3-*, purchase: spot, usd_hour: 30}]
    faults:   [{on: create, type: "*:Group", code: InsufficientInstanceCapacity, times: 1}]

Patterns take * and ?. Offers that match no row are unlimited and have the catalog price.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.plan.part import (
    Properties,  # noqa: TC001 - msgspec reads the annotations
)
from planner.spec import unit
from planner.spec.field import (
    MISSING,
    Block,
    Choice,
    Field,
    ListOf,
    ProblemReport,
    Quantity,
    TextPattern,
)
from planner.spec.source import parse_yaml
from providers.base import NodeLimit, matches_patterns
from providers.files import write_atomically

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from planner.market.offer import Catalog, Offer
    from providers.base import PriceSource

DEFAULT_CLOCK: Final = "2026-01-01T00:00:00Z"
NAME_PATTERN: Final = TextPattern(
    r"[A-Za-z0-9*?._:/-]+", "a name or a pattern with *"
)


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


class FaultRule(Struct, frozen=True):
    """A call that fails.

    on     operation: create, update or delete
    type   pattern of the resource type
    name   pattern of the resource name
    code   error code of the cloud
    times  matching calls that fail
    after  matching calls that succeed before
    """

    on: str
    type: str
    name: str
    code: str
    times: int
    after: int


class World(Struct, frozen=True, kw_only=True):
    """The rules of a simulated world.

    clock     time at which the world begins
    project   project or account
    capacity  nodes that the clouds have
    quota     nodes that the account may have
    prices    prices that replace those of the catalog
    faults    calls that fail
    """

    clock: datetime
    project: str = "simulated-project"
    capacity: tuple[NodeLimit, ...] = ()
    quota: tuple[NodeLimit, ...] = ()
    prices: tuple[PriceOverride, ...] = ()
    faults: tuple[FaultRule, ...] = ()


def _parse_time(time_text: str) -> datetime:
    try:
        parsed_time = datetime.fromisoformat(time_text)
    except ValueError as parse_error:
        raise ValueError(
            "write a time such as 2026-11-21T08:00:00Z"
        ) from parse_error
    return (
        # A time without a zone is UTC.
        parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)
    )


def _without_place(build_class: Any) -> Any:
    return lambda place, **values: build_class(**values)  # noqa: ARG005 - positions are not kept


_OFFER_FIELDS: Final = (
    Field("provider", NAME_PATTERN, "cloud", default="*"),
    Field("region", NAME_PATTERN, "region", default="*"),
    Field("instance_type", NAME_PATTERN, "machine type", default="*"),
    Field("purchase", NAME_PATTERN, "purchase option", default="*"),
)
_NODES_FIELD: Final = Field(
    "nodes", Quantity(unit.parse_count, "2"), "how many nodes", required=True
)
_PRICE_FIELD: Final = Field(
    "usd_hour", Quantity(unit.parse_number, "30"), "USD an hour", required=True
)
_CALL_COUNT: Final = Quantity(unit.parse_count, "1", maximum="1M")
_LIMIT_BLOCK: Final = Block(
    "limit", _without_place(NodeLimit), (*_OFFER_FIELDS, _NODES_FIELD)
)
_PRICE_BLOCK: Final = Block(
    "price", _without_place(PriceOverride), (*_OFFER_FIELDS, _PRICE_FIELD)
)
_ERROR_CODE: Final = TextPattern(r"[A-Za-z_.]+", "an error code")
WORLD_BLOCK: Final = Block(
    "world",
    _without_place(World),
    (
        Field(
            "clock",
            Quantity(_parse_time, DEFAULT_CLOCK),
            "the time at which the world begins",
            default=_parse_time(DEFAULT_CLOCK),
        ),
        Field(
            "project",
            NAME_PATTERN,
            "project or account",
            default="simulated-project",
        ),
        Field(
            "capacity",
            ListOf(_LIMIT_BLOCK),
            "how many nodes there are",
            default=(),
        ),
        Field(
            "quota",
            ListOf(_LIMIT_BLOCK),
            "how many nodes one may have",
            default=(),
        ),
        Field(
            "prices",
            ListOf(_PRICE_BLOCK),
            "other prices than the catalog's",
            default=(),
        ),
        Field(
            "faults",
            ListOf(
                Block(
                    "faults",
                    _without_place(FaultRule),
                    (
                        Field(
                            "on",
                            Choice(("create", "update", "delete")),
                            "operation",
                            required=True,
                        ),
                        Field(
                            "type", NAME_PATTERN, "resource type", default="*"
                        ),
                        Field(
                            "name", NAME_PATTERN, "resource name", default="*"
                        ),
                        Field(
                            "code",
                            _ERROR_CODE,
                            "what the cloud answers",
                            required=True,
                        ),
                        Field(
                            "times",
                            _CALL_COUNT,
                            "how often it fails",
                            default=1,
                        ),
                        Field(
                            "after",
                            _CALL_COUNT,
                            "how many calls succeed first",
                            default=0,
                        ),
                    ),
                )
            ),
            "calls that fail",
            default=(),
        ),
    ),
)


def read_world(file_bytes: bytes, file_path: str) -> World:
    """Return the rules of a world file. Raises SpecError with all of its problems."""
    report = ProblemReport()
    parsed_block = WORLD_BLOCK.read(
        parse_yaml(file_bytes, file_path), "", report
    )
    if parsed_block is MISSING:
        raise SpecError(*report.problems)
    parsed_world: World = parsed_block
    return parsed_world


def default_world() -> World:
    """Return a world without limits, price changes and faults."""
    return World(clock=_parse_time(DEFAULT_CLOCK))


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
    """

    seconds: float = 0.0
    serial: int = 0
    objects: dict[str, Properties] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)


class WorldEnvelope(Struct):
    """The state of a world in its file, with its checksum."""

    sha256: str
    world: msgspec.Raw


def load_memory(memory_path: Path) -> WorldMemory:
    """Return the state in a file, or an empty state without a file.

    Raises SpecError for a damaged file.
    """
    try:
        content = memory_path.read_bytes()
    except FileNotFoundError:
        return WorldMemory()
    try:
        envelope = msgspec.json.decode(content, type=WorldEnvelope)
        if envelope.sha256 != hashlib.sha256(envelope.world).hexdigest():
            raise _damaged_error(memory_path, "its checksum differs")
        return msgspec.json.decode(envelope.world, type=WorldMemory)
    except (msgspec.MsgspecError, RecursionError) as read_error:
        raise _damaged_error(memory_path, str(read_error)) from read_error


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
