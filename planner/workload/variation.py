"""One workload under other circumstances: what its wishes cost, and what moves its bill.

Each variation is planned anew, with everything else as it is. A stricter wish has fewer fleets to
choose from, so between two wishes with the same cheapest fleet it is that one. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.numeric import EVEN_ODDS
from planner.solve.solution import Counterfactual
from planner.spec.model import Batch, Inference, Training
from planner.workload.registry import workload_of
from planner.workload.solver import find, what_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.market.offer import Catalog
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
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


class _Question(NamedTuple):
    """A variation that is not planned yet. The spec itself has the value `planned`."""

    subject: str
    quantity: Quantity
    value: Decimal
    planned: Decimal
    ask: Callable[[], Counterfactual]


def variations(
    spec: Spec,
    settings: SolveSettings,
    kind: VariationKind,
    planned: Counterfactual | None = None,
) -> list[Variation]:
    """Return what a spec costs under each circumstance of a kind, without its budget.

    `planned` is the answer of the spec itself, where it is known: it is not looked for again.
    """
    free_spec = replace(spec, buy=replace(spec.buy, budget=None))
    # Only the cheapest fleet is asked for.
    settings = replace(settings, alternative_count=0, names_nearest=False)
    lines: defaultdict[tuple[str, bool], list[_Question]] = defaultdict(list)
    for row in _rows():
        if row.kind == kind:
            for question in _questions(free_spec, settings, row):
                is_above = question.value > question.planned
                lines[question.subject, is_above].append(question)
    # Plans with other limits learn from each other, and fill the end of what runs side by side.
    longest_first = sorted(
        lines.values(), key=lambda line: line[0].quantity == "limit"
    )
    answered = settings.run_all(
        [partial(_line, line, planned) for line in longest_first]
    )
    return [one for line in answered for one in line]


def _line(
    line: Iterable[_Question], planned: Counterfactual | None
) -> list[Variation]:
    """Answer questions of one subject that are all above what the spec says, or all below it.

    Those between two with the same answer have it too.
    """
    questions = sorted(line, key=lambda one: abs(one.value - one.planned))
    # The spec itself has place 0.
    answers = {} if planned is None else {0: planned}
    gaps = [(0 if answers else 1, len(questions))]
    while gaps:
        near, far = gaps.pop()
        for place in (near, far):
            if place not in answers:
                answers[place] = questions[place - 1].ask()
        between = range(near + 1, far)
        if answers[near] == answers[far]:
            answers |= dict.fromkeys(between, answers[near])
        elif between:
            middle = between[len(between) // 2]
            gaps += [(near, middle), (middle, far)]
    return [
        Variation(
            subject=question.subject,
            quantity=question.quantity,
            value=question.value,
            answer=answers[place],
        )
        for place, question in enumerate(questions, 1)
    ]


def _questions(
    spec: Spec, settings: SolveSettings, row: VariationRow
) -> Iterator[_Question]:
    """Yield what a row asks of a spec: nothing where the spec has no such quantity."""
    factor = row.factor
    if row.quantity == "limit":
        for key, seconds, varied in _limits(spec, factor):
            yield _Question(
                key,
                "limit",
                seconds,
                seconds / factor,
                partial(_planned, varied, settings),
            )
    elif row.quantity in ("confidence", "error"):
        # Only what has a limit can miss it. The band of a training's bill has the errors of its
        # speed already.
        is_asked = row.quantity == "confidence" or not isinstance(
            spec, Training
        )
        if is_asked and any(_limits(spec, Decimal(1))):
            level = replace(settings.confidence, level=float(factor))
            yield _Question(
                "confidence"
                if row.quantity == "confidence"
                else "the error of predictions",
                row.quantity,
                factor,
                # Without a level predictions are taken as they are.
                Decimal(str(settings.confidence.level or EVEN_ODDS)),
                partial(_planned, spec, replace(settings, confidence=level)),
            )
    elif row.quantity == "load":
        yield _Question(
            workload_of(spec).scaled_quantity,
            "load",
            factor,
            Decimal(1),
            partial(what_if, spec, settings, float(factor)),
        )
    else:
        catalog = _priced(settings.catalog, row)
        yield _Question(
            "price of machines"
            if row.quantity == "price"
            else "everything besides machines",
            row.quantity,
            factor,
            Decimal(1),
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


def answer_of(solution: Solution) -> Counterfactual:
    """Return the fleet of a solution as an answer."""
    if solution.bill is None:
        return Counterfactual(None, None, None)
    return Counterfactual(
        solution.summary,
        solution.bill.total,
        None,
        is_partial=solution.bill.is_partial,
    )


def _planned(spec: Spec, settings: SolveSettings) -> Counterfactual:
    return answer_of(find(spec, settings))
