"""The protocol of a kind of workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Counterfactual, FleetSummary, Solution
    from planner.spec.field import Block


class Workload(Protocol):
    """A kind of workload: what its specs say, and how they are answered. All methods are pure.

    kind             the word of the spec, such as Inference
    name             the word of the plan document, such as inference
    period           what its bills are for when the spec sets no end
    resumes          whether it goes on after an interruption, so that spot is safe by default
    scaled_quantity  what `explain --traffic` multiplies, in a word
    """

    kind: str
    name: str
    period: Period
    resumes: bool
    scaled_quantity: str

    @property
    def spec_block(self) -> Block:
        """The fields of its specs."""

    def check(self, spec: Any, read_file: Callable[[str], bytes]) -> None:
        """Raise what `solve` raises for a spec whatever is on offer.

        That is an unknown model, a file that cannot be read, a context that is too long.
        """

    def solve(
        self, spec: Any, settings: SolveSettings, offer_filter: OfferFilter
    ) -> Solution:
        """Return the cheapest fleet that meets a spec, or the nearest that would do.

        `offer_filter` has the offers that the rules of the spec allow.
        """

    def explain_type(
        self,
        spec: Any,
        settings: SolveSettings,
        machine_type: FleetSummary,
        offers: list[Offer],
    ) -> Counterfactual:
        """Say what a machine type that the rules allow would do, and why it is not chosen.

        `offers` are its cheapest of each purchase option, at least one.
        """

    def scale(
        self,
        spec: Any,
        settings: SolveSettings,
        offer_filter: OfferFilter,
        factor: float,
    ) -> Counterfactual:
        """Return the fleet for `factor` times the load of a spec."""

    def request_phrases(self, normalized: dict[str, Any]) -> list[str]:
        """Say what a normalized spec asks for, in a few words each, for the head of a page."""
