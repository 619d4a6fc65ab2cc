"""Asks clouds for the prices of machine types in many regions; answers come as they arrive."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from planner.facts.price_endpoint import price_endpoints
from planner.market.live import NO_ZONE, SpotPriceAnswer
from planner.market.price_update import COMMITTED, AnsweredQuestion
from providers.live.place import (
    LivePlace,
    LiveQuestion,
    arriving_answers,
    ask_callers,
    market_of,
    may_ask,
    unasked,
)
from providers.live.reach import open_region
from providers.live.small_cloud import public_prices
from providers.live.term_price import term_prices_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.market.price_update import PriceQuestion

# The public questions of `MarketModule`, by purchase.
REQUESTS: Final = {
    "on_demand": "on_demand_usd",
    "spot": "spot_usd",
    COMMITTED: "committed_usd",
}
# More questions of one account at a time are refused as too many.
AT_ONCE: Final = 8
# A cloud whose login hangs leaves the time to the others.
LOGIN_S: Final = 20.0


def ask_prices(
    questions: Sequence[PriceQuestion], deadline_s: float
) -> Iterator[AnsweredQuestion]:
    """Yield each question with what its cloud answers, in the order of the answers.

    Prices are by machine type and zone, those of commitments by way to buy. A cloud that nobody
    is signed in to tells public prices, and a small cloud its price list. What is not answered
    after `deadline_s` seconds is unknown.
    """
    start_s = time.monotonic()
    end_s = start_s + deadline_s
    callers = ask_callers(
        [
            LivePlace(cloud, open_region(cloud), ())
            for cloud in sorted({question.cloud for question in questions})
            if cloud not in price_endpoints()
        ],
        min(end_s, start_s + LOGIN_S),
    )
    allowed = []
    for question in questions:
        live = _live_question(question)
        caller = callers.get(question.cloud)
        if caller is None or may_ask(live, caller):
            allowed.append((question, live))
        else:
            refused: Any = unasked(live, caller)
            yield AnsweredQuestion(question, refused)
    arriving: Iterator[tuple[int, Any]] = arriving_answers(
        [live for _, live in allowed], end_s, AT_ONCE
    )
    for number, answer in arriving:
        yield AnsweredQuestion(allowed[number][0], answer)


def _live_question(question: PriceQuestion) -> LiveQuestion:
    return LiveQuestion(
        LivePlace(question.cloud, question.region, question.machine_types),
        REQUESTS[question.purchase],
        SpotPriceAnswer,
        partial(_prices, question),
    )


def _prices(question: PriceQuestion) -> dict[str, dict[str, Decimal]]:
    if question.cloud in price_endpoints():
        return _by_type(public_prices(question.cloud, question.machine_types))
    if question.purchase == COMMITTED:
        return term_prices_of(question.cloud).committed_prices(
            question.region, question.machine_types
        )
    market = market_of(question.cloud)
    if question.purchase == "spot":
        return market.spot_prices(question.region, question.machine_types)
    return _by_type(
        market.on_demand_prices(question.region, question.machine_types)
    )


def _by_type(prices: Mapping[str, Decimal]) -> dict[str, dict[str, Decimal]]:
    """Return prices that are the same in all zones, as those by zone are given."""
    return {name: {NO_ZONE: usd_hour} for name, usd_hour in prices.items()}
