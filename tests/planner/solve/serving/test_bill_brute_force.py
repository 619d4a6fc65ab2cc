"""Fleets that are bought in several ways over the hours of a week, against brute force.

What couples the numbers of a fleet is drawn: quotas, commitments, what is owned, a budget, and
reservations, which bound the machines of a type.
"""

from __future__ import annotations

import os
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.market.offer import QuotaNodes
from planner.market.term import TERM_OF
from planner.solve.serving import replica_capacity
from planner.solve.serving.requirement import serving_requirement
from planner.solve.settings import DEFAULT_CONFIDENCE, SolveSettings
from planner.spec.model import Inference
from planner.spec.reservation import zone_name
from planner.workload.solver import find
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, present, spec_of
from tests.oracles import brute_buying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Catalog, Offer

# `make brute-force` compares 5,000.
CASES: Final = int(os.environ.get("TONNAGE_BRUTE_CASES", "40"))
CASES_OF_A_TEST: Final = 10
# USD a month that nothing is looked for beyond: brute force counts machines up one by one, and
# where quotas leave only what hardly holds a request, thousands of machines are the cheapest.
DEAREST: Final = Decimal(20_000)
HALF_CENT: Final = Decimal("0.005")
MOST_ACCELERATORS: Final = 4
PLACES: Final = 5
BUDGETS: Final = (150, 400, 1_000, 3_000, 8_000)  # USD a month
RESERVATION_NAMES: Final = {
    "aws": "cr-0a1b2c3d4e5f60718",
    "gcp": "projects/our-project/reservations/held",
    "azure": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/ours/"
    "providers/Microsoft.Compute/capacityReservationGroups/held",
}
PROFILES: Final = ("flat", "business-hours", "diurnal", "hours", "days")
COMMITMENTS: Final = ("[none]", "[none, 1y]", "[none, 3y]", "[none, 1y, 3y]")
SCHEDULES: Final = ("", "shutdown: {schedule: 'weekdays 06:30-21:00 UTC'}")

Place = dict[str, "Offer"]


class Case(Struct, frozen=True):
    """A spec, what is sold to it, by machine type and region, and what is owned there.

    budget    USD a month, None without one
    reserved  machines of each place that are reserved; empty where all that is sold may be bought
    """

    text: str
    places: tuple[Place, ...]
    owned: dict[tuple[str, str, str], int]
    budget: int | None = None
    reserved: dict[tuple[str, str, str], int] = {}

    @property
    def owned_text(self) -> str:
        """The file beside the spec."""
        machines = ", ".join(
            f"{{cloud: {cloud}, region: {region}, type: {machine}, "
            f"count: {count}, usd_hour: 1}}"
            for (cloud, machine, region), count in self.owned.items()
        )
        return f"machines: [{machines}]\n"


def random_case(
    catalog: Catalog, seed: int, *, is_bounded: bool = True
) -> Case:
    """A few machine types at their places, and a spec that may buy them in several ways.

    `is_bounded` says whether a budget or reservations may be drawn too; all else is the same.
    """
    draw = random.Random(seed)
    places = draw.sample(
        [
            here
            for here in catalog.offers_by_place.values()
            if "on_demand" in here and _is_small(here["on_demand"])
        ],
        PLACES,
    )
    with_quotas = tuple(
        _with_quotas(place, _quotas(draw)) if draw.random() < 0.4 else place
        for place in places
    )
    owned = {
        place["on_demand"].key[:3]: draw.randint(1, 3)
        for place in draw.sample(places, draw.choice([0, 0, 1, 2]))
    }
    commit = draw.choice(COMMITMENTS)
    # Drawn by themselves, so that nothing else depends on them.
    further = random.Random(f"further {seed}")
    if not owned and random.Random(f"committed {seed}").random() < 0.2:
        commit = "[1y]"
    buy = [f"commit: {commit}"]
    if owned:
        buy.append("owned: owned.yaml")
    budget = further.choice((*[None] * 6, *BUDGETS)) if is_bounded else None
    reserved = {}
    # All machines of a reservation are taken from it alone, so what is owned excludes one.
    if is_bounded and not owned and further.random() < 0.4:
        reserved = _reserved(places, further)
        buy = [f"reservations: [{', '.join(_reservations(places, reserved))}]"]
    if budget is not None:
        buy.append(f"budget: {budget}/month")
    text = chat(
        model=draw.choice(["llama-3.1-8b", "gpt-oss-20b", "gemma-3-12b"]),
        sla=f"ttft_p95: {draw.choice([1500, 4000])}ms, "
        f"tpot_p95: {draw.choice([60, 120])}ms"
        + draw.choice(["", ", survives: node"]),
        traffic=f"peak_rps: {draw.choice([1, 4, 9, 20])}\n"
        f"  profile: {_profile(draw)}",
        extra=f"buy: {{{', '.join(buy)}}}\n{draw.choice(SCHEDULES)}",
    )
    return Case(text, with_quotas, owned, budget, reserved)


def _reserved(
    places: list[Place], draw: random.Random
) -> dict[tuple[str, str, str], int]:
    """A few machines at some of the places."""
    return {
        place["on_demand"].key[:3]: draw.randint(1, 4)
        for place in draw.sample(places, draw.randint(1, 3))
    }


def _reservations(
    places: list[Place], reserved: dict[tuple[str, str, str], int]
) -> Iterator[str]:
    """Each as a spec writes it."""
    for place in places:
        offer = place["on_demand"]
        count = reserved.get(offer.key[:3])
        if count is None:
            continue
        name = RESERVATION_NAMES[offer.provider]
        # A region without zones is the place itself.
        zone = next(
            (zone_name(offer.region, zone) for zone in offer.zones),
            offer.region,
        )
        machine = offer.instance.instance_type
        yield f"'{name}@{zone}:{count}x{machine}'"


def _is_small(offer: Offer) -> bool:
    instance = offer.instance
    return (
        instance.accelerators <= MOST_ACCELERATORS
        and bool(instance.chip.bandwidth_gb_s)
        and unsupported_reason(instance) is None
    )


def _profile(draw: random.Random) -> str:
    """A named one, or one of a few levels in a day or a week: clouds know only so many changes."""
    profile = draw.choice(PROFILES)
    levels, hours = {"hours": (6, 4), "days": (7, 24)}.get(profile, (0, 0))
    if not levels:
        return profile
    weights = [draw.randint(1, 20) / 20 for _ in range(levels)]
    return str([weight for weight in weights for _ in range(hours)])


def _quotas(draw: random.Random) -> tuple[QuotaNodes, ...]:
    """What an account may still have: always, and in hours of less load, where others need it."""
    at_peak = draw.randint(1, 6)
    free = [(1.0, at_peak)]
    if draw.random() < 0.5:
        free.append((draw.choice([0.2, 0.5]), draw.randint(1, at_peak)))
    return tuple(
        QuotaNodes(purchase="on_demand", nodes=nodes, quota="q", load=load)
        for load, nodes in free
    )


def _with_quotas(place: Place, quotas: tuple[QuotaNodes, ...]) -> Place:
    return {
        purchase: replace(offer, quotas=quotas)
        for purchase, offer in place.items()
    }


@pytest.fixture(autouse=True)
def exact_capacities(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine carries is found as closely as brute force sees it."""
    monkeypatch.setattr(replica_capacity, "CLOSE_SHARE", 1e-5)


@pytest.mark.parametrize("first", range(0, CASES, CASES_OF_A_TEST))
def test_brute_force_buys_no_cheaper(catalog: Catalog, first: int) -> None:
    for seed in range(first, first + CASES_OF_A_TEST):
        compare(random_case(catalog, seed), catalog, seed)


def test_brute_force_commits_to_what_quotas_leave(catalog: Catalog) -> None:
    """The cheapest commitment of all is more than others leave of a quota in calm hours."""
    seed = 520
    compare(random_case(catalog, seed, is_bounded=False), catalog, seed)


def test_brute_force_takes_what_is_owned_first(catalog: Catalog) -> None:
    """Formulas ask for more machines than are owned, and one more costs more than another type."""
    compare(random_case(catalog, seed=1753), catalog, seed=1753)


def test_brute_force_finds_the_larger_reservation(catalog: Catalog) -> None:
    """The cheapest region of a machine type has fewer reserved than a fleet takes."""
    compare(random_case(catalog, seed=853), catalog, seed=853)


def test_brute_force_lets_reserved_machines_follow_the_hours(
    catalog: Catalog,
) -> None:
    """A quota leaves fewer machines than are reserved, which it does not count."""
    compare(random_case(catalog, seed=4515), catalog, seed=4515)


def test_brute_force_leaves_owned_machines_to_spares_first(
    catalog: Catalog,
) -> None:
    """Of three that are owned one is spare, so a third one for the load is one to rent."""
    compare(random_case(catalog, seed=379), catalog, seed=379)


def _ceiling(case: Case, cost: Decimal | None) -> Decimal:
    """What nothing may cost more than, USD a month: a budget, or what was found."""
    most = DEAREST if case.budget is None else Decimal(case.budget)
    if cost is None:
        return most
    assert case.budget is None or cost <= case.budget
    return min(most, cost) + HALF_CENT


def compare(case: Case, catalog: Catalog, seed: int) -> None:
    """Machines cost the same to the cent, and where nothing is found there is nothing.

    Of those that cost more than `DEAREST` it is only told that nothing costs less than that.
    """
    spec = spec_of(case.text)
    assert isinstance(spec, Inference)
    small = replace(
        catalog,
        offers=tuple(
            offer for place in case.places for offer in place.values()
        ),
        # Other lines depend on the machine: without their prices machines decide.
        price_book=replace(catalog.price_book, prices={}),
    )
    solution = find(
        spec,
        SolveSettings(
            catalog=small,
            unbuilt_reason=unsupported_reason,
            read_file=lambda _: case.owned_text.encode(),
            alternative_count=0,
        ),
    )
    cost = None
    if solution.bill is not None:
        cost = sum(
            (
                present(line.usd)
                for line in solution.bill.lines
                if line.kind == MACHINE_KIND
            ),
            Decimal(0),
        )
    truth = brute_buying.least_usd(
        replace(
            serving_requirement(spec, lambda _: b""),
            confidence=DEFAULT_CONFIDENCE,
        ),
        case.places,
        [
            purchase
            for purchase, term in TERM_OF.items()
            if term.word in spec.buy.commit
        ],
        case.owned,
        _ceiling(case, cost),
        case.reserved or None,
        # A reservation is paid on demand.
        is_on_demand=bool(case.reserved) or "none" in spec.buy.commit,
    )
    if truth is None:
        assert cost is None or cost > DEAREST, seed
    else:
        assert cost is not None, seed
        assert abs(cost - truth) < HALF_CENT, seed
