"""The life of the machines of a training run, and of its checkpoints, as a plan tells them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.solve.solution import KeptCheckpoints, MachineLife
from planner.units import BYTES_PER_GB

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.solve.training.cluster import Cluster


def machine_life(cluster: Cluster) -> MachineLife:
    """Return what one machine is billed for in the mean run, in the order of events."""
    working_s = cluster.expected_s - cluster.startup_s - cluster.closing_s
    return MachineLife(
        start_s=cluster.startup_s,
        steps_s=cluster.progress_s,
        # Spot machines are not paid while they are away.
        lost_s=cluster.paid_working_s - cluster.progress_s,
        closing_s=cluster.closing_s,
        release_s=cluster.billed_s(cluster.startup_s + working_s)
        - cluster.startup_s
        - working_s,
    )


def step_pace_s(cluster: Cluster) -> float:
    """Return the time of the run over its steps, without stops, seconds.

    It has the margin of the required confidence, the waiting for data and the evaluation.
    """
    return cluster.progress_s / cluster.requirement.training_steps


def kept_checkpoints(
    cluster: Cluster, price_book: PriceBook
) -> KeptCheckpoints:
    """Return which checkpoints are kept, and what those cost a month that a run leaves."""
    retention = cluster.requirement.retention
    left_bytes = cluster.checkpoints_left * cluster.checkpoint_bytes
    storage_prices = price_book.find(cluster.offer.provider, "object_storage")
    return KeptCheckpoints(
        keep_last=retention.keep_last,
        keep_every_s=retention.keep_every_s,
        span_steps=max(1, round(retention.keep_every_s / step_pace_s(cluster))),
        left=cluster.checkpoints_left,
        left_bytes=left_bytes,
        left_usd_month=storage_prices[0].usd
        * Decimal(left_bytes / BYTES_PER_GB)
        if storage_prices
        else None,
    )
