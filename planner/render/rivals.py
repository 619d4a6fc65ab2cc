"""Fleets that were not chosen, on the pages of a plan and of its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from planner import figures
from planner.numeric import EVEN_ODDS
from planner.plan.types import Binding, FleetRef
from planner.render import period
from planner.render.against import other_total, saved_against
from planner.render.page import LINE_WIDTH, Block, PageTable, Paragraph
from planner.sentence import describe
from planner.solve.cause import DEARER

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.types import Alternative, Plan, Safety
    from planner.solve.solution import FleetSummary

# What stops a fleet that meets the spec and only costs more.
PRICE_TEXT: Final = describe(DEARER)
EVEN_ODDS_TEXT: Final = figures.percentage(EVEN_ODDS)


class ShownRivals(NamedTuple):
    """How many fleets that were not chosen are shown; none: all of them."""

    cheaper: int | None
    dearer: int | None


EVERY_RIVAL: Final = ShownRivals(None, None)
# Those of the default page: as many as fit, the first that does.
SHORTER_AND_SHORTER: Final = (
    ShownRivals(5, 3),
    ShownRivals(5, 2),
    ShownRivals(4, 2),
    ShownRivals(3, 2),
    ShownRivals(3, 0),
    ShownRivals(2, 0),
    ShownRivals(1, 0),
)


class Rival(Struct, frozen=True):
    """A fleet with its cost, and what it takes or what stops it.

    `is_partial`  whether it costs that much or more
    `is_offered`  whether a change of the spec is known that buys it
    """

    location: str
    machines: str
    usd: Decimal
    takes: str
    is_partial: bool
    is_offered: bool

    @property
    def total_text(self) -> str:
        """What it costs, as far as that is known."""
        return other_total(self.usd, is_partial=self.is_partial)


def rival_blocks(plan: Plan, shown: ShownRivals) -> list[Block]:
    """Return what would be cheaper and what it takes, and the fleets that are dearer."""
    rivals = rivals_of(plan)
    cheaper = [rival for rival in rivals if rival.usd < plan.cost.total]
    dearer = [rival for rival in rivals if rival.usd >= plan.cost.total]
    page_blocks: list[Block] = []
    if cheaper:
        page_blocks.append(_cheaper_table(plan, cheaper, shown.cheaper))
    # A training job has no wishes that are relaxed.
    elif not plan.solution.binding and not plan.solution.run:
        page_blocks.append(
            Paragraph(
                "  no wish of the spec costs money: nothing binds but the price",
                "dim",
            )
        )
    # Those that meet the spec come first.
    dearer.sort(key=lambda rival: rival.takes != PRICE_TEXT)
    shown_dearer = dearer[: shown.dearer]
    if shown_dearer:
        dearer_texts = [_dearer_text(rival) for rival in shown_dearer]
        # Only what could be cheaper is simulated.
        dearer_title = (
            "dearer, by formula" if plan.solution.verified else "dearer"
        )
        page_blocks.append(
            Paragraph(
                f"  {dearer_title}: {', '.join(dearer_texts)}",
                "dim",
                LINE_WIDTH,
            )
        )
    return page_blocks


def rivals_of(plan: Plan) -> list[Rival]:
    """Return all fleets that were not chosen, the cheapest first, each of them once."""
    rivals = _relaxed_fleets(plan)
    offered_fleets = {
        limit.fleet for limit in plan.solution.binding if limit.fleet
    }
    # A change of the spec says more than what stops the same machines.
    rivals += [
        _stopped_fleet(alternative)
        for alternative in plan.alternatives
        if _fleet_of(alternative) not in offered_fleets
    ]
    return sorted(
        rivals, key=lambda rival: (rival.usd, rival.location, rival.machines)
    )


def _fleet_of(alternative: Alternative) -> FleetRef:
    pool = alternative.pools[0]
    return FleetRef(
        provider=pool.provider,
        region=pool.region,
        instance_type=pool.instance_type,
        nodes=pool.nodes,
    )


def _stopped_fleet(alternative: Alternative) -> Rival:
    pool = alternative.pools[0]
    machines_text = f"{pool.nodes} x {pool.instance_type}"
    if pool.purchase != "on_demand":
        machines_text += f" {pool.purchase.replace('_', ' ')}"
    return Rival(
        f"{pool.provider} {pool.region}",
        machines_text,
        alternative.usd_month,
        alternative.rejected_by,
        is_partial=alternative.is_partial,
        is_offered=False,
    )


def _relaxed_fleets(plan: Plan) -> list[Rival]:
    """Return the fleets that a change of the spec buys, with all changes that buy each."""
    changes = [
        (
            f"{limit.constraint}: {limit.relax_to}",
            limit.fleet,
            limit.usd_month,
            bool(limit.unpriced),
        )
        for limit in plan.solution.binding
    ]
    safety = plan.solution.safety
    if safety is not None and safety.fleet is not None and safety.usd_month:
        # What confidence costs is the difference to even odds.
        even_odds_usd = plan.cost.total - safety.usd_month
        changes.append(
            (
                f"confidence: {EVEN_ODDS_TEXT}",
                safety.fleet,
                even_odds_usd,
                bool(safety.unpriced),
            )
        )
    changes_of_fleet: dict[tuple[FleetRef, Decimal, bool], list[str]] = {}
    for change, fleet, usd, is_partial in changes:
        if fleet is not None and usd is not None:
            changes_of_fleet.setdefault((fleet, usd, is_partial), []).append(
                change
            )
    return [
        Rival(
            f"{fleet.provider} {fleet.region}".strip(),
            _machines_text(fleet),
            usd,
            ", or ".join(fleet_changes),
            is_partial=is_partial,
            is_offered=True,
        )
        for (
            fleet,
            usd,
            is_partial,
        ), fleet_changes in changes_of_fleet.items()
    ]


def _machines_text(fleet: FleetRef) -> str:
    if not fleet.nodes:
        return fleet.instance_type
    return f"{fleet.nodes} x {fleet.instance_type}"


def _cheaper_table(
    plan: Plan, cheaper: list[Rival], most_rows: int | None
) -> PageTable:
    """Return the table of cheaper fleets; those that a change buys are never left out."""
    by_worth = sorted(cheaper, key=lambda rival: not rival.is_offered)
    shown = by_worth[:most_rows]
    hidden_count = len(by_worth) - len(shown)
    more = f"{hidden_count} more: --full" if hidden_count else ""
    return PageTable(
        (
            "what would be cheaper",
            more,
            period.TITLES[plan.cost.period],
            "what it takes, or what stops it",
        ),
        tuple(
            (
                rival.location,
                rival.machines,
                rival.total_text,
                rival.takes,
            )
            for rival in cheaper
            if rival in shown
        ),
        width=LINE_WIDTH,
    )


def _dearer_text(rival: Rival) -> str:
    fleet = f"{rival.location} {rival.machines} {rival.total_text}"
    return fleet if rival.takes == PRICE_TEXT else f"{fleet} ({rival.takes})"


def alternative_blocks(plan: Plan) -> list[Block]:
    """Return the fleets that were not chosen, with cost and reason."""
    table_rows = []
    for alternative in plan.alternatives:
        for pool_entry in alternative.pools:
            location = f"{pool_entry.provider} {pool_entry.region}"
            machine_text = f"{pool_entry.nodes} x {pool_entry.instance_type}"
            cost_text = other_total(
                alternative.usd_month, is_partial=alternative.is_partial
            )
            table_rows.append(
                (
                    location,
                    machine_text,
                    pool_entry.purchase,
                    cost_text,
                    alternative.rejected_by,
                )
            )
    if not table_rows:
        return []
    cost_title = period.TITLES[plan.cost.period]
    column_titles = ("not chosen", "", "", cost_title, "what stops it")
    return [PageTable(column_titles, tuple(table_rows))]


def saving_text(plan: Plan, relaxed: Binding | Safety) -> str:
    """Return what a wish costs: the difference from the bill of the fleet without it."""
    usd = (
        relaxed.saves_usd_month
        if isinstance(relaxed, Binding)
        else relaxed.usd_month
    )
    if usd is None:
        return figures.dollars(None)
    return saved_against(plan, usd, is_partial=bool(relaxed.unpriced))


def binding_blocks(plan: Plan) -> list[Block]:
    """Return the limits that raise the cost, with the saving when each is relaxed."""
    table_rows = []
    for relaxation in plan.solution.binding:
        slack_text = (
            ""
            if relaxation.slack is None
            else figures.percentage(relaxation.slack)
        )
        savings_text = saving_text(plan, relaxation)
        table_rows.append(
            (
                relaxation.constraint,
                slack_text,
                relaxation.relax_to,
                savings_text,
                fleet_text(relaxation.fleet),
            )
        )
    safety_cost = plan.solution.safety
    # The row for confidence is the cost against even odds.
    if safety_cost and safety_cost.fleet and safety_cost.usd_month:
        constraint_text = (
            f"confidence {figures.percentage(safety_cost.confidence)}"
        )
        table_rows.append(
            (
                constraint_text,
                "",
                "50 %",
                saving_text(plan, safety_cost),
                fleet_text(safety_cost.fleet),
            )
        )
    if not table_rows:
        return [
            Paragraph(
                "no wish of the spec costs money: nothing binds but the price",
                "dim",
            )
        ]
    savings_title = period.TITLES[plan.cost.period].replace(">", ">saves ")
    column_titles = ("binding", ">slack", "relaxed to", savings_title, "with")
    return [PageTable(column_titles, tuple(table_rows))]


def fleet_text(fleet: FleetRef | FleetSummary | None) -> str:
    """Return cloud, region, machine type and count of a fleet, as far as known."""
    if fleet is None:
        return ""
    words = (fleet.provider, fleet.region, fleet.instance_type)
    name = " ".join(word for word in words if word)
    return f"{name} x {fleet.nodes}" if fleet.nodes else name
