"""The services that have an engine on the machines of another one: specs in files of their own.

Of such a file count model, traffic, sla and serving. All else is of the host: a key that says
something else is refused where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.spec.load import load_spec
from planner.spec.model import Inference
from planner.spec.plain import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A choice of ours: seven slices are the most that an accelerator is divided into.
MOST_NEIGHBORS: Final = 6
# What is the neighbor's own.
OWN_KEYS: Final = ("place", "name", "model", "traffic", "sla", "serving")
# Its request paths are /NAME/v1/, and those of the host begin with this.
HOST_PATH: Final = "v1"


def neighbor_specs(
    host: Inference, read_file: Callable[[str], bytes]
) -> tuple[Inference, ...]:
    """Return the specs of `serving.beside`, each with all that is not its own as the host has it.

    Raises SpecError with what contradicts the host, and where that stands.
    """
    neighbors: list[Inference] = []
    problems: list[Problem] = []
    names = host.serving.beside or ()
    if len(names) > MOST_NEIGHBORS:
        problems.append(
            Problem(
                code="beside",
                message=f"serving.beside: at most {MOST_NEIGHBORS} services are beside another",
                place=host.serving.place,
                next_step="plan the others on machines of their own",
            )
        )
    for file_name in names:
        spec = load_spec(read_file(file_name), file_name)
        if not isinstance(spec, Inference):
            problems.append(_no_service(host, file_name))
            continue
        others = (host, *neighbors)
        found = [*_contradictions(host, spec), *_own_problems(spec, others)]
        problems += found
        neighbors.append(_beside(host, spec))
    if problems:
        raise SpecError(*problems)
    return tuple(neighbors)


def _beside(host: Inference, spec: Inference) -> Inference:
    own = {key: getattr(spec, key) for key in OWN_KEYS}
    return replace(host, **own)


def _no_service(host: Inference, file_name: str) -> Problem:
    return Problem(
        code="beside-kind",
        message=f"serving.beside: {file_name} is no Inference",
        place=host.serving.place,
        next_step="name specs of services alone",
    )


def _contradictions(host: Inference, spec: Inference) -> Iterator[Problem]:
    """Yield the keys of a neighbor that say something else than those of its host."""
    plain = Inference(
        place=spec.place,
        name=spec.name,
        model=spec.model,
        traffic=spec.traffic,
        # A spec that leaves it out has it once it is loaded.
        protect=False,
    )
    for key in Inference.__struct_fields__:
        said = plain_values(getattr(spec, key))
        if key in OWN_KEYS or said == plain_values(getattr(plain, key)):
            continue
        if said != plain_values(getattr(host, key)):
            block = getattr(spec, key)
            yield Problem(
                code="beside",
                message=f"{key} is that of {host.name}, on whose machines {spec.name} is",
                place=getattr(block, "place", None) or spec.place,
                next_step=f"remove {key}, or write what {host.place.path} has",
            )


def _own_problems(
    spec: Inference, others: tuple[Inference, ...]
) -> Iterator[Problem]:
    """Yield what a neighbor may not ask for, or be called."""
    rules = (
        (
            spec.name in (HOST_PATH, *(other.name for other in others)),
            f"name: {spec.name} is taken on these machines",
            "give each service a name of its own",
            spec.place,
        ),
        (
            spec.serving.beside is not None,
            f"serving.beside: {spec.name} is beside another service itself",
            "name all of them in the spec of the host",
            spec.serving.place,
        ),
        (
            spec.serving.engine not in ("auto", "vllm"),
            "serving.engine: engines that share an accelerator are those of vLLM",
            "write engine: vllm",
            spec.serving.place,
        ),
        (
            spec.serving.speculation != "off",
            "serving.speculation: engines that share an accelerator do not guess",
            "write speculation: off",
            spec.serving.place,
        ),
        (
            "://" in spec.model.weights or spec.model.token is not None,
            "model.weights: those of a service beside another one need no other right",
            "write weights: bucket, or hf without a token",
            spec.model.place,
        ),
        (
            bool(spec.model.config or spec.traffic.trace),
            f"{spec.name} names a file itself, and is beside another service",
            "write model.name, and the lengths of the traffic",
            spec.place,
        ),
        (
            spec.traffic.routing != others[0].traffic.routing,
            f"traffic.routing is that of {others[0].name}, whose router it has",
            f"write routing: {others[0].traffic.routing}",
            spec.traffic.place,
        ),
    )
    for is_broken, message, next_step, place in rules:
        if is_broken:
            yield Problem(
                code="beside",
                message=message,
                place=place or spec.place,
                next_step=next_step,
            )
