"""Rows of a table of prices, and answers of clouds, for tests."""

from __future__ import annotations

from decimal import Decimal

from planner.market.live import NO_ZONE, SpotPriceAnswer
from planner.market.price_row import PriceRow
from planner.market.price_update import AnsweredQuestion, PriceQuestion

NOW = "2026-11-22T06:00:00Z"


def price_row(
    usd_hour: str,
    purchase: str = "on_demand",
    region: str = "us-east-1",
    instance_type: str = "p5.48xlarge",
    provider: str = "aws",
) -> PriceRow:
    """A row as a project of 2026-07 observed it."""
    return PriceRow(
        provider=provider,
        instance_type=instance_type,
        region=region,
        purchase=purchase,
        scope="machine",
        usd_hour=usd_hour,
        basis="observed",
        usd_min="",
        usd_max="",
        as_of="2026-07-20",
        source="karp-aws",
        confidence="high",
    )


def answered(
    prices: dict[str, str] | None,
    purchase: str = "on_demand",
    region: str = "us-east-1",
    machine_types: tuple[str, ...] = ("p5.48xlarge",),
    cloud: str = "aws",
) -> AnsweredQuestion:
    """A question with prices of the whole region as its answer; None for no answer."""
    return AnsweredQuestion(
        PriceQuestion(cloud, region, purchase, machine_types),
        SpotPriceAnswer(
            state="unknown" if prices is None else "value",
            value=None
            if prices is None
            else {
                name: {NO_ZONE: Decimal(usd)} for name, usd in prices.items()
            },
            reason="busy" if prices is None else "",
            as_of=NOW,
            request=purchase,
        ),
    )
