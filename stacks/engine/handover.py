"""A service is handed over: its old machines go when the new ones answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.lifetime import release_time
from planner.spec.model import BUCKET_WEIGHTS
from stacks.engine.protocol import ResourceStep
from stacks.engine.rolling import GROUP_SUFFIX, goes_first, is_machine_group
from stacks.engine.state import resource_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from planner.plan.types import Plan, Pool
    from stacks.engine.protocol import Lives

# How the work of a machine says that it does what it is for.
WORKING: Final = "working"
ADDRESS_DETAIL: Final = "until clients know it; the old machines still answer"


class Handover(Struct, frozen=True, kw_only=True):
    """What has to answer before old machines go.

    pools      pools of the new scaling groups, by the resource name of each group
    startup_s  seconds from the creation of the slowest group until it answers, as planned
    limit_s    seconds after which new machines are given up that do not answer
    stay_s     seconds for which the old ones stay then, while clients learn a new address; 0 where
               the address stays
    awaits_upload  whether somebody must bring the weights to a bucket that is as new as they are
    """

    pools: dict[str, Pool]
    startup_s: float
    limit_s: float
    stay_s: float
    awaits_upload: bool

    @property
    def answer_detail(self) -> str:
        """What is waited for, and what brings it about."""
        if self.awaits_upload:
            return "until its machines answer; bring them the weights: tonnage upload"
        return "until its machines answer"

    def answers(
        self, resource: str, lives: Lives, before: Container[str] = ()
    ) -> bool:
        """Whether a group works, and its pool with as many machines as the quietest hour needs.

        How many machines there are is a matter of the hour. Machines that gave signs of life
        `before` the group was made are those of its predecessor.
        """
        pool = self.pools[resource]
        working = {
            name: sum(
                phase == WORKING and handle not in before
                for handle, phase in lives.get(
                    name.removesuffix(GROUP_SUFFIX), {}
                ).items()
            )
            for name, other in self.pools.items()
            if other.name == pool.name
        }
        return working[resource] > 0 and sum(working.values()) >= max(
            1, pool.min_nodes
        )


def handover_of(plan: Plan, *, moves: bool) -> Handover | None:
    """Return what new machines are waited for; nothing where old ones go without.

    They are not waited for where the spec lets the old ones go first, and where nothing is served.
    `moves` says that the stack stands in another region or cloud.
    """
    serving = [pool for pool in plan.solution.pools if pool.role == "serve"]
    if not serving or goes_first(plan):
        return None
    startup_s = max(float(pool.startup_s) for pool in serving)
    limit_s = startup_s + float(release_time("start_limit_s"))
    awaits_upload = moves and plan.workload.weights == BUCKET_WEIGHTS
    if awaits_upload:
        limit_s += float(release_time("upload_limit_s"))
    return Handover(
        pools={
            resource.name: pool
            for resource in plan.graph.resources
            if is_machine_group(resource.name)
            for pool in serving
            if resource.name.startswith(f"{pool.name}-")
        },
        startup_s=startup_s,
        limit_s=limit_s,
        stay_s=float(release_time("address_change_s")) if moves else 0.0,
        awaits_upload=awaits_upload,
    )


def address_step(stack_name: str) -> ResourceStep:
    """Return the step in which clients learn the new address of a stack."""
    return ResourceStep("create", "address", stack_name)


def machines_go(steps: Iterable[ResourceStep]) -> bool:
    """Whether steps delete a group of machines, or make one anew beside it."""
    return any(
        is_machine_group(resource_name(step.name))
        and (
            step.action == "delete"
            or (step.action == "replace" and not step.deletes_first)
        )
        for step in steps
    )
