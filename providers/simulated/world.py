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


def _at(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("write a time such as 2026-11-21T08:00:00Z") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _placed(build: Any) -> Any:
    return lambda place, **values: build(**values)  # noqa: ARG005 - positions are not kept


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


def read(raw: bytes, path: str) -> World:
    """Read a world file; raises SpecError with every problem in it."""
    report = Report()
    world = SHAPE.read(parse(raw, path), "", report)
    if world is MISSING:
        raise SpecError(*report.problems)
    found: World = world
    return found


def default() -> World:
    """A world with everything in stock and nothing going wrong."""
    return World(clock=_at(START))


def matches(limit: Limit | Price, offer: tuple[str, str, str, str]) -> bool:
    """Whether a row concerns (provider, region, instance type, purchase)."""
    wanted = (limit.provider, limit.region, limit.instance_type, limit.purchase)
    return all(
        fnmatchcase(word, pattern)
        for word, pattern in zip(offer, wanted, strict=True)
    )


def priced(world: World, catalog: Catalog) -> Catalog:
    """Return the catalog with the prices of the world; its digest then tells them apart."""
    if not world.prices:
        return catalog
    seed = catalog.sha256 + repr(world.prices)
    offers = tuple(_repriced(world, offer) for offer in catalog.offers)
    return replace(
        catalog, offers=offers, sha256=hashlib.sha256(seed.encode()).hexdigest()
    )


def _repriced(world: World, offer: Offer) -> Offer:
    key = (
        offer.provider,
        offer.region,
        offer.instance.instance_type,
        offer.purchase,
    )
    for price in world.prices:
        if matches(price, key):
            return replace(offer, usd_hour=price.usd_hour, source="world file")
    return offer


@dataclass(slots=True)
class Memory:
    """What exists: objects by id, how often each fault has fired, and the seconds that passed."""

    seconds: float = 0.0
    serial: int = 0
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)


def recall(path: Path) -> Memory:
    """Read what exists; nothing when there is no file. Raises SpecError on a broken file."""
    if not path.exists():
        return Memory()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Memory(**found)
    except (ValueError, TypeError) as error:
        step = "restore the file, or remove it to forget the simulated clouds"
        problem = Problem(
            code="world", message=f"{path} is damaged: {error}", next_step=step
        )
        raise SpecError(problem) from error


def remember(path: Path, memory: Memory) -> None:
    """Write what exists, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "seconds": memory.seconds,
        "serial": memory.serial,
        "objects": memory.objects,
        "fired": memory.fired,
    }
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(body, sort_keys=True), encoding="utf-8")
    beside.replace(path)
