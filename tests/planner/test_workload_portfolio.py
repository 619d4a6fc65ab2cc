"""Services that buy together: the cheapest base of their joint hours, and bills that sum to it."""

from __future__ import annotations

import random
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.cli.live import facts_text
from planner.cli.portfolio import minutes_ahead
from planner.cost.bill_line import MACHINE_KIND
from planner.market.live import (
    CommitmentAnswer,
    CommitmentFact,
    LiveFacts,
    UsedAnswer,
)
from planner.market.offer import Catalog
from planner.market.owned import OwnedMachines
from planner.workload.portfolio import Portfolio, divided, share
from planner.workload.sharing import (
    OwnedFile,
    SharingPool,
    SharingService,
    member_of,
)
from providers.live.place import LivePlace
from tests.conftest import chat, find, present, spec_of, untimed
from tests.planner.cli.conftest import Command
from tests.planner.cli.test_live import NOW, facts_of
from tests.planner.solve.serving.test_mixed_answer import repriced, two_types

PLACE = ("aws", "g6e.xlarge", "us-east-1")
ACCELERATOR = "l40s"
# Zones without summer time, and how far they are ahead of UTC.
ZONES = {"UTC": 0, "Asia/Tokyo": 9 * 60, "America/Phoenix": -7 * 60}
WEEK_MINUTES = 7 * 24 * 60
CASES = 60
CENT = Decimal("0.01")


def together_at(members: list[SharingService], catalog: Any) -> Portfolio:
    return share(members, catalog, partial(minutes_ahead, 2026))


def catalog_of(
    prices: dict[str, Decimal],
    factor: Decimal = Decimal(1),
    owned: tuple[OwnedMachines, ...] = (),
    places: tuple[tuple[str, str, str], ...] = (PLACE,),
) -> Any:
    here = {
        purchase: SimpleNamespace(usd_hour=usd)
        for purchase, usd in prices.items()
    }
    return SimpleNamespace(
        offers_by_place=dict.fromkeys(places, here),
        owned=owned,
        price_book=SimpleNamespace(surcharges=SimpleNamespace(factor=factor)),
    )


def member(
    name: str,
    hourly: tuple[int, ...],
    zone: str = "UTC",
    *,
    terms: tuple[str, ...] = ("reserved_1y", "reserved_3y"),
    owned: int = 0,
    may_share: bool = True,
    machines_usd: Decimal = Decimal(1000),
) -> SharingService:
    pool = SharingPool(
        place=PLACE,
        accelerator=ACCELERATOR,
        hourly_nodes=hourly,
        may_share=may_share,
        machines_usd=machines_usd,
    )
    return SharingService(
        name=name,
        pools=(pool,),
        schedule=f"daily 00:00-24:00 {zone}",
        terms=terms,
        counts_account=True,
        owned=OwnedFile(
            "owned.yaml",
            (
                OwnedMachines(
                    cloud="aws",
                    type="g6e.*",
                    region="*",
                    count=owned,
                    usd_hour=Decimal(1),
                ),
            ),
        )
        if owned
        else None,
        total_usd=machines_usd + 100,
    )


def joint_minutes(hourly: list[tuple[tuple[int, ...], str]]) -> list[int]:
    """Machines of each minute of a week in UTC, added up by hand."""
    return [
        sum(
            nodes[(minute + ZONES[zone]) % WEEK_MINUTES // 60]
            for nodes, zone in hourly
        )
        for minute in range(WEEK_MINUTES)
    ]


def cheapest_base(
    minutes: list[int], prices: dict[str, Decimal], owned: int
) -> Decimal:
    """Every number of committed machines in turn, and every term."""
    month = Decimal(730)
    costs = []
    for term in ("reserved_1y", "reserved_3y"):
        for committed in range(max(minutes) + 1):
            above = sum(max(0, nodes - owned - committed) for nodes in minutes)
            costs.append(
                committed * month * prices[term]
                + above * month / WEEK_MINUTES * prices["on_demand"]
            )
    return min(costs)


@pytest.mark.parametrize("seed", range(CASES))
def test_no_other_base_is_cheaper(seed: int) -> None:
    draw = random.Random(seed)
    prices = {
        "on_demand": Decimal(draw.randint(100, 900)) / 100,
        "reserved_1y": Decimal(draw.randint(50, 700)) / 100,
        "reserved_3y": Decimal(draw.randint(30, 600)) / 100,
    }
    owned = draw.choice((0, 0, 1, 3))
    hourly = [
        (
            tuple(
                draw.choice((0, 1, 2, 4)) if draw.random() < 0.6 else 0
                for _ in range(168)
            ),
            draw.choice(tuple(ZONES)),
        )
        for _ in range(draw.randint(2, 3))
    ]
    portfolio = together_at(
        [
            member(f"m{number}", nodes, zone, owned=owned)
            for number, (nodes, zone) in enumerate(hourly)
        ],
        catalog_of(prices),
    )
    minutes = joint_minutes(hourly)
    [place] = portfolio.places
    assert place.peak_nodes == max(minutes)
    above_base = max(minutes) - place.owned - place.committed
    assert place.on_demand == above_base
    assert abs(place.shared_usd - cheapest_base(minutes, prices, owned)) < CENT
    # What is saved is all in the bills.
    saved = sum(bill.alone_usd - bill.shared_usd for bill in portfolio.bills)
    assert saved == place.alone_usd - place.shared_usd


def test_clocks_that_change_move_hours() -> None:
    """Berlin is an hour ahead of UTC in winter, and two for the 210 days of its summer of 2026."""
    hours = tuple(int(hour % 24 == 12) for hour in range(168))
    prices = {"on_demand": Decimal(1), "reserved_1y": Decimal(1000)}

    def at_once(other: str) -> float:
        # An hour of both together is one of two machines; the base is never committed to.
        portfolio = together_at(
            [
                member("a", hours, terms=("reserved_1y",), owned=1),
                member("b", hours, other, terms=("reserved_1y",), owned=1),
            ],
            catalog_of(prices),
        )
        [place] = portfolio.places
        return float(place.shared_usd) / (730 / 24)

    assert at_once("UTC") == pytest.approx(1, abs=0.001)
    assert at_once("Europe/Berlin") == 0
    noon_hours = tuple(int(hour % 24 == 13) for hour in range(168))
    portfolio = together_at(
        [
            member("a", hours, owned=1),
            member("b", noon_hours, "Europe/Berlin", owned=1),
        ],
        catalog_of({**prices, "reserved_3y": Decimal(1000)}),
    )
    together = float(portfolio.places[0].shared_usd) / (730 / 24)
    assert together == pytest.approx((365 - 210) / 365, abs=0.001)


@given(
    st.decimals("-100000", "100000", places=2),
    st.lists(st.decimals("0", "100000", places=2), min_size=1, max_size=9),
)
def test_parts_sum_to_the_cent(amount: Decimal, weights: list[Decimal]) -> None:
    parts = divided(amount, weights)
    assert sum(parts) == amount
    total = sum(weights)
    if total:
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - amount * weight / total) <= CENT


def test_only_those_who_allow_the_same_share() -> None:
    always = (1,) * 168
    prices = {"on_demand": Decimal(2), "reserved_1y": Decimal(1)}
    portfolio = together_at(
        [
            member("a", always, terms=("reserved_1y",)),
            member("b", always, terms=()),
        ],
        catalog_of(prices),
    )
    assert portfolio.places == ()
    assert [bill.shared_usd for bill in portfolio.bills] == [1100, 1100]


def test_only_what_may_be_on_demand_is_shared() -> None:
    always = (1,) * 168
    portfolio = together_at(
        [member("a", always, may_share=False), member("b", always)],
        catalog_of({"on_demand": Decimal(2), "reserved_1y": Decimal(1)}),
    )
    assert portfolio.places == ()


SPEC = chat(
    traffic="peak_rps: 25\n  profile: business-hours",
    extra=(
        'shutdown: {schedule: "weekdays 07:00-20:00 ZONE"}\n'
        "buy: {commit: [none, 1y, 3y]MORE}\n"
        "where: {clouds: [aws], accelerators: {allow: [l40s]}}"
    ),
)


def write(folder: Path, name: str, zone: str, more: str = "") -> str:
    text = SPEC.replace("ZONE", zone).replace("MORE", more)
    (folder / f"{name}.yaml").write_text(
        text.replace("name: chat", f"name: {name}")
    )
    return f"{name}.yaml"


def test_days_on_two_coasts_pay_one_base(tonnage: Command, here: Path) -> None:
    specs = [
        write(here, "europe", "Europe/Berlin"),
        write(here, "america", "America/Los_Angeles"),
    ]
    code, page, _ = tonnage("plan", "--share", *specs)
    assert code == 0
    [total] = [line for line in page.splitlines() if line.startswith("  all ")]
    alone, together = (
        Decimal(word.strip("$").replace(",", "")) for word in total.split()[1:]
    )
    assert together < alone * Decimal("0.85")
    assert "for 3 years" in page
    assert "chosen by what it costs alone" in page
    # Beside one of the same hours nothing more is committed to than twice as much.
    twin = write(here, "twin", "Europe/Berlin")
    _, page, _ = tonnage("plan", "--share", specs[0], twin)
    assert "these fleets save nothing together" in page
    assert "chosen by what it costs alone" in page


def test_what_is_owned_counts_once(tonnage: Command, here: Path) -> None:
    (here / "owned.yaml").write_text(
        "machines:\n- {cloud: aws, type: g6e.xlarge, region: us-*, count: 4, usd_hour: 0.9}\n"
    )
    specs = [
        write(here, name, "Europe/Berlin", ", owned: owned.yaml")
        for name in ("one", "two")
    ]
    code, _, told = tonnage("plan", *specs)
    assert code == 0
    assert "own the same machines" in told
    code, page, told = tonnage("plan", "--share", *specs)
    assert code == 0
    assert untimed(told) == ""
    assert "4 owned" in page
    assert "more than alone" in page.replace("\n  ", " ")


def test_a_reservation_of_its_own_is_not_shared(
    tonnage: Command, here: Path
) -> None:
    """It is paid for in every hour, and nobody else gets its machines."""
    specs = [
        write(here, "europe", "Europe/Berlin"),
        write(here, "america", "America/Los_Angeles"),
    ]
    for buy in ("reserve: true", "commit: [1y]"):
        for spec in specs:
            path = here / spec
            text = path.read_text()
            for old in ("commit: [none, 1y, 3y]", "reserve: true"):
                text = text.replace(old, buy)
            if "update" not in text:
                text += "update: recreate\n"
            path.write_text(text)
        code, page, told = tonnage("plan", "--share", *specs)
        assert code == 0, told
        assert "these fleets save nothing together" in page


def test_one_file_by_two_names_is_one_file(
    tonnage: Command, here: Path
) -> None:
    (here / "owned.yaml").write_text(
        "machines:\n- {cloud: aws, type: g6e.xlarge, region: us-*, count: 4, usd_hour: 0.9}\n"
    )
    specs = [
        write(here, name, "Europe/Berlin", f", owned: {path}")
        for name, path in (("one", "owned.yaml"), ("two", "./owned.yaml"))
    ]
    code, page, told = tonnage("plan", "--share", *specs)
    assert code == 0, told
    assert "4 owned" in page
    # Who commits otherwise owns nothing together with the first.
    path = here / specs[1]
    path.write_text(path.read_text().replace("[none, 1y, 3y]", "[none, 1y]"))
    code, _, told = tonnage("plan", "--share", *specs)
    assert code == 0
    assert "own the same machines" in told


def test_it_takes_several_specs_and_has_no_findings(
    tonnage: Command, here: Path
) -> None:
    spec, other = write(here, "one", "UTC"), write(here, "two", "UTC")
    for words, said in (
        ((spec,), "--share takes several SPECs"),
        ((spec, spec), "name each stack once"),
        ((spec, other, "-f", "sarif"), "--share has no findings"),
    ):
        code, _, told = tonnage("plan", "--share", *words)
        assert code == 2
        assert said in told


OTHER_PLACE = ("aws", "g6.xlarge", "us-east-1")
ACCOUNT = "reserved instances ri-1"


def bought(count: int, machine_type: str = "g6e.xlarge") -> OwnedMachines:
    """What an account was found to have committed to."""
    return OwnedMachines(
        cloud="aws",
        type=machine_type,
        region="us-east-1",
        count=count,
        usd_hour=Decimal(1),
        source=ACCOUNT,
    )


def some_hours(draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.choice((0, 0, 1, 2, 4)) for _ in range(168))


def cheapest_beside(
    free: tuple[int, ...],
    bound: tuple[int, ...],
    prices: dict[str, Decimal],
    owned: int,
) -> Decimal:
    """Every commitment of those who may commit; what is owned serves them and the others."""
    month = Decimal(730)
    return min(
        committed * month * prices[term]
        + sum(
            max(0, other + max(0, own - committed) - owned)
            for own, other in zip(free, bound, strict=True)
        )
        * month
        / 168
        * prices["on_demand"]
        for term in ("reserved_1y", "reserved_3y")
        for committed in range(5)
    )


@pytest.mark.parametrize("seed", range(CASES // 3))
def test_what_the_account_owns_serves_all_hours_first(seed: int) -> None:
    """Those who may commit and those who may not: no base of the first is cheaper."""
    draw = random.Random(seed)
    prices = {
        "on_demand": Decimal(draw.randint(100, 900)) / 100,
        "reserved_1y": Decimal(draw.randint(50, 700)) / 100,
        "reserved_3y": Decimal(draw.randint(30, 600)) / 100,
    }
    free, bound = some_hours(draw), some_hours(draw)
    services = [member("free", free), member("bound", bound, terms=())]
    totals = []
    for owned in range(7):
        portfolio = together_at(
            services,
            catalog_of(prices, owned=(bought(owned),) if owned else ()),
        )
        if not owned:
            continue
        together = sum(place.shared_usd for place in portfolio.places)
        truth = cheapest_beside(free, bound, prices, owned)
        assert abs(together - truth) <= 2 * CENT
        totals.append(sum(bill.shared_usd for bill in portfolio.bills))
        saved = sum(
            bill.alone_usd - bill.shared_usd for bill in portfolio.bills
        )
        assert saved == sum(
            place.alone_usd - place.shared_usd for place in portfolio.places
        )
        [use] = portfolio.owned
        used = sum(
            min(owned, own + other)
            for own, other in zip(free, bound, strict=True)
        )
        assert use.used_share == pytest.approx(Decimal(used) / (owned * 168))
    # A commitment more never costs more.
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("seed", range(20))
def test_one_commitment_to_two_types_counts_once(seed: int) -> None:
    """It serves so many of one type, or twice as many of the other, or some of both."""
    draw = random.Random(seed)
    hours, other_hours = some_hours(draw), some_hours(draw)
    there = replace(
        member("b", other_hours, terms=()),
        pools=(
            SharingPool(
                place=OTHER_PLACE,
                accelerator=ACCELERATOR,
                hourly_nodes=other_hours,
                may_share=True,
                machines_usd=Decimal(1000),
            ),
        ),
    )
    portfolio = together_at(
        [member("a", hours, terms=()), there],
        catalog_of(
            {"on_demand": Decimal(2)},
            owned=(bought(2), bought(4, "g6.xlarge")),
            places=(PLACE, OTHER_PLACE),
        ),
    )
    above = 0
    for nodes, other_nodes in zip(hours, other_hours, strict=True):
        above += min(
            max(0, nodes - covered) + max(0, other_nodes - (4 - 2 * covered))
            for covered in range(3)
        )
    assert sum(place.shared_usd for place in portfolio.places) == (
        pytest.approx(Decimal(above) * 730 / 168 * 2, abs=Decimal("0.02"))
    )
    for place in portfolio.places:
        # What is owned may serve the other type at the peak of this one.
        assert max(place.owned, place.on_demand) <= place.peak_nodes
        assert place.owned + place.on_demand >= place.peak_nodes
    [use] = portfolio.owned
    assert use.machines in {bought(2), bought(4, "g6.xlarge")}
    assert 0 < use.used_share <= 1


def test_two_pools_share_as_two_services_do() -> None:
    """Each pool of a service is a stream of machine hours of its type."""
    draw = random.Random(7)
    prices = {"on_demand": Decimal(2), "reserved_1y": Decimal(1)}
    hours = [some_hours(draw) for _ in range(4)]
    pools = [
        SharingPool(
            place=place,
            accelerator=ACCELERATOR,
            hourly_nodes=own,
            may_share=True,
            machines_usd=Decimal(500),
        )
        for place, own in zip(
            (PLACE, OTHER_PLACE, PLACE, OTHER_PLACE), hours, strict=True
        )
    ]
    one = member("one", hours[0], machines_usd=Decimal(1000))
    two = member("two", hours[2], "Asia/Tokyo", machines_usd=Decimal(1000))
    catalog = catalog_of(prices, places=(PLACE, OTHER_PLACE))
    mixed = together_at(
        [
            replace(one, pools=tuple(pools[:2])),
            replace(two, pools=tuple(pools[2:])),
        ],
        catalog,
    )
    apart = together_at(
        [
            replace(own, name=f"{own.name}{number}", pools=(pool,))
            for own, pool, number in zip(
                (one, one, two, two), pools, range(4), strict=True
            )
        ],
        catalog,
    )
    assert len(mixed.places) == 2
    for place, other in zip(mixed.places, apart.places, strict=True):
        assert place.shared_usd == other.shared_usd
    for first, bill in zip((0, 2), mixed.bills, strict=True):
        parts = apart.bills[first : first + 2]
        assert bill.alone_usd - bill.shared_usd == sum(
            part.alone_usd - part.shared_usd for part in parts
        )


def test_both_types_of_a_service_enter_with_their_part_of_the_bill(
    catalog: Catalog,
) -> None:
    few = repriced(catalog, "aws")
    text = two_types("aws")
    solution = find(few, text)
    service = present(
        member_of(spec_of(text), solution, lambda _: b"", "/specs")
    )
    assert [pool.place[1] for pool in service.pools] == [
        pool.instance.instance_type for pool in solution.pools
    ]
    for pool, sized in zip(service.pools, solution.pools, strict=True):
        assert max(pool.hourly_nodes) == sized.nodes
        [line] = [
            line
            for line in present(solution.bill).lines
            if line.kind == MACHINE_KIND
            and sized.instance.instance_type in line.name
        ]
        assert pool.machines_usd == line.usd


def test_the_order_of_files_decides_no_cent() -> None:
    draw = random.Random(11)
    prices = {"on_demand": Decimal(2), "reserved_1y": Decimal("1.01")}
    services = [
        member(name, some_hours(draw), machines_usd=Decimal("1000.01"))
        for name in ("a", "b", "c")
    ]
    bills = together_at(services, catalog_of(prices)).bills
    turned = together_at(services[::-1], catalog_of(prices)).bills
    assert bills == turned[::-1]


def record(here: Path, count: int) -> None:
    """An account with so many machines of a commitment, of which nobody uses any."""
    place = LivePlace("aws", "us-east-1", ("g6e.xlarge",))
    facts = facts_of(place, {})
    if count:
        commitment = CommitmentFact(
            id="ri-1",
            name="reserved instances",
            unit="machines",
            amount=Decimal(count),
            takes={"g6e.xlarge": Decimal(1)},
            usd_hour=Decimal("1.20") * count,
        )
        facts = replace(
            facts,
            commitments=CommitmentAnswer(
                state="value", as_of=NOW, request="", value=(commitment,)
            ),
            commitment_use=UsedAnswer(
                state="value", as_of=NOW, request="", value={"ri-1": Decimal(0)}
            ),
        )
    (here / "facts.json").write_text(facts_text(LiveFacts(places=(facts,))))


def test_commitments_of_the_account_enter_the_bill_of_all(
    tonnage: Command, here: Path
) -> None:
    """Two services that each count on both machines: together there are two, and no more."""
    specs = [write(here, name, "Europe/Berlin") for name in ("one", "two")]
    totals = []
    for count in (0, 2, 6, 30):
        record(here, count)
        code, page, told = tonnage(
            "plan", "--share", "--replay", "facts.json", *specs
        )
        assert (code, untimed(told)) == (0, "")
        said = " ".join(page.split())
        [total] = [
            line for line in page.splitlines() if line.startswith("  all ")
        ]
        totals.append(Decimal(total.split()[-1].strip("$").replace(",", "")))
        assert (f"owned: {count} x g6e.xlarge in aws us-east-1" in said) == (
            count > 0
        )
        if count:
            anyway = (
                f"${count * 876:,} a month anyway by reserved instances ri-1"
            )
            assert anyway in said
            assert "of it unused by all of them" in said
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0] / 4
