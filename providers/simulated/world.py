"""A simulated world: what its clouds have and forbid, and the file that remembers what exists.

A world file is YAML (all keys optional):

    clock: 2026-11-21T08:00:00Z
    project: my-project
    capacity: [{provider: aws, region: us-east-1, instance_type: p5.48xlarge, nodes: 2}]
    quota:    [{provider: aws, region: us-east-1, purchase: spot, nodes: 4}]
    prices:   [{provider: gcp, region: "*", instance_type: a3-*, purchase: spot, usd_hour: 30}]
    faults:   [{on: create, type: "*:Group", code: InsufficientInstanceCapacity, times: 1}]

Patterns take * and ?; what no row matches is unlimited, and costs what the catalog says.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from planner.errors import Problem, SpecError
from planner.spec import unit
from planner.spec.field import (
    MISSING,
    Block,
    Choice,
    Field,
    ListOf,
    Quantity,
    Report,
    Text,
)
from planner.spec.source import parse

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from planner.solve.offer import Catalog, Offer

START: Final = "2026-01-01T00:00:00Z"
PATTERN: Final = Text(r"[A-Za-z0-9*?._:/-]+", "a name or a pattern with *")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many nodes that match."""

    provider: str
    region: str
    instance_type: str
    purchase: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Price:
    """Another price than the catalog's."""

    provider: str
    region: str
    instance_type: str
    purchase: str
    usd_hour: Decimal


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that fails: the first `times` matching calls after `after` of them."""

    on: str
    type: str
    name: str
    code: str
    times: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The rules of a simulated world."""

    clock: datetime
    project: str = "simulated-project"
    capacity: tuple[Limit, ...] = ()
    quota: tuple[Limit, ...] = ()
    prices: tuple[Price, ...] = ()
    faults: tuple[Fault, ...] = ()


def _at(time_text: str) -> datetime:
    try:
        parsed_time = datetime.fromisoformat(time_text)
    except ValueError as parse_error:
        raise ValueError(
            "write a time such as 2026-11-21T08:00:00Z"
        ) from parse_error
    return (
        parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)
    )


def _placed(build_class: Any) -> Any:
    return lambda place, **values: build_class(**values)  # noqa: ARG005 - positions are not kept


_WHERE: Final = (
    Field("provider", PATTERN, "cloud", default="*"),
    Field("region", PATTERN, "region", default="*"),
    Field("instance_type", PATTERN, "machine type", default="*"),
    Field("purchase", PATTERN, "purchase option", default="*"),
)
_NODES: Final = Field(
    "nodes", Quantity(unit.count, "2"), "how many nodes", required=True
)
_USD: Final = Field(
    "usd_hour", Quantity(unit.number, "30"), "USD an hour", required=True
)
_SMALL: Final = Quantity(unit.count, "1", maximum=10**6)
_LIMIT: Final = Block("limit", _placed(Limit), (*_WHERE, _NODES))
_PRICE: Final = Block("price", _placed(Price), (*_WHERE, _USD))
_CODE: Final = Text(r"[A-Za-z_.]+", "an error code")
SHAPE: Final = Block(
    "world",
    _placed(World),
    (
        Field(
            "clock",
            Quantity(_at, START),
            "the time at which the world begins",
            default=_at(START),
        ),
        Field(
            "project",
            PATTERN,
            "project or account",
            default="simulated-project",
        ),
        Field(
            "capacity", ListOf(_LIMIT), "how many nodes there are", default=()
        ),
        Field(
            "quota", ListOf(_LIMIT), "how many nodes one may have", default=()
        ),
        Field(
            "prices",
            ListOf(_PRICE),
            "other prices than the catalog's",
            default=(),
        ),
        Field(
            "faults",
            ListOf(
                Block(
                    "faults",
                    _placed(Fault),
                    (
                        Field(
                            "on",
                            Choice(("create", "update", "delete")),
                            "operation",
                            required=True,
                        ),
                        Field("type", PATTERN, "resource type", default="*"),
                        Field("name", PATTERN, "resource name", default="*"),
                        Field(
                            "code",
                            _CODE,
                            "what the cloud answers",
                            required=True,
                        ),
                        Field("times", _SMALL, "how often it fails", default=1),
                        Field(
                            "after",
                            _SMALL,
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


def read(file_bytes: bytes, file_path: str) -> World:
    """Read a world file; raises SpecError with every problem in it."""
    report = Report()
    parsed_block = SHAPE.read(parse(file_bytes, file_path), "", report)
    if parsed_block is MISSING:
        raise SpecError(*report.problems)
    parsed_world: World = parsed_block
    return parsed_world


def default() -> World:
    """A world with everything in stock and nothing going wrong."""
    return World(clock=_at(START))


def matches(
    world_rule: Limit | Price, offer_key: tuple[str, str, str, str]
) -> bool:
    """Whether a row concerns (provider, region, instance type, purchase)."""
    patterns = (
        world_rule.provider,
        world_rule.region,
        world_rule.instance_type,
        world_rule.purchase,
    )
    return all(
        fnmatchcase(key_part, pattern)
        for key_part, pattern in zip(offer_key, patterns, strict=True)
    )


def priced(world: World, catalog: Catalog) -> Catalog:
    """Return the catalog with the prices of the world; its digest then tells them apart."""
    if not world.prices:
        return catalog
    digest_seed = catalog.sha256 + repr(world.prices)
    offers = tuple(_repriced(world, offer) for offer in catalog.offers)
    return replace(
        catalog,
        offers=offers,
        sha256=hashlib.sha256(digest_seed.encode()).hexdigest(),
    )


def _repriced(world: World, offer: Offer) -> Offer:
    offer_key = (
        offer.provider,
        offer.region,
        offer.instance.instance_type,
        offer.purchase,
    )
    for override in world.prices:
        if matches(override, offer_key):
            return replace(
                offer, usd_hour=override.usd_hour, source="world file"
            )
    return offer


@dataclass(slots=True)
class Memory:
    """What exists: objects by id, how often each fault has fired, and the seconds that passed."""

    seconds: float = 0.0
    serial: int = 0
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)


def recall(memory_path: Path) -> Memory:
    """Read what exists; nothing when there is no file. Raises SpecError on a broken file."""
    if not memory_path.exists():
        return Memory()
    try:
        memory_fields = json.loads(memory_path.read_text(encoding="utf-8"))
        return Memory(**memory_fields)
    except (ValueError, TypeError) as read_error:
        next_step = (
            "restore the file, or remove it to forget the simulated clouds"
        )
        problem = Problem(
            code="world",
            message=f"{memory_path} is damaged: {read_error}",
            next_step=next_step,
        )
        raise SpecError(problem) from read_error


def remember(memory_path: Path, world_memory: Memory) -> None:
    """Write what exists, all or nothing."""
    memory_path.parent.mkdir(parents=True, exist_ok=True)
    memory_fields = {
        "seconds": world_memory.seconds,
        "serial": world_memory.serial,
        "objects": world_memory.objects,
        "fired": world_memory.fired,
    }
    temporary_path = memory_path.with_suffix(".tmp")
    temporary_path.write_text(
        json.dumps(memory_fields, sort_keys=True), encoding="utf-8"
    )
    temporary_path.replace(memory_path)
