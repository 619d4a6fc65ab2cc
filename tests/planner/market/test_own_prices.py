"""Prices of one's own: lines follow from list prices, and what comes on top from their sum."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.market.own_prices import read_own_prices
from tests.conftest import ROOT, chat, find, present
from tests.planner.cli.conftest import Command
from tests.planner.market.test_mix_committed import few, text_of

CENT = Decimal("0.01")
KINDS = ["chat-8b", "summarize-batch", "lora-8b", "workspace-one-gpu"]


def blueprint(name: str) -> str:
    return (ROOT / "blueprints" / f"{name}.yaml").read_text()


def at(catalog: Any, text: str) -> Any:
    return read_own_prices(text.encode(), "prices.yaml").applied(catalog)


def test_a_discount_is_taken_off_each_machine_that_matches(catalog) -> None:
    cheaper = at(
        catalog,
        "rates: [{cloud: aws, type: g6.xlarge, region: us-*, usd_hour: 0.5}]\n"
        'discounts: [{cloud: aws, type: "g6*", percent: 12%}, {cloud: aws, percent: 50%}]\n'
        "services: 10%\n",
    )
    for before, after in zip(catalog.offers, cheaper.offers, strict=True):
        name = before.instance.instance_type
        if before.provider != "aws" or before.purchase != "on_demand":
            assert after == before
        elif name == "g6.xlarge" and before.region.startswith("us-"):
            assert (after.usd_hour, after.source) == (
                Decimal("0.5"),
                "prices.yaml:1",
            )
        else:
            off = Decimal("0.12" if name.startswith("g6") else "0.5")
            assert after.usd_hour == before.usd_hour * (1 - off)
            assert f"% off {before.source}" in after.source
    for key, prices in catalog.price_book.prices.items():
        for before, after in zip(
            prices, cheaper.price_book.prices[key], strict=True
        ):
            assert after.usd == before.usd * Decimal("0.9")


@pytest.mark.parametrize("name", KINDS)
def test_what_comes_on_top_follows_from_the_lines(catalog, name: str) -> None:
    """The same fleet is the cheapest: both are shares of a whole bill."""
    text = blueprint(name)
    plain = find(catalog, text, keep=0)
    taxed = find(at(catalog, "support: 3%\ntax: 19%\n"), text, keep=0)
    assert [pool.purchases for pool in taxed.pools] == [
        pool.purchases for pool in plain.pools
    ]
    *lines, support, tax = present(taxed.bill).lines
    assert lines == list(present(plain.bill).lines)
    before = present(plain.bill).total

    def share(percent: int, usd: Decimal) -> Decimal:
        return (usd * percent / 100).quantize(CENT, ROUND_HALF_UP)

    assert support.usd == share(3, before)
    assert tax.usd == share(19, before + share(3, before))
    assert present(taxed.bill).total == before + support.usd + tax.usd


@pytest.mark.parametrize("name", KINDS)
def test_a_discount_never_costs_more(catalog, name: str) -> None:
    text = blueprint(name)
    costs = [
        present(find(offered, text, keep=0).bill).total
        for offered in (
            catalog,
            at(catalog, "discounts: [{cloud: gcp, percent: 5%}]"),
            at(
                catalog,
                "discounts: [{cloud: gcp, percent: 5%}, {cloud: aws, percent: 40%}]",
            ),
        )
    ]
    assert costs == sorted(costs, reverse=True)


def test_a_plan_is_made_and_applied_at_ones_own_prices(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none]"))
    (here / "prices.yaml").write_text(
        "discounts: [{cloud: aws, percent: 30%}]\ntax: 19%\ncredits: 100/month\n"
    )
    plain = json.loads(tonnage("plan", "s.yaml", "-f", "json")[1])
    flags = ("--prices", "prices.yaml")
    assert tonnage("plan", "s.yaml", *flags, "-o", "p.json")[0] == 0
    plan = json.loads((here / "p.json").read_text())
    assert Decimal(plan["cost"]["total"]) < Decimal(plain["cost"]["total"])
    assert plan["cost"]["credits_usd"] == "100"
    assert {"private discounts", "tax"} <= set(plain["cost"]["excludes"])
    assert plan["cost"]["excludes"] == [
        "support plans",
        "transfers to other networks and regions",
    ]
    page = tonnage("plan", "s.yaml", *flags)[1]
    assert "credits pay $100 of it" in page
    assert tonnage("apply", "p.json", "--simulate", "--yes")[0] == 0
    # Whoever changes the prices has another plan.
    (here / "prices.yaml").write_text("tax: 7%\n")
    code, _, told = tonnage("apply", "p.json", "--simulate", "--yes")
    assert code == 11
    assert "prices.yaml has changed" in told


def test_a_budget_is_held_against_the_whole_bill(catalog) -> None:
    catalog = few(catalog, "g6e.xlarge", "us-east-1")
    text = text_of("aws", "[none]")
    total = present(find(catalog, text, keep=0).bill).total
    tight = text.replace("commit: [none]", f"commit: [none], budget: {total}")
    assert find(catalog, tight, keep=0).pools
    assert not find(at(catalog, "tax: 19%\n"), tight, keep=0).pools


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("discounts: [{cloud: aws}]", "percent is missing"),
        ("discounts: [{cloud: aws, percent: 100%}]", "too large"),
        ("rates: [{cloud: aws, type: x, usd_hour: 0}]", "too small"),
        ("rates: [{cloud: aws, type: x, usd_hour: -1}]", "cannot be read"),
        ("rates: [{cloud: aws, type: x, usd_hour: 1e12}]", "cannot be read"),
        ("taxes: 3%", "tax"),
        ("tax: NaN", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        read_own_prices(text.encode(), "prices.yaml")


def test_a_tax_changes_no_month_in_which_a_commitment_pays(catalog) -> None:
    catalog = few(catalog, "g6e.xlarge", "us-east-1")
    text = text_of("aws", "[none]")
    plain = find(catalog, text, keep=0).commitments
    taxed = find(at(catalog, "tax: 20%\n"), text, keep=0).commitments
    assert plain
    for before, after in zip(plain, taxed, strict=True):
        assert after.pays_after_months == pytest.approx(
            before.pays_after_months, rel=1e-4
        )
        assert abs(after.saved_usd - before.saved_usd * Decimal("1.2")) < 1
        for mine, its in zip(before.regrets, after.regrets, strict=True):
            assert abs(its.usd - mine.usd * Decimal("1.2")) < 40


def test_what_was_seen_of_a_price_is_discounted_with_it(catalog) -> None:
    half = at(
        catalog, "discounts: [{cloud: aws, purchase: spot, percent: 50%}]"
    )
    for before, after in zip(catalog.offers, half.offers, strict=True):
        if (before.provider, before.purchase) != ("aws", "spot"):
            continue
        if before.price_range is not None:
            seen = present(after.price_range)
            assert seen.low_usd * 2 == before.price_range.low_usd
        if before.old_price is not None:
            assert (
                present(after.old_price).usd_hour * 2
                == before.old_price.usd_hour
            )


def test_an_explanation_is_of_the_prices_of_its_plan(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none]"))
    (here / "prices.yaml").write_text("tax: 19%\n")
    flags = ("--prices", "prices.yaml")
    assert tonnage("plan", "s.yaml", *flags, "-o", "p.json")[0] == 0
    asked = ("explain", "p.json", "--traffic", "1x")
    code, page, _ = tonnage(*asked)
    assert code == 0
    assert "no change" in page or "$0" in page or "+" not in page
    assert tonnage(*asked, *flags)[0] == 2
    (here / "prices.yaml").write_text("tax: 7%\n")
    code, _, told = tonnage(*asked)
    assert (code, "prices.yaml has changed" in told) == (11, True)
    code, page, _ = tonnage("diff", "s.yaml", "s.yaml", *flags)
    assert code == 0


def test_who_has_no_file_yet_is_told_where_its_keys_are(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none]"))
    (here / "empty.yaml").write_text("")
    for flag, name in (("--prices", "prices"), ("--budgets", "budgets")):
        for path, code in (("empty.yaml", 2), ("none.yaml", 6)):
            found, _, told = tonnage("plan", "s.yaml", flag, path)
            assert (found, f"tonnage schema {name}" in told) == (code, True)


def test_a_price_of_no_machine_is_said(tonnage: Command, here: Path) -> None:
    """Of a misspelt type the price on the list is in force: no bill should say so first."""
    (here / "spec.yaml").write_text(chat())
    (here / "prices.yaml").write_text(
        "rates:\n"
        "- {cloud: aws, type: p5.48xlrage, usd_hour: 20}\n"
        "- {cloud: aws, type: p5.48xlarge, usd_hour: 20}\n"
        "discounts: [{cloud: aws, type: p5.48xlarge, region: nowhere, percent: 5%}]\n"
    )
    code, page, _ = tonnage("plan", "spec.yaml", "--prices", "prices.yaml")
    assert code == 0
    told = " ".join(page.split())
    assert (
        "! prices.yaml:2:3 (did you mean 'p5.48xlarge'?), prices.yaml:4:13: "
        "of no machine of the catalog"
    ) in told
    assert "prices.yaml:3" not in page


def test_an_unknown_key_is_named_as_the_file_has_it(
    tonnage: Command, here: Path
) -> None:
    (here / "spec.yaml").write_text(chat())
    (here / "prices.yaml").write_text("rates:\n- {clout: aws}\n")
    code, _, told = tonnage("plan", "spec.yaml", "--prices", "prices.yaml")
    assert code == 2
    assert "unknown key 'rates[0].clout'" in told
    (here / "prices.yaml").write_text("- 1\n")
    _, _, told = tonnage("plan", "spec.yaml", "--prices", "prices.yaml")
    assert "prices takes keys and values" in told


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (
            "type: 'p5.*', usd_hour: 20",
            "'p5.*' is of machines that are not alike: p5.4xlarge has 1 x h100-sxm, and "
            "p5.48xlarge has 8 x h100-sxm",
        ),
        ("type: 'g6e.?xlarge', usd_hour: 2, region: us-east-1", " costs "),
        ("type: 'p5.*', usd_hour: 9, purchase: spot", "p5.48xlarge has 8 x"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "explain"])
def test_a_rate_of_machines_that_are_not_alike_is_refused(
    tonnage: Command, here: Path, command: str, row: str, cause: str
) -> None:
    """One price would be that of eight accelerators and of one."""
    (here / "s.yaml").write_text(chat())
    (here / "p.yaml").write_text(
        "rates:\n"
        "  - {cloud: aws, type: g6.xlarge, usd_hour: 0.5}\n"
        f"  - {{cloud: aws, {row}}}\n"
    )
    code, _, told = tonnage(command, "s.yaml", "--prices", "p.yaml")
    assert code == 2
    assert "p.yaml:3:5  error[rate]" in told
    assert cause in " ".join(told.split())
    assert "give each machine type a rate of its own" in " ".join(told.split())
    assert "p.yaml:2" not in told


def test_a_rate_may_be_of_many_regions_and_of_what_earlier_rows_leave(
    catalog,
) -> None:
    """The first row that matches counts: the second one is of the large machine alone."""
    priced = at(
        catalog,
        "rates:\n"
        "- {cloud: aws, type: p5.4xlarge, region: '*', usd_hour: 5}\n"
        "- {cloud: aws, type: 'p5.*', region: 'us-*', usd_hour: 40}\n",
    )
    prices = {
        (offer.instance.instance_type, offer.usd_hour)
        for offer in priced.offers
        if offer.instance.instance_type.startswith("p5.")
        and offer.purchase == "on_demand"
        and offer.region.startswith("us-")
    }
    assert prices == {("p5.4xlarge", 5), ("p5.48xlarge", 40)}


def test_a_discount_may_be_of_machines_of_any_size(catalog) -> None:
    cheaper = at(
        catalog, "discounts: [{cloud: aws, type: 'p5.*', percent: 9%}]"
    )
    sizes = {
        after.instance.accelerators
        for before, after in zip(catalog.offers, cheaper.offers, strict=True)
        if after.usd_hour < before.usd_hour
    }
    assert sizes == {1, 8}
