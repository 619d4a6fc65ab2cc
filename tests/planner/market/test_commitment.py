"""Commitments of an account are machines that are paid for, as far as nobody else uses them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.market.commitment import free_machines
from planner.market.live import (
    CommitmentAnswer,
    CommitmentFact,
    LiveFacts,
    PlaceFacts,
    UsedAnswer,
)
from planner.market.live_catalog import with_live
from planner.market.offer import Catalog
from planner.market.owned import counts_commitments
from planner.units import HOURS_PER_MONTH
from providers.live.commitment import filled_in_order
from tests.conftest import find, present, spec_of
from tests.planner.market.test_live_catalog import NOW, silent
from tests.planner.market.test_mix_committed import few, text_of
from tests.planner.market.test_owned import (
    MACHINE,
    REGION,
    owned_text,
    total,
    with_owned,
)

KEY = ("aws", REGION, MACHINE, "on_demand")
RESERVED = CommitmentFact(
    id="ri-1",
    name="reserved instances",
    unit="machines",
    amount=Decimal(4),
    takes={MACHINE: Decimal(1)},
    usd_hour=Decimal("4.8"),
    term="reserved_1y",
)
PLAN = CommitmentFact(
    id="sp-1",
    name="savings plan",
    unit="usd_hour",
    amount=Decimal(10),
    takes={MACHINE: Decimal("1.5"), "p5.48xlarge": Decimal(30)},
    usd_hour=Decimal(10),
)


def place_with(*facts: CommitmentFact, **used: int | str) -> PlaceFacts:
    """A region with commitments, and what is used of each by its id without the dash."""
    return replace(
        silent(),
        commitments=CommitmentAnswer(
            state="value", as_of=NOW, request="commitments", value=facts
        ),
        commitment_use=UsedAnswer(
            state="value",
            as_of=NOW,
            request="use",
            value={
                f"{name[:2]}-{name[2:]}": Decimal(amount)
                for name, amount in used.items()
            },
        ),
    )


def counts(
    catalog: Catalog, place: PlaceFacts, standing: int = 0
) -> dict[str, int]:
    return {
        machines.source: machines.count
        for machines in free_machines(place, catalog, {KEY: standing})
        if machines.type == MACHINE
    }


@pytest.mark.parametrize(
    ("used", "standing", "free"),
    [
        (0, 0, 4),
        (1, 0, 3),
        (4, 0, 0),
        # Nine run: those of the stack itself come back to it, and no more than there are.
        (9, 0, 0),
        (3, 3, 4),
        (4, 3, 3),
        (6, 3, 1),
        (2, 9, 4),
    ],
)
def test_what_others_use_is_not_free(
    catalog, used: int, standing: int, free: int
) -> None:
    found = counts(catalog, place_with(RESERVED, ri1=used), standing)
    assert sum(found.values()) == free


@given(
    amounts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    others=st.integers(0, 40),
    standing=st.integers(0, 12),
)
def test_all_of_a_type_are_shared_as_if_they_were_one(
    catalog, amounts: list[int], others: int, standing: int
) -> None:
    """Whichever of them the cloud says is used: their sum is what others leave."""
    names = {f"ri-{number}": Decimal(n) for number, n in enumerate(amounts)}
    place = place_with(
        *(
            replace(RESERVED, id=name, amount=amount)
            for name, amount in names.items()
        )
    )
    use = filled_in_order(Decimal(others + standing), names)
    place = replace(
        place, commitment_use=replace(present(place.commitment_use), value=use)
    )
    free = sum(counts(catalog, place, standing).values())
    assert free == max(0, sum(amounts) - others)


def test_money_pays_for_whole_machines_of_each_type_that_it_has_a_rate_of(
    catalog,
) -> None:
    [small] = free_machines(place_with(PLAN, sp1="4"), catalog, {})
    assert (small.type, small.count) == (MACHINE, 4)
    assert small.usd_hour == Decimal("1.5")
    # Three of the stack itself run on it.
    assert counts(catalog, place_with(PLAN, sp1="4"), 3) == {
        "savings plan sp-1": 6
    }


@pytest.mark.parametrize(
    "place",
    [
        silent(),
        place_with(RESERVED),
        place_with(replace(RESERVED, zone="us-east-1a"), ri1=0),
        place_with(replace(RESERVED, takes={}), ri1=0),
        replace(place_with(RESERVED), commitment_use=None),
    ],
)
def test_what_nobody_knows_is_not_counted_on(
    catalog, place: PlaceFacts
) -> None:
    assert counts(catalog, place) == {}


def test_a_price_that_no_contract_says_is_that_of_the_term_today(
    catalog,
) -> None:
    [today] = [
        offer.usd_hour
        for offer in catalog.offers
        if offer.key == ("aws", MACHINE, REGION, "reserved_1y")
    ]
    place = place_with(replace(RESERVED, usd_hour=None), ri1=0)
    [machines] = free_machines(place, catalog, {})
    assert machines.usd_hour == today
    place = place_with(replace(RESERVED, usd_hour=None, term=""), ri1=0)
    [machines] = free_machines(place, catalog, {})
    assert machines.usd_month is None


def test_what_the_account_has_serves_as_a_file_of_it_does(catalog) -> None:
    """The same bill, and the same share unused; a file counts instead of the account."""
    catalog = few(catalog, MACHINE, REGION)
    place = place_with(RESERVED, ri1=1)
    live = with_live(catalog, LiveFacts(places=(place,)), {})
    text = text_of("aws", "[none]")
    solution = find(live, text)
    from_file = with_owned(catalog, owned_text(3))
    assert total(solution) == total(from_file)
    [use], [file_use] = solution.owned, from_file.owned
    assert use.used_share == file_use.used_share
    assert use.machines.usd_month == 3 * Decimal("1.2") * HOURS_PER_MONTH
    assert use.machines.source == "reserved instances ri-1"
    both = with_owned(live, owned_text(1))
    assert [each.machines.count for each in both.owned] == [1]


@pytest.mark.parametrize(
    "buy",
    [
        {"commit": ("1y",)},
        {"spot": "only"},
        {"reserve": True},
        {"flex_start": True},
        {"reservations": ("cr-1",)},
        {"owned": "owned.yaml"},
    ],
)
def test_what_no_file_may_be_beside_takes_no_commitment(
    buy: dict[str, Any],
) -> None:
    spec = spec_of(text_of("aws", "[none]"))
    assert counts_commitments(spec)
    assert not counts_commitments(replace(spec, buy=replace(spec.buy, **buy)))


def test_what_was_bought_for_something_else_is_not_told_as_unused(
    catalog,
) -> None:
    catalog = few(catalog, MACHINE, REGION)
    other = replace(RESERVED, takes={"p5.48xlarge": Decimal(1)})
    place = place_with(other, ri1=0)
    live = with_live(catalog, LiveFacts(places=(place,)), {})
    assert find(live, text_of("aws", "[none]")).owned == ()
