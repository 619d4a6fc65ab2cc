"""What the clouds refuse: names, references, networks, places, sizes that they do not take."""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from ipaddress import IPv4Network, ip_network
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.facts import table
from providers.resource_type import name_rules, strings_in, values_at
from providers.simulated.relation import reference_problems
from providers.simulated.schema import PYTHON_TYPES, schema_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.types import Properties

PORT_LIMIT: Final = 65_535
PORT_NAMES: Final = frozenset(
    {"port", "fromPort", "toPort", "frontendPort", "backendPort"}
)
COUNT_NAMES: Final = frozenset(
    {
        "desiredCapacity",
        "minSize",
        "maxSize",
        "targetSize",
        "capacity",
        "size",
        "diskSizeGb",
        "diskSizeGB",
        "storageCapacity",
    }
)
CIDR_NAMES: Final = re.compile(
    r"cidrBlock|cidrIpv4|ipCidrRange|(address|sourceAddress|destinationAddress)Prefix(es)?|"
    r"destinationCidrBlock|sourceRanges"
)
# Where Azure writes words for groups of addresses.
ADDRESS_WORDS: Final = frozenset(
    {"*", "VirtualNetwork", "Internet", "AzureLoadBalancer", "GatewayManager"}
)


class SubnetRule(Struct, frozen=True, kw_only=True):
    """How a type of subnet says where it lies.

    range_property    its own addresses
    network_property  the network that it belongs to
    network_type      type of that network
    space_property    addresses of the network; empty where a network has none of its own
    """

    range_property: str
    network_property: str
    network_type: str
    space_property: str


def input_problems(
    resource_type: str,
    inputs: Properties,
    objects: Mapping[str, Properties],
    region: str,
) -> list[str]:
    """Return everything that a cloud would refuse about the inputs of an object.

    `objects` are those that exist, by id, with `type`, `inputs` and `outputs`.
    """
    problems = schema_problems(resource_type, inputs)
    # What is not of the right form is not looked at any further.
    if problems:
        return problems
    return [
        *_open_problems(resource_type, inputs),
        *_name_problems(resource_type, inputs),
        *reference_problems(resource_type, inputs, objects),
        *_network_problems(inputs),
        *_overlap_problems(resource_type, inputs, objects),
        *_place_problems(inputs, region),
        *_number_problems(inputs),
        *_size_problems(resource_type, inputs),
    ]


def _open_problems(resource_type: str, inputs: Properties) -> Iterator[str]:
    """Yield what is mistyped where the schema takes any value and the cloud does not."""
    for row in _open_rows():
        if row["type"] != resource_type:
            continue
        for value in values_at(inputs, row["property"]):
            if not isinstance(value, PYTHON_TYPES[row["kind"]]):
                yield f"{row['property']}: must be a {row['kind']}"


@cache
def _open_rows() -> tuple[table.TableRow, ...]:
    columns: table.Columns = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "kind": table.one_of(*PYTHON_TYPES),
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("providers.simulated", "open.csv", columns))


def _name_problems(resource_type: str, inputs: Properties) -> Iterator[str]:
    for rule in name_rules().get(resource_type, ()):
        for name in values_at(inputs, rule.property):
            refusal = rule.refusal(name) if isinstance(name, str) else None
            if refusal is not None:
                yield refusal


def _network_problems(inputs: Any) -> Iterator[str]:
    for property_name, value in _named_values(inputs):
        if (
            isinstance(value, str)
            and CIDR_NAMES.fullmatch(property_name)
            and value not in ADDRESS_WORDS
        ):
            try:
                ip_network(value)
            except ValueError as error:
                yield f"{property_name}: {error}"


def _overlap_problems(
    resource_type: str,
    inputs: Properties,
    objects: Mapping[str, Properties],
) -> Iterator[str]:
    """Say where a subnet overlaps with another one, or lies outside its network."""
    rule = _subnet_rules().get(resource_type)
    own_range = _network(inputs.get(rule.range_property)) if rule else None
    if rule is None or own_range is None:
        return
    for other_inputs in _inputs_of_type(resource_type, objects):
        other_range = _network(other_inputs.get(rule.range_property))
        if (
            other_range is not None
            and other_inputs != inputs
            and all(
                other_inputs.get(name) == inputs.get(name)
                for name in (rule.network_property, "resourceGroupName")
            )
            and own_range.overlaps(other_range)
        ):
            yield f"{rule.range_property}: {own_range} overlaps with {other_range}"
    space = _network_space(rule, str(inputs[rule.network_property]), objects)
    if space and not any(own_range.subnet_of(network) for network in space):
        yield f"{rule.range_property}: {own_range} lies outside of its network"


def _network_space(
    rule: SubnetRule, network_key: str, objects: Mapping[str, Properties]
) -> list[IPv4Network]:
    """Return the addresses of a network; nothing where it has none of its own."""
    return [
        network
        for cloud_object in objects.values()
        if cloud_object["type"] == rule.network_type
        and network_key in strings_in(cloud_object["outputs"])
        for text in values_at(cloud_object["inputs"], rule.space_property)
        if (network := _network(text)) is not None
    ]


def _inputs_of_type(
    resource_type: str, objects: Mapping[str, Properties]
) -> Iterator[Properties]:
    for cloud_object in objects.values():
        if cloud_object["type"] == resource_type:
            yield cloud_object["inputs"]


def _place_problems(inputs: Any, region: str) -> Iterator[str]:
    for property_name, value in _named_values(inputs):
        if not isinstance(value, str):
            continue
        if property_name in ("availabilityZone", "availabilityZones", "zone"):
            is_of_region = value.startswith(region) and value != region
            if region and not is_of_region:
                yield f"{property_name}: {value!r} is no zone of {region}"
        elif property_name == "zones" and value not in ("1", "2", "3"):
            yield f"{property_name}: {value!r} is none of 1, 2, 3"


def _number_problems(inputs: Any) -> Iterator[str]:
    for property_name, value in _named_values(inputs):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if property_name in PORT_NAMES and not -1 <= value <= PORT_LIMIT:
            yield f"{property_name}: {value} is no port"
        elif property_name in COUNT_NAMES and value < 0:
            yield f"{property_name}: {value} is negative"
    if isinstance(inputs, dict) and {"minSize", "maxSize"} <= inputs.keys():
        smallest, largest = inputs["minSize"], inputs["maxSize"]
        desired = inputs.get("desiredCapacity", smallest)
        if not smallest <= desired <= largest:
            yield (
                f"desiredCapacity: {desired} is not between {smallest} and {largest}"
            )


def _size_problems(resource_type: str, inputs: Properties) -> Iterator[str]:
    for row in _size_limits().get(resource_type, ()):
        for value in values_at(inputs, row["property"]):
            content = str(value).encode()
            if row["encoding"] == "base64":
                try:
                    content = base64.b64decode(content, validate=True)
                except binascii.Error:
                    yield f"{row['property']}: is not base64"
                    continue
            if len(content) > row["bytes"]:
                yield (
                    f"{row['property']}: {len(content)} bytes, "
                    f"{row['bytes']} are allowed"
                )


@cache
def _subnet_rules() -> dict[str, SubnetRule]:
    columns = {
        "type": table.nonempty_text,
        "range_property": table.nonempty_text,
        "network_property": table.nonempty_text,
        "network_type": table.nonempty_text,
        "space_property": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["type"]: SubnetRule(
            range_property=row["range_property"],
            network_property=row["network_property"],
            network_type=row["network_type"],
            space_property=row["space_property"],
        )
        for row in table.load_rows(
            "providers.simulated", "subnets.csv", columns
        )
    }


@cache
def _size_limits() -> dict[str, list[table.TableRow]]:
    columns = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "bytes": table.integer_between(1, 2**30),
        "encoding": table.one_of("text", "base64"),
        **table.SOURCE_COLUMNS,
    }
    limits: dict[str, list[table.TableRow]] = {}
    for row in table.load_rows("providers.simulated", "sizes.csv", columns):
        limits.setdefault(row["type"], []).append(row)
    return limits


def _named_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that is no container, with the name of its property."""
    if isinstance(value, dict):
        for property_name, nested_value in value.items():
            yield from _named_values(nested_value, property_name)
    elif isinstance(value, list):
        for element in value:
            yield from _named_values(element, name)
    else:
        yield name, value


def _network(text: Any) -> IPv4Network | None:
    try:
        return IPv4Network(text)
    except ValueError:
        return None
