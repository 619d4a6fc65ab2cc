"""The bill in the plan document: total, lines, life, and what a million tokens cost."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.bill_line import (
    CENT,
    CROSS_REGION,
    MACHINE_KIND,
    SUPPORT_KIND,
    TAX_KIND,
)
from planner.cost.usage import usage_assumptions
from planner.market.catalog_source import named_sources
from planner.market.hosted import cheapest_hosted
from planner.market.price_age import is_old
from planner.market.small_cloud import catalog_machines, cheapest_elsewhere
from planner.plan import types
from planner.plan.cost_band import cost_band
from planner.plan.number import optional_money, plain_money, rounded
from planner.plan.token_cost import token_cost
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from planner.cost.bill import Bill
    from planner.cost.bill_line import BillLine
    from planner.cost.lifetime import Lifetime
    from planner.cost.service_price import Surcharges
    from planner.market.bought import CommitmentSaving
    from planner.market.offer import Catalog
    from planner.market.owned import OwnedUse
    from planner.solve.solution import Solution
    from planner.spec.model import ShutdownRule

# What a bill leaves out, where no prices of one's own say otherwise.
EXCLUDED_TRANSFERS: Final = "transfers to other networks"
EXCLUDED_SURCHARGES: Final = {SUPPORT_KIND: "support plans", TAX_KIND: "tax"}
EXCLUDED_DISCOUNTS: Final = "private discounts"


def _excluded(
    bill_lines: Collection[BillLine], surcharges: Surcharges
) -> tuple[str, ...]:
    """Return what some lines leave out, those without a price included."""
    kinds = {line.kind for line in bill_lines}
    return tuple(
        sorted(
            [
                EXCLUDED_TRANSFERS
                if CROSS_REGION in kinds
                else f"{EXCLUDED_TRANSFERS} and regions",
                *(
                    name
                    for kind, name in EXCLUDED_SURCHARGES.items()
                    if kind not in kinds
                ),
                *([] if surcharges.has_discounts else [EXCLUDED_DISCOUNTS]),
                *(line.name for line in bill_lines if not line.is_priced),
            ]
        )
    )


def cost_entry(
    solution: Solution,
    period: types.Period,
    workload: str,
    catalog: Catalog,
    shutdown: ShutdownRule,
) -> types.Cost:
    """Return the cost part; without a bill (infeasible plan) all costs are 0."""
    surcharges = catalog.price_book.surcharges
    bill = solution.bill
    if bill is None:
        return types.Cost(
            period=period,
            total=Decimal(0),
            usd_hour=Decimal(0),
            life=None,
            tokens=None,
            # What ends has a cost for its run or its life, none for a month.
            usd_month=Decimal(0) if period == "month" else None,
            lines=(),
            excludes=_excluded((), surcharges),
        )
    total = plain_money(bill.total)
    elsewhere = tuple(_elsewhere(solution, bill, catalog))
    return types.Cost(
        period=bill.period,
        life=_life(bill.life),
        total=total,
        band=cost_band(solution, bill, catalog, shutdown),
        tokens=_token_cost(solution, total),
        usd_hour=plain_money(bill.usd_hour),
        usd_month=total if bill.period == "month" else None,
        lines=tuple(_cost_line(bill_line, catalog) for bill_line in bill.lines),
        sources=tuple(
            _price_origins(
                [
                    *(line.source for line in bill.lines),
                    *(fleet.price_source for fleet in elsewhere),
                ],
                catalog,
            )
        ),
        # The total has no line whose price is unknown.
        excludes=_excluded(bill.lines, surcharges),
        credits_usd=_paid_by_credits(bill, surcharges),
        commitments=tuple(map(_commitment, solution.commitments)),
        hosted=tuple(_hosted(solution)),
        owned=tuple(map(owned_cost, solution.owned)),
        elsewhere=elsewhere,
        usage=tuple(_used_amounts(workload, catalog)),
    )


def _used_amounts(
    workload: str, catalog: Catalog
) -> Iterator[types.UsedAmount]:
    """Yield what is assumed of the use of a workload, or stated by its spec."""
    book = catalog.price_book
    for name, row in usage_assumptions().items():
        if row.applies(workload):
            yield types.UsedAmount(
                name=name,
                amount=book.used(name),
                unit=row.unit,
                meaning=row.meaning,
                source="spec" if name in book.usage else row.source,
            )


def _paid_by_credits(bill: Bill, surcharges: Surcharges) -> Decimal | None:
    """Return what credits pay of a bill, USD: those of its months, at most all of it."""
    if surcharges.credits_usd is None:
        return None
    return plain_money(min(bill.total, surcharges.credits_usd * bill.months))


def owned_cost(use: OwnedUse) -> types.OwnedCost:
    """Return what is paid for already, and the share of its hours that is used."""
    machines = use.machines
    return types.OwnedCost(
        cloud=machines.cloud,
        region=machines.region,
        machine=machines.type,
        count=machines.count,
        usd_month=None
        if machines.usd_month is None
        else plain_money(machines.usd_month),
        source=machines.source,
        used_share=rounded(float(use.used_share)),
    )


def _elsewhere(
    solution: Solution, bill: Bill, catalog: Catalog
) -> Iterator[types.ElsewhereCost]:
    """Yield what the machines of a bill would cost at small clouds; of one machine type alone."""
    machine_lines = [line for line in bill.lines if line.kind == MACHINE_KIND]
    if len(solution.pools) != 1 or any(
        line.unit != "node-hour" for line in machine_lines
    ):
        return
    node_hours = sum((line.quantity for line in machine_lines), Decimal(0))
    for fleet in cheapest_elsewhere(
        catalog_machines(catalog), solution.pools[0].instance, node_hours
    ):
        machine = fleet.machine
        yield types.ElsewhereCost(
            cloud=machine.cloud,
            machine=machine.machine,
            usd=plain_money(fleet.usd),
            usd_hour=plain_money(machine.usd_hour),
            price_source=machine.source,
            price_as_of=machine.as_of,
        )


def _hosted(solution: Solution) -> Iterator[types.HostedCost]:
    """Yield what the tokens would cost at the cheapest services that sell the model."""
    volume, llm = solution.token_volume, solution.llm
    # Tokens of several services are those of several models.
    if volume is None or llm is None or shares_machines(solution):
        return
    for tokens in cheapest_hosted(
        llm.model,
        volume.prompt_tokens,
        volume.answer_tokens,
        volume.cached_share,
    ):
        price = tokens.price
        yield types.HostedCost(
            provider=price.provider,
            name=price.name,
            usd=plain_money(tokens.usd),
            input_usd=plain_money(price.input_usd),
            cached_usd=optional_money(price.cached_usd),
            output_usd=plain_money(price.output_usd),
            price_source=price.source,
            price_as_of=price.as_of,
        )


def shares_machines(solution: Solution) -> bool:
    """Whether several services share the accelerators of a solution."""
    return any(pool.services for pool in solution.pools)


def _commitment(option: CommitmentSaving) -> types.CommitmentOption:
    return types.CommitmentOption(
        purchase=option.purchase,
        form=option.form or None,
        nodes=option.nodes,
        saved_usd_month=plain_money(option.saved_usd),
        committed_usd=plain_money(option.committed_usd.quantize(CENT)),
        pays_after_months=rounded(option.pays_after_months),
        pays_above_hours=rounded(option.pays_above_hours),
        regrets=tuple(
            types.CommitmentRegret(
                scenario=regret.scenario.scenario,
                meaning=regret.scenario.meaning,
                usd=plain_money(regret.usd),
            )
            for regret in option.regrets
        ),
    )


def _token_cost(solution: Solution, total: Decimal) -> types.TokenCost | None:
    """Return the total over tokens and requests; None where no tokens are counted."""
    training_run = solution.training_run
    volume = solution.token_volume
    if training_run is not None:
        return token_cost(
            total, trained_tokens=Decimal(training_run.total_tokens)
        )
    if volume is None or not volume.answer_tokens:
        return None
    return token_cost(
        total,
        prompt_tokens=volume.prompt_tokens,
        output_tokens=volume.answer_tokens,
        requests=volume.requests,
    )


def _life(life: Lifetime | None) -> types.Life | None:
    if life is None:
        return None
    return types.Life(
        hours=rounded(life.billed_s / SECONDS_PER_HOUR),
        boot_hours=rounded(life.boot_s / SECONDS_PER_HOUR),
        work_hours=rounded(life.work_s / SECONDS_PER_HOUR),
        tail_hours=rounded(life.tail_s / SECONDS_PER_HOUR),
        ended_by=life.release,
    )


def _price_origins(
    price_sources: Iterable[str], catalog: Catalog
) -> Iterator[types.PriceOrigin]:
    """Yield the sources that prices name, each once, in the order of the prices."""
    named = {
        source.name: source
        for text in price_sources
        for source in named_sources(text, catalog.sources)
    }
    for source in named.values():
        yield types.PriceOrigin(
            name=source.name,
            what=source.what,
            as_of=source.as_of,
            url=source.url or None,
        )


def _cost_line(bill_line: BillLine, catalog: Catalog) -> types.CostLine:
    # What an account, a contract or a spec says stands in no row of the catalog.
    is_in_catalog = named_sources(bill_line.source, catalog.sources)
    return types.CostLine(
        name=bill_line.name,
        kind=bill_line.kind,
        unit=bill_line.unit,
        quantity=plain_money(bill_line.quantity),
        unit_price=optional_money(bill_line.unit_price),
        usd=optional_money(bill_line.usd),
        pool=bill_line.pool or None,
        price_source=bill_line.source or None,
        price_as_of=bill_line.as_of or None,
        price_row=(bill_line.row or None) if is_in_catalog else None,
        price_is_old=is_old(bill_line.as_of, catalog.as_of),
        price_found=bill_line.is_priced,
    )
