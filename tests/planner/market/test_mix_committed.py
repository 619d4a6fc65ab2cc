"""A base that is committed to, and machines on demand above it: never dearer than any other base.

The oracle buys each machine by itself, in each of the ways there are.
"""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.facts.cloud import clouds
from planner.market.mix import best_base, settled_mix, undominated
from planner.market.offer import PurchaseMix, PurchaseTier
from planner.plan.commitment import commitments_of
from planner.units import SECONDS_PER_DAY
from providers.simulated.clock import advance
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, only, present, spec_of
from tests.oracles.standing import WEEK_MINUTES, standing_nodes
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
    world_of,
)
from tests.stacks.test_build import check

MONTH = Decimal(730)
WEEK = 168
# Committed seeds: the same cases everywhere.
CASES = 5000
PRICE = st.decimals("0.01", "100", places=2)


def mix_of(
    committed_usd: Decimal,
    on_demand_usd: Decimal,
    owned: int = 0,
    spot: tuple[Decimal, Decimal] | None = None,
) -> PurchaseMix:
    """Owned machines, a commitment, machines on demand, and a share of them with spot above."""
    share, spot_usd = spot or (None, Decimal(0))
    tiers = [
        PurchaseTier(purchase="owned", usd_hour=Decimal(0), owned=owned),
        PurchaseTier(purchase="reserved_1y", usd_hour=committed_usd),
        PurchaseTier(purchase="on_demand", usd_hour=on_demand_usd, share=share),
        PurchaseTier(purchase="spot", usd_hour=spot_usd),
    ]
    return PurchaseMix(tuple(tiers[not owned : 3 + (spot is not None)]))


def level_hours(hourly: list[int]) -> dict[int, Decimal]:
    return {
        level: sum(count >= level for count in hourly) * MONTH / WEEK
        for level in set(hourly)
        if level
    }


@settings(max_examples=CASES, derandomize=True)
@given(
    PRICE,
    PRICE,
    st.lists(st.integers(0, 5), min_size=7, max_size=7),
    st.integers(1, 2),
    st.integers(0, 3),
    st.one_of(st.none(), st.tuples(st.decimals("0.1", "0.9", places=1), PRICE)),
)
def test_each_machine_is_bought_in_its_cheapest_way(
    committed_usd: Decimal,
    on_demand_usd: Decimal,
    days: list[int],
    group_nodes: int,
    owned: int,
    spot: tuple[Decimal, Decimal] | None,
) -> None:
    """Each machine by itself: what is owned is free, and above the share they are on spot."""
    hourly = [count * group_nodes for count in days for _ in range(24)]
    machines = max(hourly)
    steady = machines
    if spot is not None:
        steady = group_nodes * math.ceil(max(days) * spot[0])
    hours = [
        sum(count > machine for count in hourly) * MONTH / WEEK
        for machine in range(machines)
    ]

    def least(machine: int) -> Decimal:
        if machine < owned:
            return Decimal(0)
        if machine >= steady and spot is not None:
            return hours[machine] * spot[1]
        return min(MONTH * committed_usd, hours[machine] * on_demand_usd)

    mix = settled_mix(
        mix_of(committed_usd, on_demand_usd, owned, spot),
        level_hours(days_of(days)),
        MONTH,
        group_nodes,
    )
    found = Decimal(0)
    for tier, (start, end) in zip(
        mix.tiers, mix.spans(machines, group_nodes), strict=True
    ):
        is_committed = tier.purchase == "reserved_1y"
        found += tier.usd_hour * sum(
            (
                MONTH if is_committed else hours[machine]
                for machine in range(start, end)
            ),
            Decimal(0),
        )
    best = sum(map(least, range(machines)), Decimal(0))
    assert abs(found - best) < Decimal("1e-9")


def days_of(counts: list[int]) -> list[int]:
    return [count for count in counts for _ in range(24)]


def test_a_tie_commits_to_nothing() -> None:
    same = (Decimal(1), Decimal(2))
    assert best_base(*same, {1: MONTH / 2}, MONTH) == 0
    assert best_base(*same, {1: MONTH / 2 + 1}, MONTH) == 1


def text_of(
    cloud: str, commit: str, profile: str = "business-hours", extra: str = ""
) -> str:
    return chat(
        traffic=f"peak_rps: 40\n  profile: {profile}",
        extra=f"buy: {{commit: {commit}}}\nwhere: {{clouds: [{cloud}]}}\n{extra}",
    )


def total(catalog: Any, text: str) -> Decimal:
    return present(find(catalog, text, keep=0).bill).total


STAIRS = str([float(weight) for weight in range(1, 25)])


@pytest.mark.parametrize(
    ("cloud", "profile"),
    [("aws", "business-hours"), ("gcp", STAIRS), ("azure", "diurnal")],
)
def test_no_base_is_cheaper(catalog, cloud: str, profile: str) -> None:
    """Of the machine type that the plan has: its bill with every other base, to the cent."""
    text = text_of(cloud, "[none, 1y, 3y]", profile)
    solution = find(catalog, text, keep=0)
    [pool] = solution.pools
    prices = {
        offer.purchase: offer.usd_hour
        for offer in catalog.offers
        if (offer.instance.instance_type, offer.region)
        == (pool.instance.instance_type, pool.region)
    }
    minutes = standing_nodes(solution, pool)

    def cost(purchase: str, base: int) -> Decimal:
        above = sum(max(0, nodes - base) for nodes in minutes)
        return (
            base * MONTH * prices[purchase]
            + above * MONTH / WEEK_MINUTES * prices["on_demand"]
        )

    machines = sum(
        present(line.usd)
        for line in present(solution.bill).lines
        if line.kind == "accelerators"
    )
    best = min(
        cost(purchase, base)
        for purchase in ("reserved_1y", "reserved_3y")
        if purchase in prices
        for base in range(pool.nodes + 1)
    )
    assert abs(machines - best) <= Decimal("0.01")


@pytest.mark.parametrize(
    ("cloud", "profile"),
    [("aws", "flat"), ("gcp", "diurnal"), ("azure", "business-hours")],
)
def test_a_wider_choice_never_costs_more(
    catalog, cloud: str, profile: str
) -> None:
    costs = {
        commit: total(catalog, text_of(cloud, commit, profile))
        for commit in ("none", "1y", "[none, 1y]", "[none, 1y, 3y]")
    }
    assert costs["[none, 1y, 3y]"] <= costs["[none, 1y]"]
    assert costs["[none, 1y]"] <= min(costs["none"], costs["1y"])


def test_hours_of_a_day_leave_a_base_and_a_rest(catalog) -> None:
    """Ten hours of five days are too few for a commitment of the whole fleet."""
    [pool] = find(catalog, text_of("aws", "[none, 1y, 3y]"), keep=0).pools
    base, above = pool.purchases
    assert (base.purchase, above.purchase) == ("reserved_3y", "on_demand")
    assert 0 < base.nodes < pool.nodes


@pytest.mark.parametrize("ttl", ["3d", "90d"])
def test_a_time_to_live_is_too_short_for_a_commitment(
    catalog, ttl: str
) -> None:
    """Its whole term is owed, also when the stack ends before."""
    text = text_of("aws", "[none, 1y, 3y]", extra=f"shutdown: {{ttl: {ttl}}}")
    [pool] = find(catalog, text, keep=0).pools
    assert [part.purchase for part in pool.purchases] == ["on_demand"]


@pytest.mark.parametrize("cloud", clouds())
def test_what_is_committed_to_runs_always(
    catalog, here: Path, cloud: str
) -> None:
    """The rest follows its hours, in the same group."""
    text = text_of(cloud, "[none, 1y, 3y]", "diurnal")
    plan = plan_of(catalog, text)
    spec = spec_of(text)
    check(build_stack(spec, find(catalog, text, keep=0), spec.name).graph)
    [pool] = plan.solution.pools
    committed = [
        part for part in pool.purchases if part.purchase != "on_demand"
    ]
    assert sum(part.nodes for part in committed) > 0
    assert [found.nodes for found in commitments_of(plan)] == [
        part.nodes for part in committed
    ]
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    world = engine.shared_world
    advance(world, 7 * SECONDS_PER_DAY)
    begin = world.view().memory.seconds
    advance(world, 7 * SECONDS_PER_DAY)
    memory = world.view().memory
    sizes = [
        size.nodes
        for history in memory.history.values()
        for size in history.sizes
        if size.second >= begin
    ]
    assert min(sizes, default=pool.nodes) >= sum(
        part.nodes for part in committed
    )
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_stack_that_stands_in_two_ways_stays(
    tonnage: Command, here: Path, catalog
) -> None:
    """Another place is a little cheaper now: a move would not pay."""
    spec = here / "s.yaml"
    spec.write_text(text_of("aws", "[none, 3y]"))
    flags = ("--simulate", "--yes", "--commitments-bought")
    assert tonnage("apply", "s.yaml", *flags)[0] == 0
    code, out, _ = tonnage("plan", "s.yaml", "--simulate", "--stack", "chat")
    assert code == 0
    assert "reserved 3y +" in out


def few(catalog: Any, machine: str, region: str = "") -> Any:
    return only(
        catalog,
        lambda offer: (
            offer.instance.instance_type == machine
            and offer.region in (region or offer.region)
        ),
    )


def test_no_region_is_cheaper_that_was_left_out(catalog) -> None:
    """Against a plan of each region by itself."""
    machine = "g6e.xlarge"
    text = text_of("aws", "[none, 1y, 3y]")
    regions = {offer.region for offer in few(catalog, machine).offers}
    alone = [
        present(solution.bill).total
        for region in sorted(regions)
        if (solution := find(few(catalog, machine, region), text, keep=0)).pools
    ]
    assert len(alone) > 5
    assert total(few(catalog, machine), text) == min(alone)


@given(
    st.lists(st.tuples(PRICE, PRICE), min_size=1, max_size=12),
    st.integers(0, 168),
)
def test_what_is_left_out_is_dearer_at_any_hours(
    prices: list[tuple[Decimal, Decimal]], hours: int
) -> None:
    offers: Any = [
        SimpleNamespace(mix=mix_of(*pair), pair=pair, purchases=(), quotas=())
        for pair in prices
    ]

    def cost(offer: Any) -> Decimal:
        committed_usd, on_demand_usd = offer.pair
        return min(WEEK * committed_usd, hours * on_demand_usd)

    kept = list(undominated(offers))
    assert min(map(cost, kept)) == min(map(cost, offers))
    assert len(kept) <= len({pair[0] for pair in prices})


@pytest.mark.parametrize("term", ["1y", "3y"])
def test_a_plan_says_what_a_commitment_would_save(catalog, term: str) -> None:
    """Of one machine type in one region, where nothing else can change."""
    catalog = few(catalog, "g6e.xlarge", "us-east-1")
    plan = plan_of(catalog, text_of("aws", "none"))
    [option] = [
        found
        for found in plan.cost.commitments
        if found.purchase == f"reserved_{term}"
    ]
    committed = plan_of(catalog, text_of("aws", f"[none, {term}]"))
    assert plan.cost.total - committed.cost.total == option.saved_usd_month
    base = committed.solution.pools[0].purchases[0]
    assert (base.purchase, base.nodes) == (option.purchase, option.nodes)
    # Its own plan says the same of it.
    assert option in committed.cost.commitments
    months = {"1y": 12, "3y": 36}[term]
    month_usd = base.nodes * base.usd_per_hour * MONTH
    assert abs(option.committed_usd - month_usd * months) <= Decimal("0.01")
    # So many months on demand cost as much as the whole term.
    assert float(option.pays_after_months) * float(
        month_usd + option.saved_usd_month
    ) == pytest.approx(float(option.committed_usd), rel=1e-3)


def test_what_is_saved_is_told_alike_by_a_fleet_that_has_it(catalog) -> None:
    """On demand its machines would stand in the hours that need them, and in no others."""
    text = Path("blueprints/rag-prefix-cache.yaml").read_text()
    text = text.replace("requests_per_day: 250k", "requests_per_day: 1M")
    here = few(catalog, "p5.4xlarge", "us-east-1")
    plain, committed = (
        plan_of(here, text + f"\nbuy: {{spot: never, commit: {commit}}}\n")
        for commit in ("none", "[none, 3y]")
    )
    [base, above] = committed.solution.pools[0].purchases
    assert (base.purchase, above.purchase) == ("reserved_3y", "on_demand")
    [three_years] = [
        found
        for found in plain.cost.commitments
        if found.purchase == "reserved_3y"
    ]
    assert three_years.nodes == base.nodes
    assert committed.cost.commitments == plain.cost.commitments
    saved_usd = plain.cost.total - committed.cost.total
    # What is committed to anyway saves some starts too.
    assert float(saved_usd) == pytest.approx(
        float(three_years.saved_usd_month), rel=0.02
    )


def test_a_type_that_is_sold_by_commitment_alone_is_planned(catalog) -> None:
    """There is no bill on demand that it could be held against."""
    committed = only(
        few(catalog, "p5.4xlarge", "us-east-1"),
        lambda offer: offer.purchase == "reserved_1y",
    )
    text = Path("blueprints/chat-70b.yaml").read_text()
    solution = find(committed, f"{text}\nbuy: {{spot: never, commit: 1y}}\n")
    [pool] = solution.pools
    # Its hours are its own, which is where a plan looks for those on demand.
    assert pool.week is not None
    assert [part.purchase for part in pool.purchases] == ["reserved_1y"]
    assert solution.commitments == ()


@pytest.mark.parametrize("extra", ["shutdown: {ttl: 3d}", "update: recreate"])
def test_what_ends_or_is_on_spot_is_not_committed_to(
    catalog, extra: str
) -> None:
    text = text_of("aws", "none", extra=extra)
    if "ttl" not in extra:
        text = text.replace("commit: none", "spot: only")
    assert plan_of(catalog, text).cost.commitments == ()
