"""Fills references and texts of a graph with what is known when it is applied."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

PLACE = re.compile(r"\$\{(project|deadline\.[a-z0-9]+)\}")
INDEX = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")


def words(project: str, started: datetime, ttl: str | None) -> dict[str, str]:
    """Return what `${...}` stands for; the deadline counts from the first apply."""
    found = {"project": project}
    if ttl is not None:
        at = started + timedelta(seconds=float(ttl))
        found |= {
            "deadline.rfc3339": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deadline.at": at.strftime("%Y-%m-%dT%H:%M:%S"),
            "deadline.cron": f"{at.minute} {at.hour} {at.day} {at.month} *",
            "deadline.far": (at + timedelta(days=3650)).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
        }
    return found


def fill(
    value: Any, known: dict[str, str], outputs: dict[str, dict[str, Any]]
) -> Any:
    """Return a value with every reference and every place in a text filled in.

    Raises KeyError when an output is not known.
    """
    if isinstance(value, dict):
        if "$ref" in value:
            return at(outputs[value["$ref"]], value["output"])
        return {key: fill(item, known, outputs) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, known, outputs) for item in value]
    return written(value, known) if isinstance(value, str) else value


def written(text: str, known: dict[str, str]) -> str:
    """Fill the places of a text; everything else in it, also other `${...}`, stays."""
    return (
        PLACE.sub(lambda found: known[found[1]], text) if "${" in text else text
    )


def at(outputs: dict[str, Any], path: str) -> Any:
    """Return the output at a path such as backendAddressPools[0].id."""
    found: Any = outputs
    for name, index in INDEX.findall(path):
        found = found[name] if name else found[int(index)]
    return found
