"""What a service and those beside it require of the machines that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.cost.weekly_load import Week
from planner.errors import Problem, SpecError
from planner.solve.serving.requirement import Neighbor, serving_requirement
from planner.spec.beside import neighbor_specs
from planner.spec.model import Inference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.perf.serving.replica import Confidence
    from planner.solve.serving.requirement import ServingRequirement
    from planner.spec.model import Batch

# What may fail at once, the least first.
FAILURES = (None, "node", "zone")


def machine_requirement(
    spec: Inference | Batch, read_file: Callable[[str], bytes]
) -> ServingRequirement:
    """Return what a spec requires of its machines, with the services beside it.

    Raises SpecError when it, or a file of `serving.beside`, contradicts itself.
    """
    requirement = serving_requirement(spec, read_file)
    if not isinstance(spec, Inference) or not spec.serving.beside:
        return requirement
    # The host is known to be a service; what its neighbors say counts from here on.
    specs = neighbor_specs(spec, read_file)
    # Nothing of a neighbor is in a file of its own.
    alone = [serving_requirement(each, read_file) for each in specs]
    host, *others = _in_joint_hours([requirement, *alone])
    return replace(
        host,
        availability=max(
            (
                each.availability
                for each in (host, *others)
                if each.availability is not None
            ),
            default=None,
        ),
        survives=max(
            (each.survives for each in (host, *others)), key=FAILURES.index
        ),
        beside=tuple(
            Neighbor(
                name=each.name,
                model=each.model,
                # What may fail is a matter of the machines: the strictest promise holds for all.
                requirement=replace(other, availability=None, survives=None),
            )
            for each, other in zip(specs, others, strict=True)
        ),
    )


def with_confidence(
    requirement: ServingRequirement, confidence: Confidence
) -> ServingRequirement:
    """Return a requirement whose services all keep their limits with a confidence.

    Raises SpecError for a correction of a benchmark where accelerators are shared: it was measured
    on whole ones.
    """
    if requirement.beside and confidence.correction is not None:
        raise SpecError(
            Problem(
                code="beside",
                message="a calibration is of whole accelerators, and serving.beside shares them",
                next_step="plan without --calibration, or remove serving.beside",
            )
        )
    return replace(
        requirement,
        confidence=confidence,
        beside=tuple(
            replace(
                neighbor,
                requirement=replace(
                    neighbor.requirement, confidence=confidence
                ),
            )
            for neighbor in requirement.beside
        ),
    )


def alone_requirements(
    requirement: ServingRequirement,
) -> Iterator[tuple[str, ServingRequirement]]:
    """Yield what each service requires of machines of its own, with the promise of all."""
    for name, service in (
        # The service of the spec needs no name to be known by.
        ("this service", replace(requirement, beside=())),
        *((each.name, each.requirement) for each in requirement.beside),
    ):
        yield (
            name,
            replace(
                service,
                week=service.traffic_week,
                own_week=None,
                availability=requirement.availability,
                survives=requirement.survives,
            ),
        )


def _in_joint_hours(
    services: Sequence[ServingRequirement],
) -> list[ServingRequirement]:
    """Return services whose machines follow the hours of all of them.

    The load of an hour is the largest of the loads of the services, each relative to its own
    peak: so many of the machines are enough for each of them.
    """
    joint_week = Week(
        tuple(
            max(loads)
            for loads in zip(
                *(each.week.relative_load for each in services), strict=True
            )
        ),
        services[0].week.running_share,
        services[0].week.schedule,
    )
    return [
        replace(each, week=joint_week, own_week=each.week) for each in services
    ]
