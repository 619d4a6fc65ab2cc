"""The services that share the accelerators of a fleet, as its machines run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.common import memory
from stacks.spec.upload import hub_weights

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout
    from planner.solve.solution import SizedPool
    from stacks.spec.upload import HubWeights


class FleetService(Struct, frozen=True, kw_only=True):
    """A service with an engine beside that of the stack, on each accelerator.

    name          under which clients reach it: /NAME/v1/
    profile       MIG profile of its slices, empty where engines share the time
    weights_bytes of its checkpoint
    All else is as in a fleet of its own, see `FleetSpec` and `StackSpec`.
    """

    name: str
    model_name: str
    hub_weights: HubWeights | None
    layout: ReplicaLayout
    max_batch: int
    context_tokens: int
    token_budget: int
    memory_share: float
    quantize_on_load: bool
    profile: str
    weights_bytes: int


def fleet_services(pool: SizedPool) -> tuple[FleetService, ...]:
    """Return the services beside that of a pool."""
    return tuple(
        FleetService(
            name=service.name,
            model_name=service.llm.model,
            hub_weights=hub_weights(service.model),
            layout=service.layout,
            max_batch=service.max_batch,
            context_tokens=service.context_tokens,
            token_budget=service.token_budget,
            memory_share=service.memory_share,
            quantize_on_load=quantizes_on_load(service.llm, service.layout),
            profile=service.part.profile,
            weights_bytes=int(
                memory.checkpoint_bytes(service.llm, service.layout)
            ),
        )
        for service in pool.services[1:]
    )


def quantizes_on_load(llm: Llm, layout: ReplicaLayout) -> bool:
    """Whether the server makes fp8 weights from a 16-bit checkpoint when it loads it."""
    return layout.precision == "fp8" and llm.precision in SIXTEEN_BIT
