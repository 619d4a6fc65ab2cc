"""Services that sell a model by the token: what the tokens of a plan cost there."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.facts.llm import models, unsized_models
from planner.market.hosted import HostedPrice, cheapest_hosted, hosted_prices
from tests.conftest import chat, present
from tests.stacks.engine.test_simulated import plan_of

MODEL = "llama-3.1-8b"
TOKENS = st.decimals("0", "1e12", places=0)
SHARE = st.decimals("0", "1", places=2)


def test_every_price_is_of_a_model_that_is_known() -> None:
    known = models().keys() | unsized_models().keys()
    assert {price.model for price in hosted_prices()} <= known
    found = Counter((price.model, price.provider) for price in hosted_prices())
    assert max(found.values()) == 1
    assert all(
        price.cached_usd is None or price.cached_usd < price.input_usd
        for price in hosted_prices()
    )


def test_tokens_cost_what_the_price_list_says() -> None:
    """A million of each, and half of the prompts read before: by hand."""
    price = HostedPrice(
        model=MODEL,
        provider="Somebody",
        name="x",
        input_usd=Decimal("0.30"),
        cached_usd=Decimal("0.10"),
        output_usd=Decimal("0.60"),
        source="a page",
        as_of="2026-11",
    )
    million = Decimal(10**6)
    assert price.usd(million, million, Decimal(0)) == Decimal("0.90")
    assert price.usd(million, million, Decimal("0.5")) == Decimal("0.80")
    assert price.usd(2 * million, Decimal(0), Decimal(1)) == Decimal("0.20")


@given(TOKENS, TOKENS, SHARE)
def test_the_cheapest_come_first(
    prompts: Decimal, answers: Decimal, share: Decimal
) -> None:
    costs = cheapest_hosted(MODEL, prompts, answers, share, 99)
    assert [cost.usd for cost in costs] == sorted(cost.usd for cost in costs)
    assert cheapest_hosted(MODEL, prompts, answers, share, 2) == costs[:2]
    assert (
        cheapest_hosted("a-model-of-nobody", prompts, answers, share, 9) == ()
    )


@pytest.mark.parametrize("prefix", ["", "  prefix_hit: 80%\n"])
def test_a_plan_says_what_its_tokens_cost_elsewhere(
    catalog, prefix: str
) -> None:
    plan = plan_of(catalog, chat(traffic=f"peak_rps: 2\n{prefix}".rstrip()))
    tokens = present(plan.cost.tokens)
    for cost in plan.cost.hosted:
        read = float(cost.input_usd)
        if prefix:
            cached = cost.cached_usd or cost.input_usd
            read = 0.2 * read + 0.8 * float(cached)
        assert float(cost.usd) == pytest.approx(
            (
                float(tokens.prompt_tokens) * read
                + float(tokens.output_tokens) * float(cost.output_usd)
            )
            / 1e6,
            rel=1e-3,
        )
    assert len(plan.cost.hosted) > 0
