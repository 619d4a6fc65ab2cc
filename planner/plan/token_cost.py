"""What tokens and requests cost at a bill: the one of a plan, or another one of the same work."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.plan.cost import TokenCost
from planner.plan.number import plain_money, rounded
from planner.units import TOKENS_PER_MILLION

if TYPE_CHECKING:
    from planner.plan.part import Number

PRICED_REQUESTS: Final = 1000
# Small models cost fractions of a cent a million tokens.
UNIT_COST_STEP: Final = Decimal("0.0001")


def token_cost(
    total: Decimal,
    *,
    prompt_tokens: Decimal = Decimal(0),
    output_tokens: Decimal = Decimal(0),
    trained_tokens: Decimal = Decimal(0),
    requests: Decimal = Decimal(0),
) -> TokenCost:
    """Return a total over the tokens and requests of its period, USD; some tokens are needed."""
    all_tokens = prompt_tokens + output_tokens + trained_tokens
    return TokenCost(
        prompt_tokens=rounded(float(prompt_tokens)),
        output_tokens=rounded(float(output_tokens)),
        trained_tokens=rounded(float(trained_tokens)),
        usd_per_million_output=_usd_per(
            TOKENS_PER_MILLION, total, output_tokens
        ),
        usd_per_million=_usd_each(TOKENS_PER_MILLION, total, all_tokens),
        requests=rounded(float(requests)),
        usd_per_thousand_requests=_usd_per(PRICED_REQUESTS, total, requests),
    )


def at_total(tokens: TokenCost, total: Decimal) -> TokenCost:
    """Return what the tokens and requests of a plan cost where the same work has another total."""
    return token_cost(
        total,
        prompt_tokens=_exact(tokens.prompt_tokens),
        output_tokens=_exact(tokens.output_tokens),
        trained_tokens=_exact(tokens.trained_tokens),
        requests=_exact(tokens.requests),
    )


def _exact(count: Number) -> Decimal:
    return Decimal(str(count))


def _usd_per(number: int, total: Decimal, counted: Decimal) -> Decimal | None:
    """Return what so many of what is counted cost, USD; None where there are none of them."""
    return _usd_each(number, total, counted) if counted else None


def _usd_each(number: int, total: Decimal, counted: Decimal) -> Decimal:
    return plain_money((total * number / counted).quantize(UNIT_COST_STEP))
