"""A fifth kind of workload that stands in the test tree alone: prompts that grade a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner.solve.cause import because
from planner.solve.serving.answer import solve_serving
from planner.solve.serving.requirement import serving_requirement
from planner.solve.solution import Counterfactual
from planner.spec.kinds import SPEC_KINDS
from planner.spec.model import Batch
from planner.spec.shared_blocks import header_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import FleetSummary, Solution
    from planner.spec.field import Block
    from planner.workload.base import Workload


class Evaluation(Batch, frozen=True, kw_only=True):
    """Prompts of a benchmark: a batch by another name."""


class EvaluationWorkload:
    """Grades a model once."""

    kind = "Evaluation"
    name = "evaluation"
    period: Period = "month"
    resumes = True
    scaled_quantity = "prompts"

    @property
    def spec_block(self) -> Block:
        batch_block = SPEC_KINDS["Batch"]
        return replace(
            batch_block,
            name="Evaluation",
            build_object=Evaluation,
            fields=(*header_fields("Evaluation"), *batch_block.fields[2:]),
        )

    def check(
        self, spec: Evaluation, read_file: Callable[[str], bytes]
    ) -> None:
        """Raise what is wrong before any offer is looked at."""
        serving_requirement(spec, read_file)

    def solve(
        self,
        spec: Evaluation,
        settings: SolveSettings,
        offer_filter: OfferFilter,
    ) -> Solution:
        return solve_serving(spec, settings, offer_filter)

    def explain_type(
        self,
        spec: Evaluation,
        settings: SolveSettings,
        machine_type: FleetSummary,
        offers: list[Offer],
    ) -> Counterfactual:
        return Counterfactual(
            machine_type, None, because("told", told="nobody graded on it")
        )

    def scale(
        self,
        spec: Evaluation,
        settings: SolveSettings,
        offer_filter: OfferFilter,
        factor: float,
    ) -> Counterfactual:
        return Counterfactual(
            None, None, because("told", told="graded already")
        )

    def request_phrases(self, normalized: dict[str, Any]) -> list[str]:
        return [f"{normalized['traffic']['total_requests']:,} prompts"]


EVALUATION: Workload = EvaluationWorkload()
