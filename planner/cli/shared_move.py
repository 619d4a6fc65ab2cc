"""plan --share: services on other machines than alone, where all of them pay less then."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cli import progress
from planner.cli.compose import solve_settings
from planner.cli.planning import find_plan
from planner.cli.shared_quota import SharedPlan, shared_plan
from planner.plan.portfolio import JointMoves, PlannedMove
from planner.solve.settings import Memory
from planner.workload.joint_move import (
    at_moves,
    cheapest_moves,
    planned_moves,
)
from planner.workload.sharing import AcceleratorPlace, member_of
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.workload.sharing import SharingService


class SharingSpec(Struct, frozen=True):
    """The spec of a service with its folder, and what it has alone."""

    spec_file: SpecFile
    folder: str
    plan: Plan
    member: SharingService


class MoveSearch:
    """Plans of services at places that are not the cheapest of each."""

    def __init__(self, catalog: Catalog, options: PlanningOptions) -> None:
        self._catalog = catalog
        self._options = options
        self._memory = Memory()

    def member_at(
        self, own: SharingSpec, place: AcceleratorPlace
    ) -> SharingService | None:
        """Return what a service brings into the portfolio from a place; None if nothing is shared.

        What its spec rules out stays ruled out there.
        """
        spec_file = own.spec_file
        settings = solve_settings(
            spec_file, self._catalog, self._options, memory=self._memory
        )
        offers = tuple(
            offer
            for offer in settings.catalog.offers
            if AcceleratorPlace(
                offer.provider, offer.region, offer.instance.accelerator
            )
            == place
        )
        solution = find(
            spec_file.spec,
            replace(
                settings,
                catalog=replace(settings.catalog, offers=offers),
                alternative_count=0,
                names_nearest=False,
            ),
        )
        member = member_of(
            spec_file.spec, solution, spec_file.folder_reader(), own.folder
        )
        if member is None or len(member.pools) > 1:
            return None
        return replace(
            member, dearer_usd=member.total_usd - own.member.total_usd
        )

    def plan_at(self, own: SharingSpec, place: AcceleratorPlace) -> SharedPlan:
        """Return the whole plan of a service at a place, as if its spec said so."""
        spec = own.spec_file.spec
        narrowed = replace(
            spec.where,
            clouds=(place.provider,),
            regions=(place.region,),
            accelerators=replace(
                spec.where.accelerators, allow=(place.accelerator,)
            ),
        )
        spec_file = replace(own.spec_file, spec=replace(spec, where=narrowed))
        return shared_plan(
            spec_file,
            own.folder,
            partial(
                find_plan,
                spec_file,
                self._catalog,
                self._options,
                self._memory,
            ),
        )


def moved_together(
    sharing: Sequence[SharingSpec],
    search: MoveSearch,
    together_usd: Callable[[Sequence[SharingService]], Decimal],
) -> tuple[dict[str, SharedPlan], JointMoves]:
    """Return the plans of services that move for the sake of all, by name, and what that saves.

    `together_usd` is what services pay together, USD a month.
    """
    members = [own.member for own in sharing]
    planned = planned_moves(members, [_rivals(own.plan) for own in sharing])
    with progress.waiting("comparing fleets on other machines"):
        moved = {
            (number, place): member
            for number, place in planned.services
            if (member := search.member_at(sharing[number], place)) is not None
        }
        moves = cheapest_moves(members, moved, together_usd)
        plans = {
            members[number].name: replace(
                search.plan_at(sharing[number], place),
                member=moved[number, place],
            )
            for number, place in moves.items()
        }
    return plans, JointMoves(
        moved={
            members[number].name: PlannedMove(
                alone=sharing[number].plan,
                place=place,
                dearer_usd=moved[number, place].dearer_usd,
            )
            for number, place in moves.items()
        },
        compared=len(moved),
        are_all=planned.are_all,
        usd=together_usd(members)
        - together_usd(at_moves(members, moved, moves)),
    )


def _rivals(plan: Plan) -> list[AcceleratorPlace]:
    """Return where the machines of a plan could be for more, the cheapest first."""
    return [
        AcceleratorPlace(pool.provider, pool.region, pool.accelerator)
        for rival in plan.alternatives
        if rival.reason.code == "price"
        for pool in rival.pools
    ]
