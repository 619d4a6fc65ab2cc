"""What tokens and requests cost, in words, and in columns of tables that compare bills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.plan.token_cost import at_total

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.cost import TokenCost

# A table of six columns has no room for more of their names.
TITLES: Final = (">$/M tokens", ">$/1k requests")


def token_phrases(tokens: TokenCost, mark: str) -> list[str]:
    """Return what a million tokens and a thousand requests cost; `mark` is >= of a lower bound."""
    blended = f"{mark}{figures.token_price(tokens.usd_per_million)}"
    output_usd = tokens.usd_per_million_output
    phrases = [
        f"{blended} per million tokens"
        if output_usd is None
        else f"{mark}{figures.token_price(output_usd)} per million tokens out, "
        f"{blended} blended"
    ]
    if tokens.usd_per_thousand_requests is not None:
        price = figures.token_price(tokens.usd_per_thousand_requests)
        phrases.append(f"{mark}{price} per 1,000 requests")
    return phrases


def token_titles(tokens: TokenCost | None) -> tuple[str, ...]:
    """Return the titles of what tokens and requests cost; none where none are counted."""
    if tokens is None:
        return ()
    return TITLES[:1] if tokens.usd_per_thousand_requests is None else TITLES


def token_cells(
    tokens: TokenCost | None, usd: Decimal | None, mark: str = ""
) -> tuple[str, ...]:
    """Return what the tokens and requests of a plan cost at a bill of `usd`, below the titles.

    Tokens are those of prompts and answers together. Cells are - where there is no bill.
    """
    if tokens is None:
        return ()
    if usd is None:
        return ("-",) * len(token_titles(tokens))
    return price_cells(at_total(tokens, usd), mark)


def price_cells(tokens: TokenCost | None, mark: str = "") -> tuple[str, ...]:
    """Return what tokens and requests cost, below the titles; `mark` is >= of a lower bound."""
    if tokens is None:
        return ()
    prices = (tokens.usd_per_million, tokens.usd_per_thousand_requests)
    return tuple(
        f"{mark}{figures.token_price(price)}"
        for price in prices
        if price is not None
    )
