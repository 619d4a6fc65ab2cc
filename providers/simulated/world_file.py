"""Reads world files.

A world file is YAML (all keys optional):

    clock: 2026-11-21T08:00:00Z
    project: my-project
    capacity: [{provider: aws, region: us-east-1, instance_type: p5.48xlarge, nodes: 2}]
              # or of one zone alone: {zone: us-east-1a, nodes: 0}
    quota:    [{provider: aws, region: us-east-1, instance_type: "p*", vcpus: 192}]
    prices:   [{provider: gcp, region: "*", instance_type: a3-*, purchase: spot, usd_hour: 30}]
    refuses:  [{on: create, type: "aws:iam/*", code: AccessDenied}]
    throttles: [{on: create, type: "aws:ec2/*", per_minute: 60}]
    delays:   [{type: "*:Cluster", seconds: 900}]
    lags:     [{type: "aws:iam/*", seconds: 12, code: ResourceNotReady}]
    losses:   [{purchase: spot, per_day: 0.5}]
    faults:   [{on: create, type: "*:Group", code: InsufficientInstanceCapacity, times: 1}]

Patterns take * and ?. Offers that match no row are unlimited and have the catalog price.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from planner.errors import SpecError
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
from providers.base import NodeLimit
from providers.simulated.world import (
    DEFAULT_CLOCK,
    CallRule,
    DelayRule,
    FaultRule,
    LagRule,
    LossRule,
    PriceOverride,
    SilenceRule,
    ThrottleRule,
    World,
)

if TYPE_CHECKING:
    from planner.spec.field import JsonSchema
    from providers.base import LimitUnit

NAME_PATTERN: Final = TextPattern(
    r"[A-Za-z0-9*?._:/-]+", "a name or a pattern with *"
)
# Far from the ends of what computers count, also after many years have passed.
YEARS: Final = range(2000, 2101)
LIMIT_UNITS: Final[tuple[LimitUnit, ...]] = ("nodes", "vcpus", "accelerators")


def _read_limit(**values: Any) -> NodeLimit:
    """Build a limit from the one amount that is given."""
    del values["place"]
    amounts = {name: values.pop(name) for name in LIMIT_UNITS}
    [(limit_unit, amount)] = [
        (name, amount) for name, amount in amounts.items() if amount is not None
    ]
    return NodeLimit(**values, amount=amount, unit=limit_unit)


def _read_delay(**values: Any) -> DelayRule:
    return DelayRule(values["type"], float(values["seconds"]))


def _read_lag(**values: Any) -> LagRule:
    return LagRule(values["type"], float(values["seconds"]), values["code"])


def _parse_time(time_text: str) -> datetime:
    try:
        parsed_time = datetime.fromisoformat(time_text)
    except ValueError as parse_error:
        raise ValueError(
            "write a time such as 2026-11-21T08:00:00Z"
        ) from parse_error
    if parsed_time.year not in YEARS:
        raise ValueError(f"write a year from {YEARS.start} to {YEARS.stop - 1}")
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
_AMOUNT_FIELDS: Final = tuple(
    Field(
        name, Quantity(unit.parse_count, "2"), f"how many {name}", default=None
    )
    for name in LIMIT_UNITS
)
_PRICE_FIELD: Final = Field(
    "usd_hour", Quantity(unit.parse_number, "30"), "USD an hour", required=True
)
_CALL_COUNT: Final = Quantity(unit.parse_count, "1", maximum="1M")
_LIMIT_BLOCK: Final = Block(
    "limit",
    _read_limit,
    (*_OFFER_FIELDS, *_AMOUNT_FIELDS),
    exclusive_groups=(LIMIT_UNITS,),
)
_CAPACITY_BLOCK: Final = Block(
    "capacity",
    _read_limit,
    (
        *_OFFER_FIELDS,
        Field("zone", NAME_PATTERN, "zone", default="*"),
        *_AMOUNT_FIELDS,
    ),
    exclusive_groups=(LIMIT_UNITS,),
)
_PRICE_BLOCK: Final = Block(
    "price", _without_place(PriceOverride), (*_OFFER_FIELDS, _PRICE_FIELD)
)
_LOSS_BLOCK: Final = Block(
    "losses",
    _without_place(LossRule),
    (
        *_OFFER_FIELDS,
        Field(
            "per_day",
            Quantity(unit.parse_number, "0.05", maximum="1000"),
            "how often a node is lost in a day",
            required=True,
        ),
    ),
)
_ERROR_CODE: Final = TextPattern(r"[A-Za-z_.]+", "an error code")
_CALL_FIELDS: Final = (
    Field(
        "on",
        Choice(("create", "update", "delete")),
        "operation",
        required=True,
    ),
    Field("type", NAME_PATTERN, "resource type", default="*"),
    Field("name", NAME_PATTERN, "resource name", default="*"),
    Field("code", _ERROR_CODE, "what the cloud answers", required=True),
)
_FAULT_FIELDS: Final = (
    Field("times", _CALL_COUNT, "how often it fails", default=1),
    Field("after", _CALL_COUNT, "how many calls succeed first", default=0),
)
_SILENCE_BLOCK: Final = Block(
    "silences",
    _without_place(SilenceRule),
    (
        Field("type", NAME_PATTERN, "type of the group", default="*"),
        Field("name", NAME_PATTERN, "name of the group", default="*"),
        Field("times", _CALL_COUNT, "how many templates are so", default=1),
        Field("after", _CALL_COUNT, "how many are good before", default=0),
    ),
)
_THROTTLE_BLOCK: Final = Block(
    "throttles",
    _without_place(ThrottleRule),
    (
        *_CALL_FIELDS[:-1],
        Field(
            "code", _ERROR_CODE, "what the cloud answers", default="Throttling"
        ),
        Field(
            "per_minute",
            Quantity(unit.parse_count, "60"),
            "calls that succeed in a minute",
            required=True,
        ),
    ),
)
_DELAY_BLOCK: Final = Block(
    "delays",
    _read_delay,
    (
        Field("type", NAME_PATTERN, "resource type", required=True),
        Field(
            "seconds",
            Quantity(unit.parse_number, "30", maximum="100000"),
            "how long its calls take",
            required=True,
        ),
    ),
)
_LAG_BLOCK: Final = Block(
    "lags",
    _read_lag,
    (
        Field("type", NAME_PATTERN, "resource type", required=True),
        Field(
            "seconds",
            Quantity(unit.parse_number, "12", maximum="100000"),
            "for how long nothing may refer to a new one",
            required=True,
        ),
        _CALL_FIELDS[-1],
    ),
)
WORLD_BLOCK: Final = Block(
    "world",
    _without_place(World),
    (
        Field(
            "clock",
            Quantity(_parse_time, DEFAULT_CLOCK.isoformat()),
            "the time at which the world begins",
            default=DEFAULT_CLOCK,
        ),
        Field(
            "project",
            NAME_PATTERN,
            "project or account",
            default="simulated-project",
        ),
        Field(
            "capacity",
            ListOf(_CAPACITY_BLOCK),
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
            "refuses",
            ListOf(
                Block("refuses", _without_place(CallRule), _CALL_FIELDS),
            ),
            "calls that always fail",
            default=(),
        ),
        Field(
            "faults",
            ListOf(
                Block(
                    "faults",
                    _without_place(FaultRule),
                    (*_CALL_FIELDS, *_FAULT_FIELDS),
                )
            ),
            "calls that fail for a while",
            default=(),
        ),
        Field(
            "throttles",
            ListOf(_THROTTLE_BLOCK),
            "calls of which only so many succeed in a minute",
            default=(),
        ),
        Field(
            "delays",
            ListOf(_DELAY_BLOCK),
            "how long calls take",
            default=(),
        ),
        Field(
            "lags",
            ListOf(_LAG_BLOCK),
            "how long new objects are not known everywhere",
            default=(),
        ),
        Field(
            "losses",
            ListOf(_LOSS_BLOCK),
            "how often machines are lost",
            default=(),
        ),
        Field(
            "silences",
            ListOf(_SILENCE_BLOCK),
            "templates with which machines do not answer",
            default=(),
        ),
        Field(
            "seed",
            Quantity(unit.parse_count, "1"),
            "of everything that is drawn",
            default=1,
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


def world_schema() -> JsonSchema:
    """Return the JSON Schema (draft 2020-12) of a world file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tonnage:schema:world:v1",
        "title": "tonnage world",
        **WORLD_BLOCK.schema(),
    }
