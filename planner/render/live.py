"""What was asked of clouds for a plan, and what an account lacks for a cheaper one."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.market.commitment import SPOT, used_amount
from planner.market.own_reclaims import own_band
from planner.render import period
from planner.render.page import LINE_WIDTH, Block, Paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.live import CommitmentFact, LiveFacts, SpotChance
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
        *_commitment_blocks(plan.inputs.live.facts),
        *_reclaim_blocks(plan),
        *_offered_blocks(plan.inputs.live.facts),
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
            f"asked for quota, zones, prices and reservations, from {clock_text(earliest)} on: "
            f"{regions}",
            width=LINE_WIDTH,
        )
    for cloud, regions_answer in facts.commitment_regions.items():
        if regions_answer.state != "value":
            why = (cloud, f"{regions_answer.state}: {regions_answer.reason}")
            unanswered.setdefault(why, []).append("regions with commitments")
    for (cloud, reason), names in unanswered.items():
        yield Paragraph(
            f"! {cloud} did not answer for {', '.join(names)}: {reason}",
            "warn",
            LINE_WIDTH,
        )


def clock_text(as_of: str) -> str:
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


def _commitment_blocks(facts: LiveFacts) -> Iterator[Block]:
    """Yield what the account has committed to in the regions that were asked, and its use."""
    for place in facts.places:
        answer = place.commitments
        for found in (answer.value if answer else None) or ():
            yield commitment_line(
                f"{place.cloud} {place.region}",
                found,
                used_amount(place.commitment_use, found),
            )


def commitment_line(
    where: str, found: CommitmentFact, used: Decimal | None
) -> Paragraph:
    """Say what a commitment in a region pays for, and how much of it is used."""
    return Paragraph(
        f"{where}: {found.name} {found.id} pays for {_amount_text(found)}"
        f"{_until_text(found)}, {_use_text(found, used)}",
        width=LINE_WIDTH,
    )


def _amount_text(found: CommitmentFact) -> str:
    """Say what a commitment pays for in every hour."""
    if found.unit == "usd_hour":
        return f"{figures.dollars(found.amount, cents=True)} an hour"
    if found.unit == "accelerators":
        return f"{found.amount:f} accelerators"
    [machine_type] = found.takes
    return f"{found.amount:f} x {machine_type}"


def _until_text(found: CommitmentFact) -> str:
    return f" until {found.ends[:10]}" if found.ends else ""


def _use_text(found: CommitmentFact, used: Decimal | None) -> str:
    """Say how much of a commitment is used, and what follows where a plan cannot count on it."""
    if used is None:
        return "and nobody says how much of it is used: buy.owned counts on it"
    free = max(Decimal(0), found.amount - used)
    amount = (
        figures.dollars(free, cents=True)
        if found.unit == "usd_hour"
        else f"{free:f}"
    )
    if found.zone:
        return (
            f"of which {amount} are not used, in zone {found.zone} alone: "
            "buy.owned counts on it"
        )
    return f"of which {amount} are not used"


def _reclaim_blocks(plan: Plan) -> Iterator[Block]:
    """Yield how often the account's own machines of the types of the plan were taken back."""
    live = plan.inputs.live
    for pool in plan.solution.pools:
        place = live.facts.place(pool.provider, pool.region) if live else None
        answer = place.reclaims if place else None
        fact = (answer.value if answer else None) or {}
        found = fact.get(pool.instance_type)
        is_on_spot = any(part.purchase == SPOT for part in pool.purchases)
        if answer is None or found is None or not is_on_spot:
            continue
        band = own_band(found, answer.as_of)
        counted = (
            f"{pool.instance_type} in {pool.region}: {found.reclaims:g} of your own machines on "
            f"spot were taken back in {found.machine_hours:,.0f} hours: "
        )
        yield Paragraph(
            f"{counted}that is too few to count on"
            if band is None
            else f"{counted}{band.low_share:.0%} to {band.high_share:.0%} in a month, in place of "
            "what its cloud publishes",
            width=LINE_WIDTH,
        )


def _offered_blocks(facts: LiveFacts) -> Iterator[Block]:
    """Yield the cheapest capacity block for a run, and how a spec names it."""
    for offered in facts.offered_blocks:
        wanted = (
            f"{offered.machines} x {offered.machine_type} for {offered.hours} h in "
            f"{offered.region}"
        )
        answer = offered.blocks
        if answer.value is None:
            yield Paragraph(
                f"! {wanted}: {offered.cloud} does not say which capacity blocks there are: "
                f"{answer.state}: {answer.reason}",
                "warn",
                LINE_WIDTH,
            )
            continue
        if not answer.value:
            yield Paragraph(
                f"{wanted}: {offered.cloud} offers no capacity block now",
                width=LINE_WIDTH,
            )
            continue
        best = answer.value[0]
        usd_hour = best.usd / (best.machines * offered.hours)
        yield Paragraph(
            f"{wanted}: the cheapest of {len(answer.value)} capacity blocks costs "
            f"{figures.dollars(best.usd)}, {figures.dollars(usd_hour, cents=True)} an hour of a "
            f"machine, from {clock_text(best.starts)} to {clock_text(best.ends)}; to take it: "
            f"buy: {{block: {{id: {best.id}, zone: {best.zone}, machines: {best.machines}, "
            f"type: {best.machine_type}, starts: '{best.starts}', ends: '{best.ends}', "
            f"usd: {best.usd:f}}}}}",
            width=LINE_WIDTH,
        )
