"""What a given fleet does at other loads than the peak that it was sized for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.solve.serving.predict import predict_serving
from planner.solve.serving.sizing import predict_service, saturation_rps
from planner.solve.solution import LoadPoint
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

# A choice of ours: loads below the peak, and as far above it as a reader plans ahead.
STEPS_PER_PEAK: Final = 8
MOST_SHARE: Final = 3
# Near saturation a queue has no end, and its times say nothing.
MOST_BUSY: Final = 0.95


def load_curve(
    requirement: ServingRequirement, sizing: FleetSizing
) -> tuple[LoadPoint, ...]:
    """Return the predictions of a fleet from a light load up to the first that is too much.

    Loads are eighths of the peak. Too much is a load at which a latency limit is missed, which is
    the last point, or one that the replicas could not complete, which is none. The point at the
    peak has the predictions of the plan.
    """
    # A recording is played by the simulation, and these are formulas.
    plain_requirement = replace(requirement, trace=None)
    curve = []
    for point in _points(plain_requirement, sizing):
        curve.append(point)
        if point.share >= 1 and _misses_limit(plain_requirement, point):
            break
    return tuple(curve)


def _points(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Iterator[LoadPoint]:
    replica_count = sizing.replicas_per_group * sizing.peak_groups
    expected_replica = sizing.replica.predicted
    full_load = (
        # A closed loop fills slots, an open one the rate of completions.
        expected_replica.max_batch * replica_count
        if requirement.mode == "closed"
        else saturation_rps(expected_replica) * replica_count * MOST_BUSY
    )
    for step in range(1, MOST_SHARE * STEPS_PER_PEAK + 1):
        share = step / STEPS_PER_PEAK
        loaded = requirement.with_scaled_load(share)
        load = (
            loaded.load.concurrency
            if requirement.mode == "closed"
            else loaded.load.rate_per_s
        )
        # Rounding leaves small closed loops without a user.
        if not load:
            continue
        is_carried = predict_service(loaded, expected_replica, replica_count)
        if share > 1 and (load > full_load or is_carried is None):
            return
        yield LoadPoint(load, share, predict_serving(loaded, sizing))


def _misses_limit(requirement: ServingRequirement, point: LoadPoint) -> bool:
    return any(
        point.predictions[f"{limit.metric}_p{limit.percentile}_ms"].value
        > float(limit.seconds) * MS_PER_S
        for limit in requirement.limits
    )
