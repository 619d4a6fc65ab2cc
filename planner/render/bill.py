"""The bill on the page of a plan: machines, other lines, life and energy."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.cost.bill_line import MACHINE_KIND
from planner.market.owned import OWNED_FILE_SOURCE
from planner.market.price_age import age_days, is_to_the_day
from planner.market.regret import END_SCENARIO
from planner.market.term import TERM_OF
from planner.render import period
from planner.render.page import (
    LINE_WIDTH,
    Block,
    PageTable,
    Paragraph,
    total_row_tones,
)
from planner.render.regret import (
    form_name,
    form_sentences,
    is_paid_latest,
    regret_text,
    term_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import (
        CommitmentOption,
        CommitmentRegret,
        CostLine,
        Plan,
    )

# Lines below this share of the total are in one row of the default page.
SMALL_SHARE_PERCENT: Final = 1
# Below so many kilowatts power is told in watts.
LEAST_KW: Final = 0.05
# Each of them has its name there; of more than five, the four dearest do.
NAMED_LINES: Final = 4
MOST_NAMED_LINES: Final = 5
# Before a total that has lines without a price.
LOWER_BOUND: Final = ">= "
CAUSE_PHRASES: Final = {
    "work": "speed, failures and reclaims",
    "prices": "the age of prices",
    "months": "the days of a month",
    "traffic": "the traffic of a month",
    "reclaims": "how often machines on spot are taken back",
}
RELEASE_PHRASES: Final = {
    "done": "the job ends it when it is done",
    "idle": "the idle limit ends it",
    "window": "the end of the day's window ends it",
    "ttl": "the ttl ends it",
}


def total_text(plan: Plan) -> str:
    """Return the total of a plan as text; >= where a price is not known."""
    return f"{bound_mark(plan)}{figures.dollars(plan.cost.total)}"


def bound_mark(plan: Plan) -> str:
    """Return what stands before the total, and before all that is derived from it."""
    # With an unknown price the total is a lower bound.
    return LOWER_BOUND if plan.cost.is_partial else ""


def band_text(plan: Plan) -> str:
    """Return the band of the total as text; empty where it has none."""
    band = plan.cost.band
    if band is None:
        return ""
    mark = bound_mark(plan)
    low, high = map(figures.rough_dollars, (band.low, band.high))
    return f"{mark}{low} to {mark}{high}"


def cost_blocks(plan: Plan, *, today: str, full: bool) -> list[Block]:
    """Return the bill; small lines share a row unless the page is full."""
    single_lines = [
        line for line in plan.cost.lines if full or not _is_small(line, plan)
    ]
    small_lines = [line for line in plan.cost.lines if line not in single_lines]
    if len(small_lines) == 1:
        single_lines, small_lines = list(plan.cost.lines), []
    table_rows = [_line_row(line, today) for line in single_lines]
    if small_lines:
        table_rows.append(_group_row(small_lines, today))
    table_rows.append(total_row(plan))
    column_titles = (
        f"the bill of {period.NAMES[plan.cost.period]}",
        ">quantity",
        ">unit price",
        ">USD",
        ">age of price",
    )
    return [
        PageTable(
            column_titles,
            tuple(table_rows),
            total_row_tones(len(table_rows)),
            LINE_WIDTH,
        ),
        *cost_notes(plan, full=full),
    ]


def cost_notes(plan: Plan, *, full: bool) -> list[Block]:
    """Return what is said below a bill: what it leaves out, its band, commitments, use."""
    return [
        Paragraph(
            f"  not in it: {', '.join(plan.cost.excludes)}", "dim", LINE_WIDTH
        ),
        *_band_blocks(plan, full=full),
        *_credit_blocks(plan),
        *_start_blocks(plan),
        *_commitment_blocks(plan, full=full),
        *_hosted_blocks(plan),
        *_owned_blocks(plan),
        *_elsewhere_blocks(plan),
        *_life_blocks(plan),
        *_energy_blocks(plan),
        *_usage_blocks(plan, full=full),
    ]


def total_row(plan: Plan) -> tuple[str, ...]:
    """Return the last row of a bill, with the band of the total where it has one."""
    if plan.cost.band is None:
        return "total", "", "", exact_total_text(plan), ""
    return (
        "total, and its 90 % band",
        band_text(plan),
        "",
        exact_total_text(plan),
        "",
    )


def _band_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return what the band of the total is made of, on a full page."""
    if plan.cost.band is None or not full:
        return []
    mark = bound_mark(plan)
    causes = "; ".join(
        f"{mark}{figures.dollars(one.low)} to {mark}{figures.dollars(one.high)} for "
        f"{CAUSE_PHRASES[one.cause]} alone"
        for one in plan.cost.band.causes
    )
    dearest_usd = plan.cost.band.dearest_month_usd
    if dearest_usd is not None:
        causes += f"; the dearest month: {mark}{figures.dollars(dearest_usd)}"
    return [Paragraph(f"  90 % of such bills: {causes}", width=LINE_WIDTH)]


def _hosted_blocks(plan: Plan) -> list[Block]:
    """Return what the same tokens cost where the model is sold by the token, if that is known."""
    if not plan.cost.hosted:
        return []
    services = ", ".join(
        f"{figures.dollars(cost.usd)} at {cost.provider}"
        for cost in plan.cost.hosted
    )
    return [
        Paragraph(f"  the same tokens at an API: {services}", width=LINE_WIDTH)
    ]


def _credit_blocks(plan: Plan) -> list[Block]:
    """Return what is left to pay when credits have paid their part; nothing without credits."""
    credits_usd = plan.cost.credits_usd
    if credits_usd is None:
        return []
    left_usd = plan.cost.total - credits_usd
    return [
        Paragraph(
            f"  credits pay {figures.dollars(credits_usd)} of it, and "
            f"{bound_mark(plan)}{figures.dollars(left_usd)} are left to pay",
            width=LINE_WIDTH,
        )
    ]


def _start_blocks(plan: Plan) -> list[Block]:
    """Return what commitments cost before the first month, where they are paid at once."""
    parts = [
        part
        for pool in plan.solution.pools
        for part in pool.purchases
        if part.paid_at_start_usd is not None
    ]
    paid_usd = sum(
        (part.paid_at_start_usd or Decimal(0) for part in parts), Decimal(0)
    )
    if not paid_usd:
        return []
    is_whole = all(
        TERM_OF[part.purchase].payment == "at_once" for part in parts
    )
    rest = (
        "for the whole term"
        if is_whole
        else "and the rest of the term by the month"
    )
    return [
        Paragraph(
            f"  {figures.dollars(paid_usd)} are paid at the start, {rest}: the bill has a "
            "month's share",
            width=LINE_WIDTH,
        )
    ]


def _owned_blocks(plan: Plan) -> list[Block]:
    """Return what is paid for already, and how much of it is not used."""
    return [
        Paragraph(
            f"  owned: {owned.count} x {owned.machine} in {owned.cloud} {owned.region}, "
            f"{anyway_text(owned.source, owned.usd_month)}, "
            f"{figures.percentage(1 - float(owned.used_share))} of it unused",
            width=LINE_WIDTH,
        )
        for owned in plan.cost.owned
    ]


def anyway_text(source: str, usd_month: Decimal | None) -> str:
    """Say what owned machines cost, and what has been bought where no file says that."""
    bought = "" if source == OWNED_FILE_SOURCE else f" by {source}"
    if usd_month is None:
        return f"paid for{bought}, at a price that nobody says"
    return f"{figures.dollars(usd_month)} a month anyway{bought}"


def _usage_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return what the bill counts of use: what the spec states, and on a full page all of it."""
    return [
        Paragraph(
            f"  {'stated' if used.source == 'spec' else 'assumed'}: "
            f"usage.{used.name}: {used.amount:f} {used.unit}"
            f"{'' if used.source == 'spec' else f' ({used.source})'}",
            "dim",
            LINE_WIDTH,
        )
        for used in plan.cost.usage
        if full or used.source == "spec"
    ]


def _elsewhere_blocks(plan: Plan) -> list[Block]:
    """Return what the machines alone would cost at small clouds, if they have such ones.

    Several machines of one job need a fabric too, of which their prices say nothing.
    """
    works_together = any(
        pool.role == "train" and pool.nodes > 1 for pool in plan.solution.pools
    )
    if not plan.cost.elsewhere or works_together:
        return []
    fleets = ", ".join(
        f"{figures.dollars(fleet.usd)} at {fleet.cloud}"
        for fleet in plan.cost.elsewhere
    )
    return [
        Paragraph(
            f"  the same machines alone at a small cloud: {fleets}",
            width=LINE_WIDTH,
        )
    ]


def _commitment_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return what commitments save against on demand; nothing where that is next to nothing.

    What they lose in the future that was asked for is said too; a full page says it of each. It
    also says what those save a little more that are paid at the start.
    """
    purchases = [option.purchase for option in plan.cost.commitments]
    options = [
        option
        for option in plan.cost.commitments
        if option.saved_usd_month * 100 >= plan.cost.total * SMALL_SHARE_PERCENT
        and (full or is_paid_latest(option.purchase, purchases))
    ]
    if not options:
        return []
    cloud = plan.solution.pools[0].provider
    forms = {form_name(cloud, option.form) for option in options}
    same_form = forms.pop() if len(forms) == 1 else ""
    terms = ", ".join(
        f"{option.nodes} for {_term_of(option, cloud, same_form)} "
        f"{figures.dollars(option.saved_usd_month)} "
        + (
            f"(pays after {option.pays_after_months:.0f} months, "
            f"above {option.pays_above_hours:.0f} h a month)"
            if full
            else f"({option.pays_after_months:.0f})"
        )
        for option in options
    )
    meaning = "" if full else " (pays after months)"
    return [
        Paragraph(
            f"  of this fleet committed{f' ({same_form})' if same_form else ''}, a month "
            f"less{meaning}: "
            f"{terms}",
            width=LINE_WIDTH,
        ),
        *(
            Paragraph(
                f"  lost by {option.nodes} for {_term_of(option, cloud, same_form)} where "
                f"{regret.meaning}: "
                f"{regret_text(regret.usd, regret.scenario, option.purchase)}",
                width=LINE_WIDTH,
            )
            for option in options
            for regret in option.regrets
            if full or (regret.usd and _is_asked(regret, plan))
        ),
        *(
            Paragraph(f"  {sentence}", width=LINE_WIDTH)
            for sentence in form_sentences(
                (cloud, option.form) for option in options
            )
            if full
        ),
    ]


def _term_of(option: CommitmentOption, cloud: str, same_form: str) -> str:
    """Return its term, with its form where others have another one."""
    return (
        TERM_OF[option.purchase].name
        if same_form
        else term_text(option.purchase, cloud, option.form)
    )


def _is_asked(regret: CommitmentRegret, plan: Plan) -> bool:
    """Whether it is of a workload that ends when --stops-after says."""
    return (
        regret.scenario == END_SCENARIO
        and plan.inputs.stops_after_months is not None
    )


def _is_small(cost_line: CostLine, plan: Plan) -> bool:
    return (
        cost_line.kind != MACHINE_KIND
        and cost_line.usd is not None
        and cost_line.usd * 100 < plan.cost.total * SMALL_SHARE_PERCENT
    )


def exact_total_text(plan: Plan) -> str:
    """Return the total of a plan to the cent; >= where a price is not known."""
    return f"{bound_mark(plan)}{figures.dollars(plan.cost.total, cents=True)}"


def line_cells(cost_line: CostLine) -> tuple[str, str, str, str]:
    """Return name, quantity, unit price and USD of a line; ? where there is no price."""
    return (
        cost_line.name,
        f"{figures.quantity(cost_line.quantity)} {cost_line.unit}",
        figures.unit_price(cost_line.unit_price),
        figures.dollars(cost_line.usd, cents=True),
    )


def _line_row(cost_line: CostLine, today: str) -> tuple[str, ...]:
    return (
        *line_cells(cost_line),
        # An unpriced line is listed but not in the total.
        _age_text(cost_line.price_as_of or "", today)
        if cost_line.price_found
        else "no price",
    )


def _age_text(as_of: str, today: str) -> str:
    """Return how old a price is: at most so many days where its day is not known."""
    age = age_days(as_of, today)
    text = figures.age(age)
    return text if age is None or is_to_the_day(as_of) else f"up to {text}"


def _group_row(cost_lines: Sequence[CostLine], today: str) -> tuple[str, ...]:
    """Return the row of small lines: their names, their sum, the oldest price."""
    known_ages = [
        age
        for line in cost_lines
        if (age := age_days(line.price_as_of or "", today)) is not None
    ]
    group_usd = sum(
        (line.usd for line in cost_lines if line.usd is not None), Decimal(0)
    )
    age_text = figures.age(max(known_ages, default=None))
    return (
        _group_names(cost_lines),
        "",
        "",
        figures.dollars(group_usd, cents=True),
        f"up to {age_text}" if known_ages else age_text,
    )


def _group_names(cost_lines: Sequence[CostLine]) -> str:
    """Return the names of small lines in the order of the bill; of many, those of the dearest."""
    if len(cost_lines) <= MOST_NAMED_LINES:
        return ", ".join(line.name for line in cost_lines)
    by_usd = sorted(
        cost_lines, key=lambda line: line.usd or Decimal(0), reverse=True
    )
    dearest = by_usd[:NAMED_LINES]
    names = ", ".join(line.name for line in cost_lines if line in dearest)
    return f"{names} and {len(cost_lines) - NAMED_LINES} more"


def _life_blocks(plan: Plan) -> list[Block]:
    """Return what the machines are billed for; nothing for a month."""
    life = plan.cost.life
    if life is None:
        return []
    phases = ", ".join(
        f"{hours:,.1f} h {phase}"
        for phase, hours in (
            ("boot", life.boot_hours),
            ("work", life.work_hours),
            ("idle", life.tail_hours),
        )
        # What only stands has no phases but its work.
        if hours and hours != life.hours
    )
    life_text = f"  life: {life.hours:,.1f} h of each machine"
    release_text = RELEASE_PHRASES[life.ended_by]
    return [
        Paragraph(
            f"{life_text}: {phases}; {release_text}"
            if phases
            else f"{life_text}; {release_text}",
            width=LINE_WIDTH,
        )
    ]


def _energy_blocks(plan: Plan) -> list[Block]:
    """Return power and energy; nothing when the accelerators' power is unknown."""
    energy_use = plan.solution.energy
    if not energy_use:
        return []
    # A slice of an accelerator takes a few watts.
    power_text = (
        f"{energy_use.kw:,.1f} kW"
        if energy_use.kw >= LEAST_KW
        else f"{energy_use.kw * 1000:,.0f} W"
    )
    energy_text = (
        f"  energy: {power_text} at work, {energy_use.kwh:,.0f} "
        f"kWh in {period.NAMES[plan.cost.period]}"
    )
    # The carbon intensity of some grids is not known.
    if energy_use.kg_co2e is not None:
        energy_text += f", {energy_use.kg_co2e:,.0f} kg CO2e"
    return [Paragraph(energy_text, width=LINE_WIDTH)]
