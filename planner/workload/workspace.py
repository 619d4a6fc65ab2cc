"""Machines for people: notebooks and debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner.solve.cause import DEARER, INFEASIBLE
from planner.solve.solution import Counterfactual, FleetSummary, Solution
from planner.solve.workspace.answer import solve_workspace
from planner.solve.workspace.requirement import (
    cheapest_bill,
    workspace_requirement,
    workspace_shortfall,
)
from planner.spec.kinds import SPEC_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.spec.field import Block
    from planner.spec.model import Workspace
    from planner.workload.base import Workload


class WorkspaceWorkload:
    """One machine for each of a few people."""

    kind = "Workspace"
    name = "workspace"
    period: Period = "month"
    resumes = False
    scaled_quantity = "people"

    @property
    def spec_block(self) -> Block:
        """The fields of its specs."""
        return SPEC_KINDS[self.kind]

    def check(self, spec: Workspace, read_file: Callable[[str], bytes]) -> None:
        """Raise what is wrong before any offer is looked at."""
        del read_file  # no file is named by a workspace
        workspace_requirement(spec)

    def solve(
        self,
        spec: Workspace,
        settings: SolveSettings,
        offer_filter: OfferFilter,
    ) -> Solution:
        """Return the cheapest machine that fits."""
        return solve_workspace(spec, settings, offer_filter)

    def explain_type(
        self,
        spec: Workspace,
        settings: SolveSettings,
        machine_type: FleetSummary,
        offers: list[Offer],
    ) -> Counterfactual:
        """Say what the machine type lacks, or what it costs."""
        shortfall = workspace_shortfall(
            spec, workspace_requirement(spec), offers[0]
        )
        fleet = replace(machine_type, nodes=spec.users)
        if shortfall:
            return Counterfactual(fleet, None, shortfall)
        # Allowed offers differ in the purchase option: a commitment is billed for all hours.
        _, bill = cheapest_bill(spec, offers, settings.catalog.price_book)
        return Counterfactual(
            fleet, bill.total, DEARER, is_partial=bill.is_partial
        )

    def scale(
        self,
        spec: Workspace,
        settings: SolveSettings,
        offer_filter: OfferFilter,
        factor: float,
    ) -> Counterfactual:
        """Return the machines for so many times the people."""
        users = max(1, round(spec.users * factor))
        solution = self.solve(
            replace(spec, users=users), settings, offer_filter
        )
        if solution.bill is None:
            return Counterfactual(None, None, INFEASIBLE, users=users)
        return Counterfactual(
            None,
            solution.bill.total,
            None,
            users=users,
            is_partial=solution.bill.is_partial,
        )

    def request_phrases(self, normalized: dict[str, Any]) -> list[str]:
        """Say for how many people."""
        return [f"{normalized['users']} users"]


WORKSPACE: Workload = WorkspaceWorkload()
