"""One workload in every way to buy it, and with every engine: each a plan of its own. Pure."""

from __future__ import annotations

from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import SpecError
from planner.facts import table
from planner.facts.serving_engine import table_name
from planner.facts.small_cloud import small_clouds
from planner.market.small_cloud import with_small_clouds
from planner.market.term import TERM_OF
from planner.spec.conflict import conflict_problems
from planner.spec.model import (
    Batch,
    EngineName,
    GuessMethod,
    Inference,
    PurchaseRule,
)
from planner.units import HOURS_PER_MONTH
from planner.workload.open_choice import guess_methods, with_guesses
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.bill import Bill
    from planner.cost.lifetime import Period
    from planner.errors import Problem
    from planner.market.bought import CommitmentSaving, PoolPurchase
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import BindingLimit, FleetSummary
    from planner.spec.model import Spec


class BuyingWay(Struct, frozen=True, kw_only=True):
    """A way to buy, as a block `buy` of a spec would say it; `name` is for people.

    machine_types  how many a service has
    clouds  those that the spec allows, or small ones, where only the machines are priced
    engine  what serves the model; none is what the spec says
    speculation  what guesses tokens; none is what the spec says
    """

    way: str
    name: str
    commit: tuple[str, ...]
    spot: str
    on_demand_base: Decimal | None
    machine_types: int
    clouds: Literal["spec", "small"]
    engine: EngineName | None
    speculation: GuessMethod | None


class BoughtWay(Struct, frozen=True, kw_only=True):
    """The cheapest fleet of a workload in one way to buy; without machines where there is none.

    fleets    machines of one type, or of two
    usd       cost in the period of the bill
    is_partial  whether the bill has lines whose price nobody knows, so that it costs more
    owed_usd  what its commitments cost over their terms, used or not
    spot_as_of  date of the price of its machines on spot, as it was found; empty without any
    refused   the rule of the spec that its kind breaks by buying so
    nearest   what would have to change where no fleet meets the spec
    """

    way: BuyingWay
    period: Period = "month"
    fleets: tuple[FleetSummary, ...] = ()
    purchases: tuple[PoolPurchase, ...] = ()
    usd: Decimal | None = None
    is_partial: bool = False
    owed_usd: Decimal = Decimal(0)
    spot_as_of: str = ""
    commitments: tuple[CommitmentSaving, ...] = ()
    refused: Problem | None = None
    nearest: BindingLimit | None = None


@cache
def ways() -> tuple[BuyingWay, ...]:
    """Return the ways to buy that are compared. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "way": table.nonempty_text,
        "name": table.nonempty_text,
        "commit": table.word_list,
        "spot": table.one_of("auto", "never", "only"),
        "on_demand_base": table.optional(table.finite_decimal),
        "machine_types": table.integer_between(1, 2),
        "clouds": table.one_of("spec", "small"),
        "engine": table.optional(table.one_of(*get_args(EngineName))),
        "speculation": table.optional(table.one_of(*get_args(GuessMethod))),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        BuyingWay(
            way=row["way"],
            name=row["name"],
            commit=row["commit"],
            spot=row["spot"],
            on_demand_base=row["on_demand_base"],
            machine_types=row["machine_types"],
            clouds=row["clouds"],
            engine=row["engine"],
            speculation=row["speculation"],
        )
        for row in table.load_rows("planner.market", "ways.csv", columns)
    )


def buy_in_every_way(spec: Spec, settings: SolveSettings) -> list[BoughtWay]:
    """Return the cheapest fleet of a spec in each way to buy, and what stops the others.

    What the spec says of how to buy is left aside, but for its budget and what it owns. Two
    machine types that cost no less than one have no fleet. Of a spec that serves a model each
    engine but its own is a way too, and so are guesses whose acceptance is published.
    """
    return settings.run_all(
        [
            partial(_bought, way, own_spec, _settings_of(way, settings))
            for way, own_spec in _specs(spec)
        ]
    )


def _specs(spec: Spec) -> Iterator[tuple[BuyingWay, Spec]]:
    """Yield each way with the spec that buys so, also where a rule refuses it."""
    for way in ways():
        if way.engine is not None and way.engine not in _other_engines(spec):
            continue
        guesses = way.speculation
        if guesses is not None and guesses not in _other_guesses(spec):
            continue
        rule = PurchaseRule(
            place=spec.buy.place,
            spot=way.spot,  # type: ignore[arg-type]  # a row has one of its words
            commit=way.commit,
            on_demand_base=way.on_demand_base,
            machine_types=way.machine_types,
            budget=spec.buy.budget,
            owned=spec.buy.owned,
        )
        own_spec = replace(spec, buy=rule)
        if way.clouds == "small":
            own_spec = replace(
                own_spec,
                where=replace(
                    spec.where,
                    clouds=tuple(small_clouds()),
                    regions=(),
                    zones=(),
                ),
                network=None,
            )
        if isinstance(own_spec, Inference | Batch) and way.engine is not None:
            own_spec = replace(
                own_spec, serving=replace(own_spec.serving, engine=way.engine)
            )
        if isinstance(own_spec, Inference | Batch) and guesses is not None:
            own_spec = with_guesses(own_spec, guesses)
        yield way, own_spec


def _other_engines(spec: Spec) -> set[str]:
    """Return the engines that could serve a spec besides its own: none where nothing is served.

    A spec that leaves its engine open has none of its own.
    """
    if not isinstance(spec, Inference | Batch):
        return set()
    own = None if spec.serving.engine == "any" else spec.serving.engine_name
    return {
        engine for engine in get_args(EngineName) if table_name(engine) != own
    }


def _other_guesses(spec: Spec) -> set[GuessMethod]:
    """Return the published ways to guess that a spec does not have, and off where it has one.

    A spec that leaves its guesses open has none of its own.
    """
    if not isinstance(spec, Inference | Batch):
        return set()
    own = spec.serving.speculation
    methods = guess_methods(spec)
    if own == "auto":
        # Where none is published there is no choice.
        return set(methods) if len(methods) > 1 else set()
    return {method for method in methods if method != own}


def _settings_of(way: BuyingWay, settings: SolveSettings) -> SolveSettings:
    """Return settings with the offers of a way."""
    if way.clouds == "spec":
        return settings
    catalog = with_small_clouds(settings.catalog, small_clouds())
    return replace(settings, catalog=catalog, memory=type(settings.memory)())


def _bought(way: BuyingWay, spec: Spec, settings: SolveSettings) -> BoughtWay:
    problems = conflict_problems(spec)
    if problems:
        return BoughtWay(way=way, refused=problems[0])
    try:
        solution = find(spec, settings)
    except SpecError as refusal:
        # An engine does not serve every model in every format.
        return BoughtWay(way=way, refused=refusal.problems[0])
    bill = solution.bill
    if not solution.pools:
        nearest = solution.explained().bindings[:1]
        return BoughtWay(way=way, nearest=nearest[0] if nearest else None)
    if way.machine_types > len(solution.pools):
        return BoughtWay(way=way)
    return BoughtWay(
        way=way,
        period=bill.period if bill is not None else "month",
        fleets=tuple(pool.summary for pool in solution.pools),
        purchases=tuple(
            part for pool in solution.pools for part in pool.purchases
        ),
        usd=bill.total if bill is not None else None,
        is_partial=bill is not None and bill.is_partial,
        owed_usd=sum(
            (
                part.nodes
                * part.usd_hour
                * HOURS_PER_MONTH
                * settings.catalog.price_book.surcharges.factor
                * TERM_OF[part.purchase].months
                for pool in solution.pools
                for part in pool.purchases
                if part.purchase in TERM_OF
            ),
            Decimal(0),
        ),
        spot_as_of=_spot_date(bill),
        commitments=solution.commitments,
    )


def _spot_date(bill: Bill | None) -> str:
    """Return the date of the oldest price of machines on spot; empty where none are."""
    lines = bill.lines if bill is not None else ()
    return min(
        (one.as_of for one in lines if one.purchase == "spot"), default=""
    )
