"""Prices of AWS's reserved instances, from entries of its list of prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from planner.market.price_update import asked_form
from planner.market.term import TERMS
from providers.aws import term_price
from providers.live.term_price import TermPriceModule
from tests.providers.aws.conftest import Stubbed
from tests.providers.aws.test_market import asked
from tests.providers.shapes import Document, answer_of

AWS: TermPriceModule = term_price
PLACE = ("aws", "g6.xlarge", "us-east-1")
MICRO_USD = Decimal("0.000001")


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(term_price)
    return answer


def listed(stubbed: Stubbed, *entries: Document) -> dict[str, Decimal]:
    """What is read of some entries of a machine type."""
    answer = {**answer_of("aws/GetProducts", "empty"), "PriceList": entries}
    stubbed(("GetProducts", asked("g6.xlarge"), answer))
    prices = AWS.committed_prices("us-east-1", ["g6.xlarge"])
    assert prices.keys() <= {"g6.xlarge"}
    return prices.get("g6.xlarge", {})


def entry() -> Document:
    """An entry with each term, standard, and one that may be exchanged."""
    [found] = answer_of("aws/GetProducts")["PriceList"]
    return dict(found)


def term_of(found: Document, payment: str) -> Any:
    """The standard term of a year of an entry, as it stands there."""
    [one] = [
        each
        for each in found["terms"]["Reserved"].values()
        if each["termAttributes"]
        == {
            "LeaseContractLength": "1yr",
            "OfferingClass": "standard",
            "PurchaseOption": payment,
        }
    ]
    return one


def test_a_list_has_the_prices_that_others_read_of_it(
    catalog: Any, stubbed: Stubbed
) -> None:
    """Another project read the same list a year before, and spread what is due at the start."""
    prices = listed(stubbed, entry())
    here = catalog.offers_by_place[PLACE]
    assert prices.keys() == {
        term.purchase for term in TERMS if term.purchase in here
    }
    assert len(prices) == 6
    for purchase, usd in prices.items():
        assert abs(usd - here[purchase].usd_hour) <= MICRO_USD, purchase


def test_of_several_products_the_cheapest_counts(stubbed: Stubbed) -> None:
    dear = entry()
    for dimension in term_of(dear, "No Upfront")["priceDimensions"].values():
        dimension["pricePerUnit"]["USD"] = "9"
    for entries in ((dear, entry()), (entry(), dear)):
        assert listed(stubbed, *entries)["reserved_1y"] == Decimal("0.52392")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found["termAttributes"].update(OfferingClass="gold"),
        lambda found: found["termAttributes"].update(PurchaseOption="Some Day"),
        lambda found: found["termAttributes"].pop("PurchaseOption"),
        lambda found: found["termAttributes"].update(LeaseContractLength="2yr"),
        lambda found: found.pop("termAttributes"),
        *(
            lambda found, usd=usd: [
                dimension["pricePerUnit"].update(USD=usd)
                for dimension in found["priceDimensions"].values()
            ]
            for usd in ("NaN", "-1", "Infinity", "free", "0.0000000000")
        ),
        lambda found: [
            dimension.update(pricePerUnit={"CNY": "1"})
            for dimension in found["priceDimensions"].values()
        ],
        lambda found: [
            dimension.update(unit="GB-Mo")
            for dimension in found["priceDimensions"].values()
        ],
    ],
)
def test_a_term_that_cannot_be_read_is_left_out(
    stubbed: Stubbed, spoil: Any
) -> None:
    """The others of the entry stay as they are."""
    found = entry()
    spoil(term_of(found, "Partial Upfront"))
    prices = listed(stubbed, found)
    assert "reserved_1y_partial" not in prices
    assert len(prices) == 5


@pytest.mark.parametrize("case", ["empty", "local_zone", "quantity"])
def test_a_list_without_terms_has_none(stubbed: Stubbed, case: str) -> None:
    assert (
        listed(stubbed, *answer_of("aws/GetProducts", case)["PriceList"]) == {}
    )


def test_the_cloud_that_is_asked_is_this_one() -> None:
    """A catalog asks for the form that this module answers."""
    assert asked_form("aws") == term_price.FORM
    assert not asked_form("gcp")
    assert not asked_form("azure")
