"""Which machines may have a public address of their own, by the rules of data/rules.csv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from planner.facts.rule import rules_of

if TYPE_CHECKING:
    from planner.market.offer import Instance

# The key of a spec that asks for them, and the rule on offers that comes of it.
ADDRESS_KEY: Final = "network.public_addresses"


def takes_public_address(instance: Instance, *, spans_nodes: bool) -> bool:
    """Whether its cloud gives each machine of a type a public address while it runs.

    `spans_nodes` says that a replica or a job spans several machines: some types are joined by
    their fabric then, and have interfaces for it.
    """
    is_joined = instance.attaches_fabric(spans_nodes=spans_nodes)
    facts = {**asdict(instance), "is_joined": is_joined}
    return not any(
        rule.is_broken(facts) for rule in rules_of("public", instance.provider)
    )
