"""What the tokens of a workload cost at services that sell a model by the token."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill_line import CENT
from planner.facts import table
from planner.units import TOKENS_PER_MILLION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

NAMED_SERVICES: Final = 3


class HostedPrice(Struct, frozen=True, kw_only=True):
    """What a service asks for a model, USD for a million tokens.

    name        what the service calls the model
    input_usd   of a prompt
    cached_usd  of a prompt that it has read before; None where that costs as much
    output_usd  of an answer
    """

    model: str
    provider: str
    name: str
    input_usd: Decimal
    cached_usd: Decimal | None
    output_usd: Decimal
    source: str
    as_of: str

    def usd(
        self,
        prompt_tokens: Decimal,
        answer_tokens: Decimal,
        cached_share: Decimal,
    ) -> Decimal:
        """Return what tokens cost, USD, when a share of the prompts was read before.

        (prompts * ((1 - share) * input + share * cached) + answers * output) / 10^6
        """
        cached_usd = (
            self.input_usd if self.cached_usd is None else self.cached_usd
        )
        prompt_usd = (
            1 - cached_share
        ) * self.input_usd + cached_share * cached_usd
        total = prompt_tokens * prompt_usd + answer_tokens * self.output_usd
        return (total / TOKENS_PER_MILLION).quantize(CENT)


class HostedTokens(Struct, frozen=True):
    """The tokens of a period at a service, USD."""

    price: HostedPrice
    usd: Decimal


def cheapest_hosted(
    model: str,
    prompt_tokens: Decimal,
    answer_tokens: Decimal,
    cached_share: Decimal,
    most: int = NAMED_SERVICES,
) -> tuple[HostedTokens, ...]:
    """Return what the tokens cost at the cheapest services that have a model, by their cost."""
    costs = (
        HostedTokens(
            price, price.usd(prompt_tokens, answer_tokens, cached_share)
        )
        for price in hosted_prices()
        if price.model == model
    )
    ranked = sorted(costs, key=lambda cost: (cost.usd, cost.price.provider))
    return tuple(ranked[:most])


@cache
def hosted_prices() -> tuple[HostedPrice, ...]:
    """Return the prices of all services."""
    return tuple(_read_prices())


def _read_prices() -> Iterator[HostedPrice]:
    columns: table.Columns = {
        "model": table.nonempty_text,
        "provider": table.nonempty_text,
        "name": table.nonempty_text,
        "input_usd": table.usd_price,
        "cached_usd": table.optional(table.usd_price),
        "output_usd": table.usd_price,
        **table.SOURCE_COLUMNS,
    }
    for row in table.load_rows("planner.market", "hosted.csv", columns):
        yield HostedPrice(
            model=row["model"],
            provider=row["provider"],
            name=row["name"],
            input_usd=row["input_usd"],
            cached_usd=row["cached_usd"],
            output_usd=row["output_usd"],
            source=row["source"],
            as_of=row["as_of"],
        )
