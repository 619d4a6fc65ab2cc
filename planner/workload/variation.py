"""One workload under other circumstances: what its wishes cost, and what moves its bill.

Each variation is planned anew, with everything else as it is. Pure.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.solve.solution import Counterfactual
from planner.spec.model import Batch, Inference, Training
from planner.workload.registry import workload_of
from planner.workload.solver import find, what_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.market.offer import Catalog
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Spec

VariationKind: TypeAlias = Literal["frontier", "sensitivity"]
Quantity: TypeAlias = Literal[
    "limit", "confidence", "error", "load", "price", "services"
]


class VariationRow(Struct, frozen=True, kw_only=True):
    """A row of data/variations.csv: which quantity is how many times what it is.

    A confidence is not multiplied: the factor is the confidence itself. So is the percentile of an
    error: the fleet that would do is that of the same confidence.
    """

    quantity: Quantity
    kind: VariationKind
    factor: Decimal


class Variation(Struct, frozen=True, kw_only=True):
    """A circumstance that is another one, and the cheapest fleet then.

    subject  key of the spec, or what else is varied
    value    what it is then: seconds, a share, or so many times what it was
    """

    subject: str
    quantity: Quantity
    value: Decimal
    answer: Counterfactual


@cache
def _rows() -> tuple[VariationRow, ...]:
    columns: table.Columns = {
        "quantity": table.one_of(
            "limit", "confidence", "error", "load", "price", "services"
        ),
        "kind": table.one_of("frontier", "sensitivity"),
        "factor": table.finite_decimal,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        VariationRow(
            quantity=row["quantity"], kind=row["kind"], factor=row["factor"]
        )
        for row in table.load_rows("planner.market", "variations.csv", columns)
    )


def variations(
    spec: Spec, settings: SolveSettings, kind: VariationKind
) -> list[Variation]:
    """Return what a spec costs under each circumstance of a kind, without its budget."""
    free_spec = replace(spec, buy=replace(spec.buy, budget=None))
    # Only the cheapest fleet is asked for.
    settings = replace(settings, alternative_count=0, names_nearest=False)
    asked = [
        question
        for row in _rows()
        if row.kind == kind
        for question in _questions(free_spec, settings, row)
    ]
    answers = settings.run_all([ask for *_, ask in asked])
    return [
        Variation(
            subject=subject, quantity=quantity, value=value, answer=answer
        )
        for (subject, quantity, value, _), answer in zip(
            asked, answers, strict=True
        )
    ]


def _questions(
    spec: Spec, settings: SolveSettings, row: VariationRow
) -> Iterator[tuple[str, Quantity, Decimal, Callable[[], Counterfactual]]]:
    """Yield what a row asks of a spec: nothing where the spec has no such quantity."""
    factor = row.factor
    if row.quantity == "limit":
        for key, seconds, varied in _limits(spec, factor):
            yield key, "limit", seconds, partial(_planned, varied, settings)
    elif row.quantity in ("confidence", "error"):
        # Only what has a limit can miss it. The band of a training's bill has the errors of its
        # speed already.
        is_asked = row.quantity == "confidence" or not isinstance(
            spec, Training
        )
        if is_asked and any(_limits(spec, Decimal(1))):
            level = replace(settings.confidence, level=float(factor))
            yield (
                "confidence"
                if row.quantity == "confidence"
                else "the error of predictions",
                row.quantity,
                factor,
                partial(_planned, spec, replace(settings, confidence=level)),
            )
    elif row.quantity == "load":
        yield (
            workload_of(spec).scaled_quantity,
            "load",
            factor,
            partial(what_if, spec, settings, float(factor)),
        )
    else:
        catalog = _priced(settings.catalog, row)
        yield (
            "price of machines"
            if row.quantity == "price"
            else "everything besides machines",
            row.quantity,
            factor,
            partial(
                _planned,
                spec,
                # What is kept from one plan to the next knows one list of prices.
                replace(
                    settings, catalog=catalog, memory=type(settings.memory)()
                ),
            ),
        )


def _limits(spec: Spec, factor: Decimal) -> Iterator[tuple[str, Decimal, Spec]]:
    """Yield each limit of time, what it is then, and the spec with it."""
    if isinstance(spec, Inference) and spec.sla is not None:
        for number, limit in enumerate(spec.sla.limits):
            seconds = limit.seconds * factor
            limits = (
                *spec.sla.limits[:number],
                replace(limit, seconds=seconds),
                *spec.sla.limits[number + 1 :],
            )
            sla = replace(spec.sla, limits=limits)
            yield f"sla.{limit.key}", seconds, replace(spec, sla=sla)
    elif isinstance(spec, Batch) and spec.deadline is not None:
        seconds = spec.deadline * factor
        yield "deadline", seconds, replace(spec, deadline=seconds)
    elif isinstance(spec, Training) and spec.train.deadline is not None:
        seconds = spec.train.deadline * factor
        train = replace(spec.train, deadline=seconds)
        yield "train.deadline", seconds, replace(spec, train=train)


def _priced(catalog: Catalog, row: VariationRow) -> Catalog:
    """Return a catalog whose machines, or everything else, cost so many times as much."""
    if row.quantity == "price":
        return replace(
            catalog,
            offers=tuple(
                replace(offer, usd_hour=offer.usd_hour * row.factor)
                for offer in catalog.offers
            ),
        )
    book = catalog.price_book
    prices = {
        key: tuple(
            replace(price, usd=price.usd * row.factor) for price in service
        )
        for key, service in book.prices.items()
    }
    return replace(catalog, price_book=replace(book, prices=prices))


def _planned(spec: Spec, settings: SolveSettings) -> Counterfactual:
    solution = find(spec, settings)
    if solution.bill is None:
        return Counterfactual(None, None, None)
    return Counterfactual(
        solution.summary,
        solution.bill.total,
        None,
        is_partial=solution.bill.is_partial,
    )
