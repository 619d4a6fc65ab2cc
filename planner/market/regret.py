"""What a commitment loses against on demand when the future is not what was planned."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import CENT
from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterator


# The one in which a workload ends early.
END_SCENARIO: Final = "ends"


class Future(Struct, frozen=True, kw_only=True):
    """One that may come instead of the planned one.

    months       after which the workload ends; None where it lasts as long as the term
    load_share   traffic, as a share of what was planned
    price_share  price on demand after some months, as a share of today's
    price_after_months  after how many it is so
    """

    scenario: str
    months: Decimal | None
    load_share: Decimal
    price_share: Decimal
    price_after_months: int
    meaning: str

    def regret_usd(
        self,
        committed_usd: Decimal,
        on_demand_usd: Decimal,
        term_months: int,
    ) -> Decimal:
        """Return what a commitment loses, USD; 0 where it still saves something.

        max(0, cost of the term - what its machines would have cost on demand)
        on demand = USD a month * (months of today's price + price share * months after them)
        `on_demand_usd` is that of a month at the load of the scenario.
        """
        term = Decimal(term_months)
        months = term if self.months is None else min(term, self.months)
        before = min(months, Decimal(self.price_after_months))
        on_demand = on_demand_usd * (
            before + (months - before) * self.price_share
        )
        return max(Decimal(0), committed_usd - on_demand).quantize(CENT)


class Regret(Struct, frozen=True):
    """What a commitment loses in a scenario, USD over its term."""

    scenario: Future
    usd: Decimal


def futures(stops_after_months: Decimal | None) -> tuple[Future, ...]:
    """Return the scenarios; the workload ends after so many months where they are given."""
    if stops_after_months is None:
        return scenarios()
    return tuple(
        replace(
            future,
            months=stops_after_months,
            meaning=f"the workload ends after {stops_after_months.normalize():f} months",
        )
        if future.scenario == END_SCENARIO
        else future
        for future in scenarios()
    )


def comes_after(scenario: str, term_months: int) -> bool:
    """Whether a scenario of that name changes nothing before a term of so many months is over."""
    return any(
        future.scenario == scenario
        and future.months is None
        and future.load_share == 1
        and future.price_after_months >= term_months
        for future in scenarios()
    )


@cache
def scenarios() -> tuple[Future, ...]:
    """Return the scenarios that every commitment is held against."""
    return tuple(_read_scenarios())


def _read_scenarios() -> Iterator[Future]:
    columns: table.Columns = {
        "scenario": table.nonempty_text,
        "months": table.optional(table.finite_decimal),
        "load_share": table.finite_decimal,
        "price_share": table.finite_decimal,
        "price_after_months": table.integer_between(0, 120),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    for row in table.load_rows("planner.market", "scenarios.csv", columns):
        yield Future(
            scenario=row["scenario"],
            months=row["months"],
            load_share=row["load_share"],
            price_share=row["price_share"],
            price_after_months=row["price_after_months"],
            meaning=row["meaning"],
        )
