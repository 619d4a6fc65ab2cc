"""Where the prices of a bill are from: each with its row, its source, its date and an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.page import Heading, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import CostLine, Plan, PriceOrigin
    from planner.render.page import Block

UNKNOWN_PRICE: Final = "no price is known"
UNSAID_SOURCE: Final = "not said"


def line_origin(plan: Plan, cost_line: CostLine) -> str:
    """Return the source of the price of a line in words; none may be known."""
    if not cost_line.price_found:
        return UNKNOWN_PRICE
    source = cost_line.price_source
    return UNSAID_SOURCE if source is None else origin_text(plan, source)


def origin_text(plan: Plan, source: str) -> str:
    """Return a source in words, with the address of what its name stands for."""
    named = [
        origin for origin in plan.cost.sources if _is_named(origin, source)
    ]
    if not named:
        return source
    described = "; ".join(map(_description, named))
    # A price of one's own says what it takes off a list price.
    is_own = len(named) == 1 and source != named[0].name
    return f"{source}: {described}" if is_own else described


def price_blocks(plan: Plan) -> list[Block]:
    """Return a table of the prices of a bill, and one of the sources that they name."""
    if not plan.cost.lines:
        return []
    price_rows: list[tuple[str, ...]] = [
        (
            cost_line.name,
            figures.unit_price(cost_line.unit_price),
            cost_line.unit,
            cost_line.price_as_of or "",
            (cost_line.price_source or UNSAID_SOURCE)
            if cost_line.price_found
            else UNKNOWN_PRICE,
            cost_line.price_row or "",
        )
        for cost_line in plan.cost.lines
    ]
    price_rows += _compared_rows(plan)
    source_rows = [
        (origin.name, origin.as_of, origin.what, origin.url or "")
        for origin in plan.cost.sources
    ]
    blocks: list[Block] = [
        Heading("Where each price is from"),
        PageTable(
            ("line of the bill", ">USD", "per", "date", "source", "row"),
            tuple(price_rows),
        ),
    ]
    if source_rows:
        columns = ("source", "date", "what it is", "address")
        blocks += [Paragraph(""), PageTable(columns, tuple(source_rows))]
    return blocks


def _compared_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield the prices of what a bill is compared with: services by the token, small clouds."""
    for hosted in plan.cost.hosted:
        for what, usd in (
            ("prompts", hosted.input_usd),
            ("answers", hosted.output_usd),
        ):
            yield (
                f"{what} at {hosted.provider}",
                figures.token_price(usd).removeprefix("$"),
                "million tokens",
                hosted.price_as_of,
                hosted.price_source,
                hosted.name,
            )
    for fleet in plan.cost.elsewhere:
        yield (
            f"a machine at {fleet.cloud}",
            figures.unit_price(fleet.usd_hour),
            "node-hour",
            fleet.price_as_of,
            fleet.price_source,
            fleet.machine,
        )


def _is_named(origin: PriceOrigin, source: str) -> bool:
    return (
        origin.name == source or origin.name in source.replace(",", " ").split()
    )


def _description(origin: PriceOrigin) -> str:
    return f"{origin.what}, {origin.url}" if origin.url else origin.what
