"""Fills references and texts of a graph with what is known when it is applied."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from planner.plan.graph import references
from stacks.runtime.vm.node.unique import unique_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from planner.plan.types import Properties
    from providers.base import IdentitySource

# The schema of launch templates counts versions in integers and takes them as text.
TEXT_OUTPUTS: Final = ("latestVersion",)
# Hexadecimal digits that tell the few values apart that one input ever has.
DIGEST_LENGTH: Final = 16
PLACEHOLDER = re.compile(
    r"\$\{(project|caller(?:\.kind)?|started\.month|deadline\.[a-z0-9]+"
    r"|from\.(?:cron\.)?\d{8}T\d{6}Z|unique\.[0-9a-f]+)\}"
)
# A time that is over cannot be scheduled: an apply takes some minutes until it is there.
FROM_PREFIX: Final = "from."
FROM_FORM: Final = "%Y%m%dT%H%M%SZ"
# The same as a line of cron.
CRON_PREFIX: Final = "cron."
SOONEST: Final = timedelta(minutes=15)
# Digits of a name that is the only one in the world.
UNIQUE_PREFIX: Final = "unique."
PATH_PART = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")


def placeholder_values(
    identity: IdentitySource, started_at: datetime, ttl_s: Decimal | None
) -> dict[str, str]:
    """Return what `${...}` stands for: dates count from the first apply.

    Raises UsageError or CredentialError for an identity that is not known.
    """
    caller = identity.caller
    placeholders = {
        "project": identity.project,
        "account": identity.account,
        "caller": caller.id,
        "caller.kind": caller.kind,
        "started": started_at.astimezone(UTC).isoformat(),
        "started.month": started_at.astimezone(UTC).strftime(
            "%Y-%m-01T00:00:00Z"
        ),
    }
    if ttl_s is not None:
        # Every form of the deadline is UTC, in whatever zone the clock is.
        deadline = (started_at + timedelta(seconds=float(ttl_s))).astimezone(
            UTC
        )
        placeholders |= {
            "deadline.rfc3339": deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deadline.at": deadline.strftime("%Y-%m-%dT%H:%M:%S"),
            "deadline.cron": _cron_line(deadline),
            "deadline.far": (deadline + timedelta(days=3650)).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
        }
    return placeholders


def fill_references(
    input_value: Any,
    placeholders: dict[str, str],
    resource_outputs: Mapping[str, Properties],
) -> Any:
    """Return a value with every reference and every place in a text filled in.

    Raises KeyError when an output is not known.
    """
    if isinstance(input_value, dict):
        if "$ref" in input_value:
            output_path = input_value["output"]
            output_value = output_at(
                resource_outputs[input_value["$ref"]], output_path
            )
            return (
                str(output_value)
                if output_path in TEXT_OUTPUTS
                else output_value
            )
        return {
            property_name: fill_references(
                nested_value, placeholders, resource_outputs
            )
            for property_name, nested_value in input_value.items()
        }
    if isinstance(input_value, list):
        return [
            fill_references(nested_value, placeholders, resource_outputs)
            for nested_value in input_value
        ]
    return (
        fill_text(input_value, placeholders)
        if isinstance(input_value, str)
        else input_value
    )


def built_on_digests(
    inputs: Properties,
    placeholders: Mapping[str, str],
    resource_outputs: Mapping[str, Properties],
) -> dict[str, str]:
    """Return a digest of all that fills each input, by the name of the input.

    An input that nothing fills has none. What is not known counts as another value.
    """
    digests = {}
    for input_name, input_value in inputs.items():
        fillings = [
            _output_or_none(reference, resource_outputs)
            for reference in references(input_value)
        ]
        fillings += [
            placeholders.get(
                "account" if place.startswith(UNIQUE_PREFIX) else place
            )
            for place in PLACEHOLDER.findall(json.dumps(input_value))
        ]
        if fillings:
            digests[input_name] = hashlib.sha256(
                json.dumps(fillings, sort_keys=True).encode()
            ).hexdigest()[:DIGEST_LENGTH]
    return digests


def _output_or_none(
    reference: Properties, resource_outputs: Mapping[str, Properties]
) -> Any:
    try:
        return output_at(
            resource_outputs[reference["$ref"]], reference["output"]
        )
    except (KeyError, IndexError, TypeError):
        # Another thing has the name now, such as one of another cloud.
        return None


def fill_text(template_text: str, placeholders: dict[str, str]) -> str:
    """Fill the places of a text; everything else in it, also other `${...}`, stays."""
    return (
        PLACEHOLDER.sub(
            lambda placeholder_match: _filling(
                placeholder_match[1], placeholders
            ),
            template_text,
        )
        if "${" in template_text
        else template_text
    )


def fill_names(
    inputs: Properties, fill_text: Callable[[str], str]
) -> Properties:
    """Return inputs in which the texts, such as names, are filled; what is in others stays."""
    return {
        input_name: fill_text(value) if isinstance(value, str) else value
        for input_name, value in inputs.items()
    }


def _filling(place: str, placeholders: dict[str, str]) -> str:
    """Return what fills a place: `from.TIME` is that time, or soon after the first apply.

    `from.cron.TIME` is the same as a line of cron, which has no year. `unique.SEED` are the digits
    of a seed in the account.
    """
    if place.startswith(UNIQUE_PREFIX):
        return unique_digits(
            place.removeprefix(UNIQUE_PREFIX), placeholders["account"]
        )
    if not place.startswith(FROM_PREFIX):
        return placeholders[place]
    form = place.removeprefix(FROM_PREFIX)
    stated = datetime.strptime(
        form.removeprefix(CRON_PREFIX), FROM_FORM
    ).replace(tzinfo=UTC)
    started = datetime.fromisoformat(placeholders["started"])
    moment = max(stated, started + SOONEST)
    if form.startswith(CRON_PREFIX):
        return _cron_line(moment)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _cron_line(moment: datetime) -> str:
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"


def output_at(outputs: Properties, output_path: str) -> Any:
    """Return the output at a path such as backendAddressPools[0].id."""
    output_value: Any = outputs
    for property_name, list_index in PATH_PART.findall(output_path):
        output_value = (
            output_value[property_name]
            if property_name
            else output_value[int(list_index)]
        )
    return output_value
