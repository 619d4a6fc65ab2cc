"""What was asked of clouds for a plan, and what an account lacks for a cheaper one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render import period
from planner.render.page import LINE_WIDTH, Block, Paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.live import LiveFacts, SpotChance
    from planner.plan.quota_shortfall import QuotaShortfall
    from planner.plan.types import Plan

UNIT_NAMES: Final = {"vcpus": "vCPU", "accelerators": "accelerator"}


def live_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return which regions were asked, what nobody answered, and the quotas that fall short."""
    if plan.inputs.live is None:
        return []
    return [
        Paragraph(""),
        *_asked_blocks(plan.inputs.live.facts, full=full),
        *(
            block
            for shortfall in plan.quota_shortfalls
            for block in _shortfall_blocks(shortfall, plan)
        ),
        *_chance_blocks(plan.inputs.live.facts),
        *_reserved_blocks(plan),
    ]


def _asked_blocks(facts: LiveFacts, *, full: bool) -> Iterator[Block]:
    """Yield the regions that answered, and of each cloud what it did not answer."""
    by_cloud: dict[str, list[str]] = {}
    unanswered: dict[tuple[str, str], list[str]] = {}
    for place in facts.places:
        answers = place.answers
        if any(answer.state == "value" for answer in answers.values()):
            by_cloud.setdefault(place.cloud, []).append(place.region)
        for name, answer in answers.items():
            if answer.state != "value":
                why = (place.cloud, f"{answer.state}: {answer.reason}")
                asked = f"{name} in {place.region}" if full else name
                if asked not in unanswered.setdefault(why, []):
                    unanswered[why].append(asked)
    if by_cloud:
        regions = "; ".join(
            f"{cloud} {', '.join(names)}" for cloud, names in by_cloud.items()
        )
        earliest = min(
            answer.as_of
            for place in facts.places
            for answer in place.answers.values()
        )
        yield Paragraph(
            f"asked for quota, zones, prices and reservations, from {_clock(earliest)} on: "
            f"{regions}",
            width=LINE_WIDTH,
        )
    for (cloud, reason), names in unanswered.items():
        yield Paragraph(
            f"! {cloud} did not answer for {', '.join(names)}: {reason}",
            "warn",
            LINE_WIDTH,
        )


def _clock(as_of: str) -> str:
    """Return a time in UTC as people write it: 2026-11-27 06:00 UTC."""
    return f"{as_of[:10]} {as_of[11:16]} UTC"


def _shortfall_blocks(shortfall: QuotaShortfall, plan: Plan) -> Iterator[Block]:
    """Yield what the cheapest fleet needs of a quota, what there is, and how more is asked for."""
    unit = UNIT_NAMES[shortfall.unit]
    amount = (
        f"{shortfall.needed:g} {unit}{'s' if shortfall.needed != 1 else ''}"
    )
    cost = f"{figures.dollars(shortfall.usd)}{period.RATES[plan.cost.period]}"
    used = (
        ""
        if shortfall.used is None
        else f", of which {shortfall.used:g} are used"
    )
    requested = (
        ""
        if shortfall.requested is None
        else f", and {shortfall.requested:g} are asked for"
    )
    yield Paragraph(
        f"! {shortfall.nodes} x {shortfall.instance_type} would cost {cost}, and needs "
        f"{amount} of {shortfall.quota}: the account has {shortfall.limit:g}{used}{requested}",
        "warn",
        LINE_WIDTH,
    )
    yield Paragraph(f"  to raise it: {shortfall.remedy}")


def _chance_blocks(facts: LiveFacts) -> Iterator[Block]:
    """Yield how likely the machines on spot are to be had now, in each zone that is scored."""
    by_machines: dict[str, list[SpotChance]] = {}
    for found in facts.spot_chances:
        machines = (
            f"{found.machines} x {found.machine_type} on spot in {found.region}"
        )
        by_machines.setdefault(machines, []).append(found)
    for machines, chances in by_machines.items():
        cloud, first = chances[0].cloud, chances[0].chance
        scores = ", ".join(
            f"{found.chance.value:.2f} of 1"
            + (f" in {found.zone}" if found.zone else "")
            for found in chances
            if found.chance.value is not None
        )
        yield Paragraph(
            f"{machines}: {cloud} scores them {scores} to be had now"
            if scores
            else f"! {machines}: {cloud} does not say how likely they are to be had: "
            f"{first.state}: {first.reason}",
            width=LINE_WIDTH,
        )


def _reserved_blocks(plan: Plan) -> Iterator[Block]:
    """Yield what the account has reserved of the machine types of the plan, and does not use."""
    live = plan.inputs.live
    for pool in plan.solution.pools:
        place = live.facts.place(pool.provider, pool.region) if live else None
        for found in (place.reservations.value if place else None) or ():
            if found.machine_type == pool.instance_type and found.free:
                yield Paragraph(
                    f"! {found.free} of {found.machines} x {found.machine_type} in {found.zone} "
                    f"are reserved and not used: buy.reservations takes {found.id}",
                    "warn",
                    LINE_WIDTH,
                )
