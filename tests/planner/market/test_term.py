"""Terms of commitments: what is due at once, and when one pays."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from planner.market.term import TERMS, Term
from planner.plan.commitment import commitments_of
from planner.render import text
from planner.render.plan import plan_page
from tests.conftest import TODAY, chat, only
from tests.stacks.engine.test_simulated import plan_of

HOURS_OF_YEAR = 8760
# One with each way to pay, and the one with a price for five years.
PLACES = {
    "aws": ("g6e.2xlarge", "us-west-2"),
    "azure": ("Standard_ND96isr_H100_v5", "eastus2"),
}
KNOWN = [("aws", term) for term in TERMS if term.word != "5y"] + [
    ("azure", term) for term in TERMS if term.payment == "monthly"
]
# A part at the start is half of a term on AWS.
START_SHARES = {"at_once": Decimal(1), "in_part": Decimal("0.5")}


def plan(catalog: Any, cloud: str, commit: str) -> Any:
    offers = only(
        catalog,
        lambda offer: (
            (offer.instance.instance_type, offer.region) == PLACES[cloud]
        ),
    )
    return plan_of(
        offers,
        chat(
            traffic="peak_rps: 2",
            extra=f"buy: {{commit: {commit}, spot: never}}\nwhere: {{clouds: [{cloud}]}}",
        ),
    )


@pytest.mark.parametrize(("cloud", "term"), KNOWN)
def test_a_term_that_is_paid_before_says_what_is_due(
    catalog: Any, cloud: str, term: Term
) -> None:
    """A bill has the share of a month; others are due month by month, and nothing at the start."""
    found = plan(catalog, cloud, f"[{term.word}]")
    [pool] = found.solution.pools
    [part] = pool.purchases
    assert (part.purchase, part.term) == (term.purchase, term.word)
    hours = HOURS_OF_YEAR * term.months // 12
    share = START_SHARES.get(term.payment)
    due = part.nodes * part.usd_per_hour * hours * (share or 0)
    assert part.paid_at_start_usd == (
        due.quantize(Decimal("0.01")) if share else None
    )
    [bought] = commitments_of(found)
    assert bought.term == term.name
    # Whoever ends it earlier owes it all.
    assert bought.owed_usd == part.nodes * part.usd_per_hour * hours
    owed = f"{float(bought.owed_usd):,.0f}"
    page = " ".join(text.render(plan_page(found, today=TODAY)).split())
    assert f"for {term.name}" in page
    assert f"${owed} are owed" in page


@pytest.mark.parametrize(("cloud", "term"), KNOWN)
def test_a_machine_pays_its_commitment_from_some_hours_on(
    catalog: Any, cloud: str, term: Term
) -> None:
    """At these hours of a month it costs as much on demand as committed."""
    found = plan(catalog, cloud, "none")
    [option] = [
        option
        for option in found.cost.commitments
        if option.purchase == term.purchase
    ]
    usd_hour = found.solution.pools[0].purchases[0].usd_per_hour
    committed_usd = option.committed_usd / option.nodes / term.months
    assert Decimal(option.pays_above_hours) * usd_hour == pytest.approx(
        committed_usd, rel=Decimal("1e-3")
    )


def test_more_to_choose_from_never_costs_more(catalog: Any) -> None:
    """Each way that is allowed beside others leaves the plan as cheap as it was."""
    words = ["none", *(term.word for term in TERMS)]
    for cloud in PLACES:
        totals = [
            plan(catalog, cloud, f"[{', '.join(words[:count])}]").cost.total
            for count in range(1, len(words) + 1)
        ]
        assert totals == sorted(totals, reverse=True)
