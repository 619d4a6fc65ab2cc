"""Grants that somebody gives by hand, because they are on things of others."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.facts.cloud import clouds
from planner.spec.model import SECRET_SCHEME
from stacks.spec.stack import GROUP_OUTPUT
from stacks.spec.upload import bucket_place, secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.types import Plan

# The name of what the machines of a stack are in its cloud.
IDENTITY: Final = "{stack}-node"


def hand_grants(plan: Plan, outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commands that let machines read what a spec names and a stack may not grant.

    On clouds where the stack itself gives these rights there are none.
    """
    cloud = plan.graph.provider
    names = {
        "group": str(outputs.get(GROUP_OUTPUT, "")),
        "identity": IDENTITY.format(stack=plan.stack.name),
    }
    commands = [
        command.format(**names, owner=owner, part=part)
        for need, owner, part in _needs(plan.spec.normalized, cloud)
        if (command := _commands().get((cloud, need)))
    ]
    return tuple(dict.fromkeys(commands))


def _needs(
    spec: Mapping[str, Any], cloud: str
) -> Iterator[tuple[str, str, str]]:
    """Yield what machines read of others: secret or folder, whose, and which part of it."""
    endpoint, model = spec.get("endpoint") or {}, spec.get("model") or {}
    for address in (
        endpoint.get("api_key"),
        endpoint.get("certificate"),
        model.get("token"),
    ):
        if isinstance(address, str) and address.startswith(SECRET_SCHEME):
            vault, _, name = secret_name(address).partition("/")
            yield "secret", vault, name
    for address in (
        model.get("weights"),
        (spec.get("data") or {}).get("location"),
    ):
        place = bucket_place(address) if isinstance(address, str) else None
        if place is None or not _is_of(cloud, str(address)):
            continue
        part, _, host = place.bucket.partition("@")
        yield "folder", host.partition(".")[0], part


def _is_of(cloud: str, address: str) -> bool:
    return address.partition("://")[0] in clouds()[cloud].url_schemes


@cache
def _commands() -> dict[tuple[str, str], str]:
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "need": table.one_of("secret", "folder"),
        "command": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        (row["cloud"], row["need"]): row["command"]
        for row in table.load_rows("stacks", "hand_grants.csv", columns)
    }
