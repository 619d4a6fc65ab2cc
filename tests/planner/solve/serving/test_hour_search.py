"""Two machine types that follow the hours: what they cost, keep, build and leave."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.cost.service_price import PriceBook
from planner.market.offer import QuotaNodes
from planner.perf.serving.monte_carlo import RequestStream
from planner.solve.capacity import minute_nodes
from planner.solve.serving import replica_capacity, sizing
from planner.solve.serving.hour_rule import follows_hours
from planner.solve.serving.hour_search import HourSearch
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import Inference
from planner.spec.schedule import open_minutes
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK, MINUTES_PER_WEEK
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, present, spec_of
from tests.planner.solve.serving.test_mixed_answer import (
    LIMITS_S,
    played,
    with_prices,
)
from tests.planner.solve.serving.test_mixed_search import StatedJudge, priced
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
)
from tests.stacks.test_build import check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planner.market.offer import Catalog, Offer
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.simulation import Request
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

# A strong machine for the day and a weak one for the night, of each cloud.
TYPES = {
    "aws": {"g6e.xlarge": "1.60", "g6.xlarge": "0.60"},
    "gcp": {"a2-highgpu-1g": "2.20", "g2-standard-4": "0.70"},
    "azure": {
        "Standard_NC40ads_H100_v5": "6.00",
        "Standard_NC24ads_A100_v4": "3.50",
    },
}
# What the strong machine carries, requests/s; nights have a twenty-fifth of it.
RATES = {"aws": 4, "gcp": 5, "azure": 12}
PROFILE = ", ".join(["0.04"] * 8 + ["1"] * 10 + ["0.04"] * 6)
NEVER_USD = Decimal(10) ** 9
CENTS = Decimal("0.02")  # of two lines that are rounded
COMMITTED = "reserved_1y"
SCHEDULE = "weekdays 06:30-21:00 Europe/Berlin"


def by_hours(
    cloud: str, machine_types: int = 2, sla: str = "", extra: str = ""
) -> str:
    return chat(
        precision="bf16",
        sla=f"ttft_p95: 2s, tpot_p95: 80ms{sla}",
        traffic=f"peak_rps: {RATES[cloud]}\n  profile: [{PROFILE}]",
        extra=f"where: {{clouds: [{cloud}]}}\n"
        f"buy: {{spot: never, machine_types: {machine_types}}}\n{extra}",
    )


def required(text: str) -> ServingRequirement:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


def fleet_of(catalog: Catalog, cloud: str, extra: str = "") -> MixedFleet:
    few = with_prices(catalog, cloud, TYPES[cloud])
    search = ServingSearch(few.price_book)
    return present(
        HourSearch(
            required(by_hours(cloud, extra=extra)), search
        ).cheapest_pair(few.offers, math.inf)
    )


def hour_usd(pools: Sequence[tuple[Offer, float]], rate_rps: float) -> Decimal:
    """What the cheapest machines of an hour cost, counted out."""
    return min(
        sum(
            (
                count * offer.usd_hour
                for count, (offer, _) in zip(counts, pools, strict=True)
            ),
            Decimal(0),
        )
        for counts in itertools.product(range(40), repeat=len(pools))
        if any(counts)
        and sum(
            count * rps for count, (_, rps) in zip(counts, pools, strict=True)
        )
        >= rate_rps
    )


def by_brute_force(
    search: ServingSearch,
    judge: StatedJudge,
    requirement: ServingRequirement,
    offers: list[Offer],
    spare: float,
) -> tuple[Decimal, Decimal]:
    """The least cost of machines of one type, and of two in one region; each hour by itself.

    What is committed to is paid in all hours, so the peak alone counts.
    """
    pools: list[tuple[Offer, str, float]] = []
    for offer in offers:
        for replica, group in search.one_node_replicas(requirement, offer):
            carried_rps = judge.most_rps(replica) * group.replicas
            if replica.max_batch and carried_rps > 0:
                layout = replica.layout
                likeness = f"{layout.precision} {layout.kv_precision}"
                pools.append((offer, likeness, carried_rps))

    def month_usd(*together: tuple[Offer, str, float]) -> Decimal:
        parts = [(offer, rps) for offer, _, rps in together]
        loads = (
            Counter({1.0: HOURS_PER_WEEK})
            if parts[0][0].purchase == COMMITTED
            else Counter(requirement.week.relative_load)
        )
        rate_rps = requirement.load.rate_per_s * spare
        week_usd = sum(
            (
                hours * hour_usd(parts, rate_rps * load)
                for load, hours in loads.items()
            ),
            Decimal(0),
        )
        return week_usd * HOURS_PER_MONTH / HOURS_PER_WEEK

    alone = min((month_usd(pool) for pool in pools), default=NEVER_USD)
    pairs = [
        (first, second)
        for first, second in itertools.combinations(pools, 2)
        if first[0].instance.instance_type != second[0].instance.instance_type
        and first[0].region == second[0].region
        and first[1] == second[1]
    ]
    return alone, min((month_usd(*pair) for pair in pairs), default=NEVER_USD)


def drawn(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[ServingRequirement, ServingSearch, StatedJudge, list[Offer]]:
    """A random case: what is needed, who searches and judges, and what is sold."""
    monkeypatch.setattr(replica_capacity, "CLOSE_SHARE", 1e-5)
    monkeypatch.setattr(sizing, "machine_startup_s", lambda _: 0.0)
    draw = random.Random(seed)
    offers = priced(catalog, draw)
    weights = [round(draw.choice((0.1, 0.4, 0.7, 1.0)), 1) for _ in range(24)]
    weights[9] = 1.0
    requirement = required(
        chat(
            traffic=f"peak_rps: {draw.choice([0.5, 3, 9])}\n"
            f"  profile: [{', '.join(map(str, weights))}]"
        )
    )
    search = ServingSearch(PriceBook({}))
    judge = StatedJudge(seed)
    monkeypatch.setattr(search, "judge", judge)
    return requirement, search, judge, offers


@pytest.mark.parametrize("purchase", ["on_demand", COMMITTED])
@pytest.mark.parametrize("seed", range(40))
def test_no_two_types_are_cheaper_in_the_hours_of_a_week(
    catalog: Catalog, seed: int, purchase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random prices, regions, capacities and weeks; machines that start at once."""
    requirement, search, judge, offers = drawn(catalog, seed, monkeypatch)
    offers = [replace(offer, purchase=purchase) for offer in offers]
    (alone, least), (_, most) = (
        by_brute_force(search, judge, requirement, offers, spare)
        # Three thousandths are left to the whole numbers of the weights.
        for spare in (1.0, 1.003)
    )
    found = HourSearch(requirement, search).cheapest_pair(offers, float(alone))
    if found is None:
        assert most >= alone
    else:
        assert least - CENTS <= found.bill.total <= min(most, alone) + CENTS


@pytest.mark.parametrize("purchase", ["on_demand", COMMITTED])
@pytest.mark.parametrize("seed", range(40))
def test_no_type_alone_is_cheaper_in_the_hours_of_a_week(
    catalog: Catalog, seed: int, purchase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for one type: the fewest machines of each hour, counted out."""
    requirement, search, judge, offers = drawn(catalog, seed, monkeypatch)
    offers = [replace(offer, purchase=purchase) for offer in offers]
    (least, _), (most, _) = (
        by_brute_force(search, judge, requirement, offers, spare)
        for spare in (1.0, 1 + 1e-4)
    )
    found = HourSearch(requirement, search).cheapest(offers, math.inf)
    if found is None:
        assert least == NEVER_USD
    else:
        assert least - CENTS <= found.bill.total <= most + CENTS


def test_a_shorter_commitment_never_costs_less(catalog: Catalog) -> None:
    """Of two types, for 60 requests/s by day: dozens of machines that may be committed to."""
    text = by_hours("aws").replace("peak_rps: 4", "peak_rps: 60")
    few = with_prices(catalog, "aws", TYPES["aws"])
    offers = tuple(
        replace(offer, purchase=purchase, usd_hour=offer.usd_hour * share)
        for offer in few.offers
        for purchase, share in (
            ("on_demand", Decimal(1)),
            ("reserved_1y", Decimal("0.7")),
            ("reserved_3y", Decimal("0.5")),
        )
    )
    three, one, none, free = (
        present(
            find(
                replace(few, offers=offers),
                text.replace("spot: never", f"spot: never, commit: {commit}"),
            ).bill
        ).total
        for commit in ("[3y]", "[1y]", "[none]", "[none, 1y, 3y]")
    )
    assert free <= three <= one
    assert free <= none


class WeakJudge(StatedJudge):
    """Lets all replicas carry a small share of what formulas allow, and counts the questions."""

    def __init__(self, share: float) -> None:
        super().__init__(seed=0)
        self._share = share
        self.question_count = 0

    def most_rps(self, replica: Replica) -> float:
        return replica.rate_bound(0.12) * self._share

    def misses(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        self.question_count += 1
        return super().misses(requirement, sizing)


@pytest.mark.parametrize("share", [0.02, 0.045, 0.06])
def test_hundreds_of_groups_are_found_in_a_few_questions(
    catalog: Catalog, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one carries is halved, as far as one group fewer would be too few."""
    requirement = required(
        chat(traffic=f"peak_rps: 60\n  profile: [{PROFILE}]")
    )
    offers = priced(catalog, random.Random(1))[:1]
    search = ServingSearch(PriceBook({}))
    judge = WeakJudge(share)
    monkeypatch.setattr(search, "judge", judge)
    fleet = present(HourSearch(requirement, search).cheapest(offers, math.inf))
    (pool,) = fleet.pools
    groups = pool.sizing.peak_groups
    assert groups == math.ceil(
        requirement.load.rate_per_s
        / (judge.most_rps(pool.sizing.replica) * pool.sizing.group.replicas)
    )
    assert groups > 500
    assert judge.question_count < 30


@pytest.mark.parametrize("cloud", TYPES)
def test_each_hour_keeps_the_limits(catalog: Catalog, cloud: str) -> None:
    """One stream of requests of each load, drawn anew and shared by weight, played on all."""
    fleet = fleet_of(catalog, cloud)
    requirement = required(by_hours(cloud))
    groups = [
        [round(pool.sizing.peak_groups * load) for load in week.relative_load]
        for pool in fleet.pools
        for week in [pool.requirement.week]
    ]
    hours = set(zip(requirement.week.relative_load, *groups, strict=True))
    assert any(0 in hour[1:] for hour in hours)
    draw = random.Random(3)
    for load, *counts in sorted(hours):
        machines = [
            (pool, weight)
            for pool, weight, count in zip(
                fleet.pools, fleet.weights, counts, strict=True
            )
            for _ in range(count)
        ]
        assert machines
        stream = RequestStream(requirement.load, seed=11)
        sent: list[list[Request]] = [[] for _ in machines]
        rate_rps = load * requirement.load.rate_per_s
        for request in itertools.islice(stream.requests(1.0, rate_rps), 4000):
            [index] = draw.choices(
                range(len(machines)), [weight for _, weight in machines]
            )
            sent[index].append(request)
        times = [
            played(pool, requests)
            for (pool, _), requests in zip(machines, sent, strict=True)
        ]
        for metric, limit_s in LIMITS_S.items():
            values = sorted(
                value for machine in times for value in machine[metric]
            )
            assert values[int(0.95 * len(values))] <= limit_s


@pytest.mark.parametrize("cloud", TYPES)
def test_it_costs_less_than_one_type_and_is_built(
    catalog: Catalog, cloud: str, here: Path
) -> None:
    """On each cloud: groups that are empty in some hours, applied and destroyed."""
    few = with_prices(catalog, cloud, TYPES[cloud])
    alone = present(find(few, by_hours(cloud, 1)).bill)
    text = by_hours(cloud)
    solution = find(few, text)
    bill = present(solution.bill)
    assert bill.total < alone.total
    assert sum(line.usd or 0 for line in bill.lines) == bill.total
    assert [pool.name for pool in solution.pools] == ["serve", "serve-2"]
    assert all(pool.week is not None for pool in solution.pools)
    assert solution.predictions["requests_per_s"].value == pytest.approx(
        RATES[cloud]
    )
    stack = build_stack(spec_of(text), solution, "chat")
    check(stack.graph)
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(few, text)
    assert [pool.weight for pool in plan.solution.pools] == [
        pool.weight for pool in solution.pools
    ]
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("schedule", ["", SCHEDULE])
@pytest.mark.parametrize("cloud", TYPES)
def test_something_answers_in_every_open_minute(
    catalog: Catalog, cloud: str, schedule: str
) -> None:
    """In each minute one pool has machines, in some minutes the other one has none."""
    few = with_prices(catalog, cloud, TYPES[cloud])
    extra = f'shutdown: {{schedule: "{schedule}"}}' if schedule else ""
    solution = find(few, by_hours(cloud, extra=extra))
    assert len(solution.pools) == 2
    wanted = [
        minute_nodes(present(pool.week), pool, schedule or None)
        for pool in solution.pools
    ]
    for is_open, *nodes in zip(
        open_minutes(schedule or None), *wanted, strict=True
    ):
        assert any(nodes) == bool(is_open)
    assert any(
        any(nodes) and not all(nodes) for nodes in zip(*wanted, strict=True)
    )


@pytest.mark.parametrize("machine_types", [1, 2])
@pytest.mark.parametrize("schedule", ["", SCHEDULE])
def test_machines_have_started_when_their_hour_begins(
    catalog: Catalog, schedule: str, machine_types: int
) -> None:
    """Those of an hour were asked for a start before it, but for the first ones of an opening."""
    few = with_prices(catalog, "aws", TYPES["aws"])
    extra = f'shutdown: {{schedule: "{schedule}"}}' if schedule else ""
    solution = find(few, by_hours("aws", machine_types, extra=extra))
    assert len(solution.pools) == machine_types
    is_open = open_minutes(schedule or None)
    changes = 0
    for pool in solution.pools:
        week = pool.week or solution.week
        lead = math.ceil(pool.startup_s / 60)
        nodes = minute_nodes(week, pool, schedule or None)
        hourly = week.hourly_nodes(pool.peak_groups, pool.nodes_per_group)
        for minute in range(MINUTES_PER_WEEK):
            needed = hourly[minute // 60] * is_open[minute]
            since = range(minute - lead, minute)
            if all(is_open[each] for each in since):
                assert min(nodes[each] for each in since) >= needed
            # Nothing stands that nobody needs before it could be started again.
            ahead = range(minute, minute + lead + 1)
            wanted = [
                hourly[each % MINUTES_PER_WEEK // 60]
                * is_open[each % MINUTES_PER_WEEK]
                for each in ahead
            ]
            assert nodes[minute] == max(wanted) * is_open[minute]
            changes += nodes[minute] != nodes[minute - 1]
    assert changes > 2


@pytest.mark.parametrize("machine_types", [1, 2])
@pytest.mark.parametrize("schedule", ["", SCHEDULE])
@pytest.mark.parametrize("cloud", TYPES)
def test_the_bill_is_that_of_the_hours(
    catalog: Catalog, cloud: str, schedule: str, machine_types: int
) -> None:
    """Hours of machines in the bill are those of the minutes in which a stack has them."""
    few = with_prices(catalog, cloud, TYPES[cloud])
    extra = f'shutdown: {{schedule: "{schedule}"}}' if schedule else ""
    solution = find(few, by_hours(cloud, machine_types, extra=extra))
    lines = [
        line
        for line in present(solution.bill).lines
        if line.kind == MACHINE_KIND
    ]
    for line, pool in zip(lines, solution.pools, strict=True):
        week = pool.week or solution.week
        minutes = minute_nodes(week, pool, schedule or None)
        mean = Decimal(sum(minutes)) / len(minutes)
        assert line.quantity == pytest.approx(mean * HOURS_PER_MONTH)


def test_the_router_needs_no_other_weights_by_night(catalog: Catalog) -> None:
    """In each hour every machine gets no more than it was shown to carry."""
    fleet = fleet_of(catalog, "aws")
    whole_rps = RATES["aws"]
    week = required(by_hours("aws")).week
    asked = {
        pool.name: max(
            each.requirement.load.rate_per_s / each.sizing.peak_groups
            for each in fleet.asked
            if each.name == pool.name
        )
        for pool in fleet.pools
    }
    for hour, load in enumerate(week.relative_load):
        groups = [
            round(
                pool.sizing.peak_groups
                * pool.requirement.week.relative_load[hour]
            )
            for pool in fleet.pools
        ]
        drawn = sum(map(int.__mul__, groups, fleet.weights))
        for pool, count, weight in zip(
            fleet.pools, groups, fleet.weights, strict=True
        ):
            if count:
                rate_rps = load * whole_rps * weight / drawn
                assert rate_rps <= asked[pool.name] * (1 + 1e-9)


@pytest.mark.parametrize(
    "extra",
    ["", "shutdown: {ttl: 30h}", "traffic-flat", "closed-at-peak"],
)
def test_who_has_no_hours_to_follow(extra: str) -> None:
    """A life, a week without differences, and one that is closed at its peak."""
    text = by_hours("aws", extra=extra if "shutdown" in extra else "")
    if extra == "traffic-flat":
        text = text.replace(f"profile: [{PROFILE}]", "profile: flat")
    if extra == "closed-at-peak":
        closed = 'shutdown: {schedule: "daily 19:00-24:00"}'
        text = by_hours("aws", extra=closed)
    assert follows_hours(required(text)) == (extra == "")


def test_two_types_have_no_hours_where_a_failure_is_survived(
    catalog: Catalog,
) -> None:
    few = with_prices(catalog, "aws", TYPES["aws"])
    requirement = required(by_hours("aws", sla=", survives: node"))
    search = HourSearch(requirement, ServingSearch(few.price_book))
    assert search.cheapest_pair(few.offers, math.inf) is None
    assert search.cheapest(few.offers, math.inf) is not None


def test_a_promise_takes_more_machines(catalog: Catalog) -> None:
    """With an availability that one machine does not have, in no hour is there only one."""
    few = with_prices(catalog, "aws", TYPES["aws"])
    usd = []
    for sla in ("", ", availability: 99.99%"):
        solution = find(few, by_hours("aws", sla=sla))
        usd.append(present(solution.bill).total)
        if len(solution.pools) == 2 and sla:
            hourly = [
                present(pool.week).hourly_nodes(pool.peak_groups, 1)
                for pool in solution.pools
            ]
            assert all(sum(nodes) > 1 for nodes in zip(*hourly, strict=True))
    assert usd[0] < usd[1]


def test_offers_may_come_in_any_order(catalog: Catalog) -> None:
    few = with_prices(catalog, "aws", TYPES["aws"])
    requirement = required(by_hours("aws"))
    offers = [*few.offers]
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(offers)
        search = ServingSearch(few.price_book)
        fleet = present(
            HourSearch(requirement, search).cheapest(offers, math.inf)
        )
        found.append((fleet.summary, fleet.weights, fleet.bill.total))
    assert found[0] == found[1] == found[2]


def test_a_ceiling_is_not_reached(catalog: Catalog) -> None:
    few = with_prices(catalog, "aws", TYPES["aws"])
    requirement = required(by_hours("aws"))
    usd = float(fleet_of(catalog, "aws").bill.total)
    for ceiling_usd, is_found in ((usd + 0.01, True), (usd, False)):
        search = ServingSearch(few.price_book)
        found = HourSearch(requirement, search).cheapest_pair(
            few.offers, ceiling_usd
        )
        assert (found is not None) == is_found


def test_a_month_on_an_account_with_few_machines(catalog: Catalog) -> None:
    """No more of a type than its quota has, also while one type hands over to the other."""

    few = with_prices(catalog, "aws", TYPES["aws"])
    bound = replace(
        few,
        offers=tuple(
            replace(
                offer,
                quotas=(
                    QuotaNodes(purchase="on_demand", nodes=1, quota="vcpus"),
                ),
            )
            for offer in few.offers
        ),
    )
    solution = find(bound, by_hours("aws"))
    # Both types share one quota, so they cannot both be there in the minutes of a change.
    assert len(solution.pools) < 2
