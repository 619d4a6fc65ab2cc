"""What a standing stack costs, and the time of the clouds that it stands on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from planner.cli.compose import open_catalog

if TYPE_CHECKING:
    from planner.plan.account import StackAccount
    from planner.plan.status import StackStatus
    from stacks.engine.protocol import StackEngine


def stack_account(engine: StackEngine, status: StackStatus) -> StackAccount:
    """Return what a stack costs, now and so far."""
    from stacks.operate.account import account_of

    world = engine.simulated_world()
    catalog = open_catalog(None, None if world is None else world.rules)
    return account_of(status, world, catalog, engine_now(engine))


def engine_now(engine: StackEngine) -> datetime:
    """Return the time of the clouds that an engine works on: simulated ones have their own."""
    world = engine.simulated_world()
    return datetime.now(UTC) if world is None else world.now()
