"""When the machines of a capacity block come, save their work, and go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from planner.cost.lifetime import release_time
from planner.spec.block import moment_s

if TYPE_CHECKING:
    from planner.spec.block import CapacityBlock


def first_moment(block: CapacityBlock) -> datetime:
    """When the machines of a block come."""
    return datetime.fromtimestamp(moment_s(block.starts), UTC)


def saving_moment(block: CapacityBlock) -> datetime:
    """When the machines of a block save their work."""
    return _before_end(block, "block_end_s")


def last_moment(block: CapacityBlock) -> datetime:
    """When the machines of a block go."""
    return _before_end(block, "block_gone_s")


def _before_end(block: CapacityBlock, rule: str) -> datetime:
    seconds = moment_s(block.ends) - float(release_time(rule))
    return datetime.fromtimestamp(seconds, UTC)
