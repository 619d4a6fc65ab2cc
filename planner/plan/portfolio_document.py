"""Workloads that buy together as a document: what `tonnage plan --share -f json` writes.

The types are the contract; the JSON Schema of `tonnage schema portfolio` is generated from them.
The text page and the report are made of this document alone, so their figures are its own.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from planner.plan.amount import CostAmount  # noqa: TC001
from planner.plan.canonical import dump_document
from planner.plan.cost import OwnedCost, TokenCost  # noqa: TC001
from planner.plan.part import DocumentPart, Number, Period, Properties
from planner.plan.pool import Purchase  # noqa: TC001
from planner.plan.types import CatalogRef  # noqa: TC001

PORTFOLIO_SCHEMA: Final = "tonnage.portfolio/1"
PlanStatus: TypeAlias = Literal["optimal", "feasible", "infeasible"]
# Why a workload shares nothing.
LeftOut: TypeAlias = Literal["no_fleet", "no_service", "ends"]


class PortfolioPool(DocumentPart, frozen=True, kw_only=True):
    """Machines of one type of a workload, as it would buy them alone."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type of the cloud")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    nodes: Annotated[int, Meta(description="at the peak, over all purchases")]
    purchases: Annotated[
        tuple[Purchase, ...],
        Meta(description="how it buys them alone; `places` say how together"),
    ]


class PortfolioMove(DocumentPart, frozen=True, kw_only=True):
    """Where a workload has its machines for the others, and what they would be alone."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    alone: Annotated[
        tuple[PortfolioPool, ...],
        Meta(description="its machines where it is planned alone"),
    ]
    dearer_usd: Annotated[
        Decimal,
        Meta(description="how much more it would cost here alone, USD a month"),
    ]
    where: Annotated[
        str, Meta(description="what its spec has to say, so that apply buys it")
    ]


class PortfolioWorkload(DocumentPart, frozen=True, kw_only=True):
    """A spec that was planned with the others: what it pays alone, and its part of the sum."""

    path: Annotated[str, Meta(description="file of the spec")]
    name: Annotated[str, Meta(description="name in the spec")]
    kind: Annotated[
        str, Meta(description="inference, batch, training or workspace")
    ]
    status: Annotated[
        PlanStatus,
        Meta(
            description="of its plan. optimal: proved; feasible: the simulation could not decide "
            "whether it keeps its limits, or not all fleets were looked at; infeasible: proved "
            "that nothing does"
        ),
    ]
    fleet: Annotated[
        tuple[PortfolioPool, ...],
        Meta(description="its machines; empty when infeasible"),
    ]
    move: Annotated[
        PortfolioMove | UnsetType,
        Meta(
            description="why these are other machines than it would have alone; left out where "
            "they are not"
        ),
    ] = UNSET
    period: Annotated[Period, Meta(description="what its cost is for")]
    alone: Annotated[
        CostAmount | None,
        Meta(
            description="its bill alone, with the machines that it would have then; none when "
            "infeasible"
        ),
    ]
    together: Annotated[
        CostAmount | None,
        Meta(
            description="its part of what all pay together, a month; none where it is left out"
        ),
    ]
    saved_usd: Annotated[
        Decimal | None,
        Meta(
            description="alone less together; negative where alone it counts on all that several "
            "own. Exact: what has no price is in both"
        ),
    ]
    unpriced: Annotated[
        tuple[str, ...],
        Meta(
            description="lines of its bill without a known price, alone and together"
        ),
    ]
    tokens: Annotated[
        TokenCost | None,
        Meta(
            description="what its tokens and requests cost together; none where it is left out"
        ),
    ]
    left_out: Annotated[
        LeftOut | None,
        Meta(
            description="why it shares nothing and is in no total. no_fleet: nothing meets it; "
            "no_service: not of kind inference; ends: not billed by the month"
        ),
    ]

    @property
    def machines_text(self) -> str:
        """Its machines in words, as 4 x g6e.xlarge us-east-1."""
        types = " + ".join(
            f"{pool.nodes} x {pool.instance_type}" for pool in self.fleet
        )
        return f"{types} {self.fleet[0].region}" if self.fleet else ""


class PortfolioTotal(DocumentPart, frozen=True, kw_only=True):
    """What the workloads that share pay, USD a month: the sums of theirs, to the cent."""

    alone: Annotated[CostAmount, Meta(description="each by itself")]
    together: Annotated[CostAmount, Meta(description="all of them together")]
    saved_usd: Annotated[
        Decimal, Meta(description="alone less together; may be negative")
    ]


class PortfolioShare(DocumentPart, frozen=True, kw_only=True):
    """What a workload saves at a place."""

    workload: Annotated[str, Meta(description="its name")]
    saved_usd: Annotated[
        Decimal,
        Meta(
            description="in its bill, with a support plan and tax, USD a month; less what other "
            "machines would have cost less alone"
        ),
    ]


class PortfolioPlace(DocumentPart, frozen=True, kw_only=True):
    """Machines of one type in one region that several workloads buy together.

    Amounts are of machines alone, before a support plan and tax.
    """

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type of the cloud")]
    shares: Annotated[
        tuple[PortfolioShare, ...],
        Meta(
            description="the workloads that share them: over all places, the saving of each to "
            "the cent"
        ),
    ]
    peak_nodes: Annotated[
        int, Meta(description="machines that run at once, at most")
    ]
    owned_nodes: Annotated[
        int,
        Meta(description="of them those that are paid for already, at most"),
    ]
    committed_nodes: Annotated[
        int, Meta(description="of them the base that is committed to")
    ]
    on_demand_nodes: Annotated[
        int, Meta(description="those above the base, at most")
    ]
    purchase: Annotated[
        str | None,
        Meta(description="the commitment, as reserved_1y; none without one"),
    ]
    alone_usd: Annotated[
        Decimal, Meta(description="bought by each alone, a month")
    ]
    together_usd: Annotated[
        Decimal, Meta(description="bought together, a month")
    ]
    saved_usd: Annotated[
        Decimal,
        Meta(
            description="alone less together; divided by what each pays alone"
        ),
    ]


class PortfolioQuota(DocumentPart, frozen=True, kw_only=True):
    """A quota that keeps workloads from their cheapest fleets."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    purchase: Annotated[str, Meta(description="on_demand or spot")]
    quota: Annotated[str, Meta(description="its id at the cloud")]
    needed: Annotated[
        Number,
        Meta(
            description="units that the cheapest fleets need at once, at most"
        ),
    ]
    left: Annotated[Number, Meta(description="units that are left of it")]
    next_step: Annotated[str, Meta(description="how it is raised")]


class QuotaChoice(DocumentPart, frozen=True, kw_only=True):
    """How the fleets were chosen within the quotas of the account, at their bills alone."""

    usd: Annotated[
        Decimal, Meta(description="what the fleets cost, USD a month")
    ]
    usd_unbound: Annotated[
        Decimal,
        Meta(description="what the cheapest fleet of each would cost, a month"),
    ]
    bound_usd: Annotated[
        Decimal, Meta(description="no fleets that fit cost less than this")
    ]
    short: Annotated[
        tuple[PortfolioQuota, ...],
        Meta(
            description="what the cheapest fleets exceed together; empty: all fit"
        ),
    ]


class PortfolioFleet(DocumentPart, frozen=True, kw_only=True):
    """Services that would cost less with an engine of each on the accelerators of one fleet."""

    workloads: Annotated[
        tuple[str, ...],
        Meta(description="the first names the others in serving.beside"),
    ]
    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type")]
    nodes: Annotated[int, Meta(description="at the peak")]
    apart_usd: Annotated[
        Decimal, Meta(description="what they cost alone, USD a month")
    ]
    usd: Annotated[Decimal, Meta(description="of the one fleet, USD a month")]
    saved_usd: Annotated[Decimal, Meta(description="what that saves")]


class PortfolioDocument(DocumentPart, frozen=True, kw_only=True):
    """What several workloads cost alone and together, and what they share."""

    schema: Annotated[
        Literal["tonnage.portfolio/1"],
        Meta(description="version of this document"),
    ] = PORTFOLIO_SCHEMA
    tool_version: Annotated[str, Meta(description="that has made it")]
    catalog: Annotated[CatalogRef, Meta(description="what it was priced with")]
    status: Annotated[
        PlanStatus,
        Meta(
            description="optimal: each fleet is proved the cheapest of its workload that the "
            "quotas allow together, or at the place of its `move`, and each base the cheapest for "
            "the joint hours of these fleets; feasible: one of them is not proved; infeasible: a "
            "workload has no fleet"
        ),
    ]
    gap_usd: Annotated[
        Decimal | None,
        Meta(
            description="by how much other fleets may cost less alone, USD a month; 0: proved "
            "that none do; none: not known"
        ),
    ]
    total: Annotated[
        PortfolioTotal, Meta(description="of those that are not left out")
    ]
    workloads: Annotated[
        tuple[PortfolioWorkload, ...],
        Meta(description="one of each spec, in the order of the specs"),
    ]
    places: Annotated[
        tuple[PortfolioPlace, ...],
        Meta(description="what is bought together, also where it saves 0"),
    ]
    owned: Annotated[
        tuple[OwnedCost, ...],
        Meta(
            description="what is paid for already, and how much of it all of them use"
        ),
    ]
    quotas: Annotated[
        QuotaChoice | None,
        Meta(description="none where no account was asked"),
    ]
    one_fleets: Annotated[
        tuple[PortfolioFleet, ...] | UnsetType,
        Meta(
            description="services that would cost less on the same accelerators; left out where "
            "none would. No total counts on it: their specs have to say so"
        ),
    ] = UNSET
    compared: Annotated[
        int,
        Meta(
            description="fleets that were planned on machines that another workload has or could "
            "have, to see whether all cost less then"
        ),
    ] = 0
    are_all_compared: Annotated[
        bool,
        Meta(
            description="false where these would be too many, or where an account was asked for "
            "its quotas: other fleets may cost less together"
        ),
    ] = True
    moves_save_usd: Annotated[
        Decimal,
        Meta(
            description="what all of them save where some have other machines than alone, USD a "
            "month; each of these has its `move`"
        ),
    ] = Decimal(0)

    @property
    def shared(self) -> tuple[PortfolioWorkload, ...]:
        """The workloads that are not left out."""
        return tuple(
            workload for workload in self.workloads if not workload.left_out
        )


def dump_portfolio(document: PortfolioDocument) -> str:
    """Return the document of a portfolio as canonical JSON."""
    plain: Properties = msgspec.to_builtins(document)
    return dump_document(plain)


def portfolio_schema() -> Properties:
    """Return the JSON Schema (draft 2020-12) of the document of a portfolio."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": PORTFOLIO_SCHEMA,
        **msgspec.json.schema(PortfolioDocument),
    }
