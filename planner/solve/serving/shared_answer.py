"""What an answer says of services that share accelerators, and of what keeps them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.solve.cause import because
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.requirement import Neighbor
from planner.solve.serving.sizing import (
    FleetSizing,
    NeighborSizing,
    size_fleet,
)
from planner.solve.serving.token_volume import joint_volume, token_volume
from planner.solve.solution import PlanWarning, SizedService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.bill import Bill
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.verify import FleetJudge
    from planner.solve.solution import (
        BandedPrediction,
        SimulationCheck,
        TokenVolume,
    )
    from planner.spec.model import Batch, Inference

HOST_PATH: Final = "/v1/"


def sized_services(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    sizing: FleetSizing,
    judge: FleetJudge,
) -> tuple[SizedService, ...]:
    """Return the services of a fleet, that of the spec first; none with whole accelerators."""
    if not sizing.beside:
        return ()
    host = NeighborSizing(
        neighbor=Neighbor(
            name=spec.name, model=spec.model, requirement=requirement
        ),
        sizing=sizing,
    )
    return (
        _sized_service(host, HOST_PATH, judge),
        *(
            _sized_service(each, f"/{each.neighbor.name}{HOST_PATH}", judge)
            for each in sizing.beside
        ),
    )


def _sized_service(
    service: NeighborSizing, path: str, judge: FleetJudge
) -> SizedService:
    neighbor, sizing = service.neighbor, service.sizing
    requirement = neighbor.requirement
    part, replica = sizing.part, sizing.replica
    assert part is not None  # noqa: S101 - the search gives each a part
    return SizedService(
        name=neighbor.name,
        path=path,
        model=neighbor.model,
        llm=requirement.llm,
        part=part,
        layout=sizing.layout,
        max_batch=replica.max_batch,
        context_tokens=requirement.load.max_context_tokens,
        token_budget=replica.startup_memory.max_step_tokens,
        memory_share=told_share(sizing),
        predictions=predict_serving(requirement, sizing),
        limits=requirement.limits,
        simulation_check=checked(requirement, sizing, judge),
    )


def told_share(sizing: FleetSizing) -> float:
    """Return the share of the memory that an engine is told to fill.

    Of engines that share the time it is that of the whole accelerator.
    """
    share = sizing.replica.startup_memory.told_share
    return share if sizing.part is None else share * sizing.part.memory_share


def checked(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> SimulationCheck | None:
    """Return how a fleet was judged, and how many groups that added."""
    by_formula = size_fleet(requirement, sizing.replica, sizing.group)
    formula_groups = (
        by_formula.peak_groups
        if isinstance(by_formula, FleetSizing)
        else sizing.peak_groups
    )
    return judge.check(
        requirement, sizing, max(0, sizing.peak_groups - formula_groups)
    )


def all_volume(
    requirement: ServingRequirement,
    predictions: dict[str, BandedPrediction],
    sizing: FleetSizing,
    bill: Bill,
) -> TokenVolume:
    """Return the tokens of all services of a fleet: the bill is that of all."""
    return joint_volume(
        [
            token_volume(requirement, predictions, bill),
            *(
                token_volume(
                    each.neighbor.requirement,
                    predict_serving(each.neighbor.requirement, each.sizing),
                    bill,
                )
                for each in sizing.beside
            ),
        ]
    )


def shared_warnings(
    spec: Inference | Batch, sizing: FleetSizing
) -> Iterator[PlanWarning]:
    """Yield what keeps the engines of one accelerator apart, and what does not."""
    if sizing.part is None:
        return
    # The host has an engine too.
    engines = 1 + len(sizing.beside)
    reason = because("time-shares", engines=engines)
    if sizing.part.profile:
        reason = because("slices", engines=engines)
    yield PlanWarning(code="beside", reason=reason, place=spec.serving.place)
