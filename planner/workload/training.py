"""Training a model: a run with an end, on one cluster."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner import figures
from planner.numeric import EVEN_ODDS
from planner.solve.cause import INFEASIBLE
from planner.solve.settings import DEFAULT_LEVEL
from planner.solve.solution import Counterfactual, FleetSummary, Solution
from planner.solve.training.answer import (
    lost_by,
    preferred_search,
    solve_training,
)
from planner.solve.training.requirement import (
    TrainingRequirement,
    training_requirement,
)
from planner.spec.kinds import SPEC_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.spec.field import Block
    from planner.spec.model import Training
    from planner.workload.base import Workload


class TrainingWorkload:
    """Pretraining, fine-tuning, adapters and preferences."""

    kind = "Training"
    name = "training"
    period: Period = "run"
    resumes = True
    scaled_quantity = "tokens"

    @property
    def spec_block(self) -> Block:
        """The fields of its specs."""
        return SPEC_KINDS[self.kind]

    def check(self, spec: Training, read_file: Callable[[str], bytes]) -> None:
        """Raise what is wrong before any offer is looked at."""
        training_requirement(spec, read_file, DEFAULT_LEVEL)

    def solve(
        self,
        spec: Training,
        settings: SolveSettings,
        offer_filter: OfferFilter,
    ) -> Solution:
        """Return the cheapest cluster within the limits, or that of the knee."""
        return solve_training(
            _requirement(spec, settings),
            offer_filter,
            settings.catalog,
            settings.alternative_count,
        )

    def explain_type(
        self,
        spec: Training,
        settings: SolveSettings,
        machine_type: FleetSummary,
        offers: list[Offer],
    ) -> Counterfactual:
        """Search this machine type alone: its best cluster, or why it ends too late."""
        cluster_search = preferred_search(
            _requirement(spec, settings), settings.catalog.price_book
        )
        ranking = cluster_search.solve(offers, 1)
        # A feasible cluster can only lose by what is minimized.
        if ranking.feasible:
            best_candidate = ranking.feasible[0]
            return Counterfactual(
                replace(machine_type, nodes=best_candidate.cluster.nodes),
                best_candidate.bill.total,
                lost_by(cluster_search, best_candidate.cluster),
                is_partial=best_candidate.bill.is_partial,
            )
        return Counterfactual(machine_type, None, ranking.rejected[0].reason)

    def scale(
        self,
        spec: Training,
        settings: SolveSettings,
        offer_filter: OfferFilter,
        factor: float,
    ) -> Counterfactual:
        """Return the cluster for so many times the tokens."""
        # Resolved tokens: the spec may give samples, or nothing.
        tokens = round(_requirement(spec, settings).tokens * factor)
        longer_spec = replace(spec, data=replace(spec.data, tokens=tokens))
        solution = self.solve(longer_spec, settings, offer_filter)
        if solution.bill is None:
            return Counterfactual(None, None, INFEASIBLE)
        job_pool = next(pool for pool in solution.pools if pool.role == "train")
        instance = job_pool.instance
        fleet = FleetSummary(
            instance.provider, "", instance.instance_type, job_pool.nodes
        )
        return Counterfactual(
            fleet,
            solution.bill.total,
            None,
            is_partial=solution.bill.is_partial,
        )

    def request_phrases(self, normalized: dict[str, Any]) -> list[str]:
        """Say the method, how much is trained on, and the deadline."""
        dataset = normalized["data"]
        train = normalized["train"]
        phrases = [train["method"]]
        if "tokens" in dataset:
            phrases.append(f"{figures.short_count(dataset['tokens'])} tokens")
        elif "samples" in dataset:
            is_preference = train["method"].startswith("dpo")
            sample_noun = "pairs" if is_preference else "sequences"
            sample_count = figures.short_count(dataset["samples"])
            phrases.append(f"{sample_count} {sample_noun}")
        if "deadline" in train:
            deadline = figures.compact_seconds(Decimal(train["deadline"]))
            phrases.append(f"within {deadline}")
        if "budget" in train:
            budget = figures.dollars(Decimal(train["budget"]))
            phrases.append(f"for at most {budget}")
        if train["prefer"] == "time":
            phrases.append("sooner rather than cheaper")
        return phrases


def _requirement(
    spec: Training, settings: SolveSettings
) -> TrainingRequirement:
    requirement = training_requirement(
        spec, settings.read_file, settings.confidence.level or EVEN_ODDS
    )
    return replace(requirement, correction=settings.training_correction)


TRAINING: Workload = TrainingWorkload()
