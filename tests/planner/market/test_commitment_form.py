"""Forms of commitments: each committed price has one, and pages and documents name it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from planner.facts.commitment import commitment_forms, forms_of_sources
from planner.market.offer import Offer
from planner.market.term import TERM_OF, TERMS
from planner.plan.commitment import commitments_of
from planner.render import text
from planner.render.explain import reasons_page
from planner.render.plan import plan_page
from tests.conftest import chat, only
from tests.stacks.engine.test_simulated import plan_of

# Of these AWS sells no reserved instances: public readers of its price list have none.
NO_RESERVED_INSTANCES = ("g6f", "g7", "g7e", "p5e", "p5en", "p6-b200")
HOURS_OF_YEAR = 8760
# Prices of vantage are rounded to this.
PRICE_STEP = Decimal("0.000001")
RATE_STEP = Decimal("0.0001")


def committed(catalog: Any) -> list[Offer]:
    return [offer for offer in catalog.offers if offer.purchase in TERM_OF]


def test_every_committed_price_has_the_form_of_its_source(catalog: Any) -> None:
    """Others have none: a machine on demand is no commitment."""
    for offer in catalog.offers:
        if offer.purchase in TERM_OF:
            assert offer.form == forms_of_sources()[offer.source], offer.key
            assert (offer.provider, offer.form) in commitment_forms(), offer.key
        else:
            assert not offer.form, offer.key


def test_a_type_without_reserved_instances_is_committed_to_by_a_savings_plan(
    catalog: Any,
) -> None:
    """No price of a source of the one form stands at a type that only has the other."""
    found = {
        offer.form
        for offer in committed(catalog)
        if offer.provider == "aws"
        and offer.instance.family in NO_RESERVED_INSTANCES
    }
    assert found == {"savings_plan"}


def test_what_is_paid_earlier_costs_less(catalog: Any) -> None:
    """Of one form, place and length: at once < in part < by the month < on demand."""
    order = ("at_once", "in_part", "monthly")
    chains: dict[Any, dict[str, Decimal]] = {}
    for offer in committed(catalog):
        term = TERM_OF[offer.purchase]
        chains.setdefault((*offer.key[:3], offer.form, term.months), {})[
            term.payment
        ] = offer.usd_hour
    assert sum(len(prices) == len(order) for prices in chains.values()) > 1000
    for key, prices in chains.items():
        usd = [prices[name] for name in order if name in prices]
        on_demand = catalog.offers_by_place[key[:3]].get("on_demand")
        assert usd == sorted(set(usd)), key
        assert on_demand is None or usd[-1] < on_demand.usd_hour, key


def is_split(offer: Offer, share: Decimal) -> bool:
    """Whether a price is a whole payment of about a share of its term, and a round rate."""
    hours = HOURS_OF_YEAR * TERM_OF[offer.purchase].months // 12
    rate = (offer.usd_hour * (1 - share)).quantize(RATE_STEP)
    for steps in range(-5, 6):
        paid = (offer.usd_hour - rate - steps * RATE_STEP) * hours
        if abs(paid - round(paid)) <= PRICE_STEP * hours * Decimal("0.55"):
            return True
    return False


def test_a_part_at_the_start_is_half(catalog: Any) -> None:
    """AWS asks for whole dollars at the start: of halves, prices are made so, of others not."""
    offers = [
        offer
        for offer in committed(catalog)
        if offer.purchase == "reserved_1y_partial"
        and offer.usd_hour < Decimal("1.5")
    ]
    assert len(offers) > 100
    fits = {
        share: sum(is_split(offer, share) for offer in offers)
        for share in map(Decimal, ("0.3", "0.4", "0.45", "0.5", "0.55", "0.6"))
    }
    half = fits.pop(Decimal("0.5"))
    assert half > 3 * max(fits.values()), (half, fits)
    parts = {
        facts.part_at_start
        for facts in commitment_forms().values()
        if facts.in_part
    }
    assert parts == {Decimal("0.5")}


@pytest.mark.parametrize(
    ("machine", "region", "form"),
    [
        ("g6e.2xlarge", "us-west-2", "reserved instance"),
        ("g7e.2xlarge", "us-west-2", "savings plan"),
    ],
)
def test_a_plan_names_the_form(
    catalog: Any, machine: str, region: str, form: str
) -> None:
    """In its lines, its document, its reasons, and where somebody has to buy it."""
    offers = only(
        catalog,
        lambda offer: (
            (offer.instance.instance_type, offer.region) == (machine, region)
        ),
    )
    plan = plan_of(
        offers,
        chat(
            traffic="peak_rps: 2",
            extra="buy: {commit: [1y], spot: never}\nwhere: {clouds: [aws]}",
        ),
    )
    word = form.replace(" ", "_")
    [part] = plan.solution.pools[0].purchases
    assert part.form == word
    assert {option.form for option in plan.cost.commitments} == {word}
    assert [bought.form for bought in commitments_of(plan)] == [form]
    [bought] = commitments_of(plan)
    assert "'No Upfront'" in bought.command
    sentence = commitment_forms()["aws", word].sentence
    for shown in (
        plan_page(plan, today="2026-11-28", full=True),
        reasons_page(plan),
    ):
        assert sentence in " ".join(text.render(shown).split())


def test_words_of_terms_and_ways_to_buy_are_one_each() -> None:
    """A term that two words name would be bought twice."""
    assert len({term.word for term in TERMS}) == len(TERMS)
    assert len({term.purchase for term in TERMS}) == len(TERMS)
