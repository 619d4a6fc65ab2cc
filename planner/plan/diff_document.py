"""The difference of two sides as a document: what `tonnage diff -f json` writes.

The types are the contract; the JSON Schema of `tonnage schema diff` is generated from them.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from planner.plan.amount import CostAmount, CostDelta  # noqa: TC001
from planner.plan.canonical import dump_document
from planner.plan.diff import PlanChange  # noqa: TC001
from planner.plan.part import DocumentPart, Number, Period, Properties
from planner.plan.prediction import MetricLimit, Prediction  # noqa: TC001
from planner.plan.threshold import ThresholdVerdict  # noqa: TC001
from planner.plan.types import Binding, CatalogRef  # noqa: TC001
from planner.spec.change import KeyChange  # noqa: TC001

DIFF_SCHEMA: Final = "tonnage.diff/2"
SpecState: TypeAlias = Literal[
    "added", "removed", "changed", "renamed", "unchanged"
]
SideStatus: TypeAlias = Literal["planned", "infeasible", "invalid"]
# What a change of cost is due to.
Origin: TypeAlias = Literal["spec", "price", "model"]


class SideRef(DocumentPart, frozen=True, kw_only=True):
    """One of the two sides that are compared."""

    name: Annotated[
        str, Meta(description="a revision, a file, or the files as they are")
    ]
    commit: Annotated[
        str | None, Meta(description="none for what is no revision of git")
    ] = None


class SideProblem(DocumentPart, frozen=True, kw_only=True):
    """What is wrong with a spec on one side."""

    code: Annotated[str, Meta(description="short name of the problem")]
    message: Annotated[str, Meta(description="what is wrong")]
    next_step: Annotated[str, Meta(description="what helps")]
    path: Annotated[str, Meta(description="file")]
    line: Annotated[int, Meta(description="from 1; 0 is the whole file")]
    column: Annotated[int, Meta(description="from 1; 0 is the whole line")]


class SpecSide(DocumentPart, frozen=True, kw_only=True):
    """A spec on one side: what it costs, or why that is not known."""

    status: Annotated[
        SideStatus,
        Meta(
            description="planned; infeasible: proved that nothing meets it; invalid: see problems"
        ),
    ]
    path: Annotated[str, Meta(description="file of the spec")]
    name: Annotated[str | None, Meta(description="name in the spec")]
    period: Annotated[
        Period | None, Meta(description="what the cost is for")
    ] = None
    cost: Annotated[
        CostAmount | None,
        Meta(description="total of the period; none without a plan"),
    ] = None
    usd_per_million_tokens: Annotated[
        Decimal | None,
        Meta(
            description="all cost over all tokens, blended; a lower bound where the cost is "
            "not complete"
        ),
    ] = None
    usd_per_million_output: Annotated[
        Decimal | None,
        Meta(
            description="all cost over output tokens; a lower bound where the cost is not complete"
        ),
    ] = None
    confidence: Annotated[
        Number | None,
        Meta(description="share of cases in which the limits are met"),
    ] = None
    verdict: Annotated[
        str | None,
        Meta(
            description="of the simulation, which met every limit: holds, or undecided where one "
            "is so near that other requests may not confirm it"
        ),
    ] = None
    problems: Annotated[
        tuple[SideProblem, ...], Meta(description="of an invalid spec")
    ] = ()


class MetricChange(DocumentPart, frozen=True, kw_only=True):
    """A predicted number on both sides, with its limit and what is left of it."""

    name: Annotated[str, Meta(description="ends in its unit")]
    before: Annotated[Prediction | None, Meta(description="none: not there")]
    after: Annotated[Prediction | None, Meta(description="none: not there")]
    limit_before: Annotated[
        MetricLimit | None, Meta(description="none: without a limit")
    ]
    limit_after: Annotated[
        MetricLimit | None, Meta(description="none: without a limit")
    ]


class OriginPart(DocumentPart, frozen=True, kw_only=True):
    """A part of a change of cost, and what it is due to."""

    origin: Annotated[
        Origin,
        Meta(
            description="spec: specs and what they name; price: the file of --prices, or the "
            "catalog; model: the file of --calibration, or the version of tonnage"
        ),
    ]
    period: Annotated[Period, Meta(description="what the cost is for")]
    delta: Annotated[CostDelta, Meta(description="cost increase of this part")]


class SpecDiff(DocumentPart, frozen=True, kw_only=True):
    """A spec on both sides, and all that differs."""

    path: Annotated[
        str, Meta(description="file; of a removed spec the old one")
    ]
    name: Annotated[str, Meta(description="name in the spec, or its file")]
    state: Annotated[SpecState, Meta(description="what happened to it")]
    before: Annotated[SpecSide | None, Meta(description="none: added")]
    after: Annotated[SpecSide | None, Meta(description="none: removed")]
    delta: Annotated[
        CostDelta | None,
        Meta(description="none between two periods, and without two costs"),
    ]
    keys: Annotated[
        tuple[KeyChange, ...],
        Meta(description="what the spec says differently"),
    ]
    files: Annotated[
        tuple[str, ...],
        Meta(description="files that differ: named by the spec, or by flags"),
    ]
    changes: Annotated[
        tuple[PlanChange, ...], Meta(description="pools and cost lines")
    ]
    metrics: Annotated[
        tuple[MetricChange, ...],
        Meta(description="predicted numbers that differ, or have a limit"),
    ]
    binding: Annotated[
        tuple[Binding, ...],
        Meta(description="what would make the new plan cheaper, or feasible"),
    ]
    differs: Annotated[
        tuple[Origin, ...],
        Meta(description="what the two plans do not have in common"),
    ]
    parts: Annotated[
        tuple[OriginPart, ...],
        Meta(
            description="the change by what it is due to; empty when it cannot be divided"
        ),
    ]

    @property
    def is_changed(self) -> bool:
        """Whether it was added or removed, or differs in what it says or costs."""
        if self.before is None or self.after is None:
            return True
        has_other_status = self.before.status != self.after.status
        return bool(self.keys or self.files or self.changes or has_other_status)


class PeriodTotal(DocumentPart, frozen=True, kw_only=True):
    """The specs whose cost is for the same: months, runs and lives are never added up."""

    period: Annotated[Period, Meta(description="what the costs are for")]
    before: Annotated[CostAmount, Meta(description="of all, on the old side")]
    after: Annotated[CostAmount, Meta(description="of all, on the new side")]
    delta: Annotated[CostDelta, Meta(description="cost increase of all")]
    parts: Annotated[
        tuple[OriginPart, ...],
        Meta(description="by what it is due to; empty when that is the specs"),
    ]


class CatalogEffect(DocumentPart, frozen=True, kw_only=True):
    """What the specs of the old side cost more by another catalog: nobody's change."""

    period: Annotated[Period, Meta(description="what the cost is for")]
    since: Annotated[CatalogRef, Meta(description="the catalog of the past")]
    origins: Annotated[
        tuple[Origin, ...],
        Meta(
            description="price, and model where a saved plan was made by another version or "
            "calibration"
        ),
    ]
    paths: Annotated[
        tuple[str, ...], Meta(description="specs that it is known of")
    ]
    delta: Annotated[
        CostDelta,
        Meta(description="cost increase; in no total and no threshold"),
    ]


class DiffDocument(DocumentPart, frozen=True, kw_only=True):
    """What two sides cost, and what of it differs."""

    schema: Annotated[
        Literal["tonnage.diff/2"], Meta(description="version of this document")
    ] = DIFF_SCHEMA
    tool_version: Annotated[str, Meta(description="that has made it")]
    before: Annotated[SideRef, Meta(description="the old side")]
    after: Annotated[SideRef, Meta(description="the new side")]
    catalog: Annotated[
        CatalogRef | None,
        Meta(description="the same on both sides; none: saved plans have two"),
    ]
    specs: Annotated[
        tuple[SpecDiff, ...], Meta(description="specs that were compared")
    ]
    unplanned: Annotated[
        tuple[str, ...],
        Meta(description="unchanged specs, in no total: see --all"),
    ]
    left_out: Annotated[
        tuple[str, ...],
        Meta(description="compared specs in no total: a side has no cost"),
    ]
    totals: Annotated[
        tuple[PeriodTotal, ...], Meta(description="of the specs, by period")
    ]
    catalog_effects: Annotated[
        tuple[CatalogEffect, ...],
        Meta(description="what another catalog alone did to the old side"),
    ]
    thresholds: Annotated[
        tuple[ThresholdVerdict, ...], Meta(description="those of --fail-if")
    ]

    @property
    def is_changed(self) -> bool:
        """Whether a spec was added or removed, or differs in what it says or costs."""
        return any(spec.is_changed for spec in self.specs)


def dump_diff(document: DiffDocument) -> str:
    """Return the document of a difference as canonical JSON."""
    plain: Properties = msgspec.to_builtins(document)
    return dump_document(plain)


def diff_schema() -> Properties:
    """Return the JSON Schema (draft 2020-12) of the document of a difference."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": DIFF_SCHEMA,
        **msgspec.json.schema(DiffDocument),
    }
