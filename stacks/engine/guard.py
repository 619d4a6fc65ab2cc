"""What needs a permission: data of a protected stack, and what people depend on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.errors import CredentialError, PolicyError, Problem
from planner.facts import table
from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from planner.plan.change import Changes, ResourceChange
    from planner.plan.graph import PlannedResource
    from planner.plan.status import StackFacts
    from planner.plan.types import Plan


def refuse_protected(
    stack_name: str, facts: StackFacts | None, allow: Collection[str]
) -> None:
    """Raise PolicyError where data of a protected stack would be deleted, whatever is allowed."""
    if facts is not None and facts.protect and "delete-data" in allow:
        raise PolicyError(
            Problem(
                code="protected",
                message=f"{stack_name} is protected: its data are not deleted",
                cause="its spec says protect: true, which is the default of training",
                next_step="apply it with protect: false first, or leave out delete-data",
            )
        )


def account_text(provider: str, account: str) -> str:
    """Return how a state writes down an account of a cloud."""
    return f"{provider}/{account}"


def refuse_other_account(
    stack_name: str, standing: str, account_of: Callable[[str], str]
) -> None:
    """Raise CredentialError where who is signed in does not see what stands.

    A cloud answers that nothing is there, and machines of the other account would be forgotten
    while they run. `standing` is the account in which the stack stands, empty for a new one, and
    `account_of` says which one of a cloud is signed in.
    """
    provider, _, account = standing.partition("/")
    if not account or (present := account_of(provider)) == account:
        return
    raise CredentialError(
        Problem(
            code="account",
            message=f"{stack_name} stands in the account {account} of "
            f"{clouds()[provider].title}, and {present} is signed in",
            cause="what is in one account is not seen from another",
            next_step=f"sign in to {account}, or let a new stack have another name",
        )
    )


def refuse_left_disks(plan: Plan, facts: StackFacts | None) -> None:
    """Raise PolicyError where machines of a workspace would be in another zone than its disks.

    The disks are kept in the zone that they were made in, and no machine of another zone attaches
    them.
    """
    if facts is None or (facts.provider, facts.region) != (
        plan.graph.provider,
        plan.graph.region,
    ):
        return
    held_zones = {
        pool.name: pool.zones[0]
        for pool in facts.pools
        if pool.role == "workspace" and pool.zones
    }
    for pool in plan.solution.pools:
        zone = held_zones.get(pool.name)
        if zone is not None and pool.zones and pool.zones[0] != zone:
            raise PolicyError(
                Problem(
                    code="zone",
                    message=f"the disks of {plan.stack.name} are in {zone}, and its "
                    f"{pool.instance_type} would be in {pool.zones[0]}",
                    cause="a disk is attached in its own zone alone",
                    next_step="ask for machines that are sold there, or copy the files and make "
                    f"the stack anew: tonnage destroy {plan.stack.name} --allow delete-data",
                )
            )


def refuse_production(
    stack_name: str, facts: StackFacts | None, allow: Collection[str], what: str
) -> None:
    """Raise PolicyError for a stack in production, unless that is allowed; `what` would happen."""
    label = production_label(facts.labels) if facts is not None else ""
    if label and "production" not in allow:
        raise PolicyError(
            Problem(
                code="production",
                message=f"{stack_name} is in production ({label}), and {what}",
                next_step="allow it: --allow production",
            )
        )


def production_label(labels: Mapping[str, str]) -> str:
    """Return the label that says that people depend on a stack, as NAME: VALUE; empty without."""
    for name, value in sorted(labels.items()):
        if (name.lower(), value.lower()) in _production_labels():
            return f"{name}: {value}"
    return ""


@cache
def _production_labels() -> frozenset[tuple[str, str]]:
    columns = {
        "label": table.nonempty_text,
        "value": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return frozenset(
        (row["label"], row["value"])
        for row in table.load_rows("stacks", "production_labels.csv", columns)
    )


def refuse_purchase(plan: Plan, changes: Changes | None) -> None:
    """Raise PolicyError for a plan that buys a capacity block; `changes` are those of a stack."""
    made: Iterable[PlannedResource | ResourceChange] = (
        plan.graph.resources
        if changes is None
        else (*changes.create, *changes.replace, *changes.replace_first)
    )
    if not any(resource.type in _purchase_types() for resource in made):
        return
    block = plan.spec.normalized["buy"]["block"]
    raise PolicyError(
        Problem(
            code="buy-block",
            message=f"apply would buy the capacity block {block['id']}: {block['machines']} x "
            f"{block['type']} until {block['ends']} for {float(block['usd']):,.0f} USD",
            cause="it is paid for at once, and nobody takes it back",
            next_step="add --buy-capacity-blocks",
        )
    )


@cache
def _purchase_types() -> frozenset[str]:
    columns = {
        "type": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return frozenset(
        row["type"]
        for row in table.load_rows("stacks", "purchases.csv", columns)
    )
