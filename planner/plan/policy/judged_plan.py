"""A plan with what policies are told beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.diff_document import SpecDiff
    from planner.plan.types import Plan


class JudgedPlan(Struct, frozen=True, kw_only=True):
    """A plan that policies are held against.

    spec_path   the file of its spec, or where it was
    spec_bytes  what stands in it, where it is there
    diff        the difference to another plan
    """

    plan: Plan
    spec_path: str
    spec_bytes: bytes | None = None
    diff: SpecDiff | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its spec."""
        labels: Mapping[str, str] = self.plan.spec.normalized.get("labels", {})
        return labels

    @property
    def variants(self) -> Iterator[Plan]:
        """The plan, and all that apply may buy instead of it."""
        for rung in range(len(self.plan.fallbacks) + 1):
            yield self.plan.on_rung(rung)
