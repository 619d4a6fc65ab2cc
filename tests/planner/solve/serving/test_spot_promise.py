"""As many machines on spot as a promise lets: no other share is cheaper, and it is built."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.offer import Catalog, ReclaimBand
from planner.solve.solution import Solution
from planner.units import SECONDS_PER_DAY
from providers.simulated.bill import metered_lines
from providers.simulated.clock import advance
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, only, present
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
    world_of,
)

PROMISES = ("95%", "99%", "99.9%", "99.95%", "99.99%", "99.999%")
# Machines whose reclaims have a published end.
LASTING = "g6e.xlarge"
WEEKS = 2


def promised(
    promise: str = "99.9%",
    base: str = "auto",
    *,
    more: str = "",
    profile: str = "diurnal",
    where: str = "",
) -> str:
    return chat(
        traffic=f"peak_rps: 30\n  profile: {profile}",
        sla=f"ttft_p95: 2s, tpot_p95: 80ms, availability: {promise}",
        extra=f"buy: {{on_demand_base: {base}{more}}}\n{where}",
    )


def never(promise: str) -> str:
    return promised(promise).replace("on_demand_base: auto", "spot: never")


def total(catalog: Catalog, text: str) -> Decimal:
    return present(find(catalog, text, keep=0).bill).total


def parts(solution: Solution) -> dict[str, int]:
    [pool] = solution.pools
    return {part.purchase: part.nodes for part in pool.purchases}


def promise_of(solution: Solution) -> dict[str, Any]:
    [warning] = [
        warning
        for warning in solution.warnings
        if warning.code == "spot-promise"
    ]
    return dict(warning.reason.values)


def fresh(catalog: Catalog) -> Catalog:
    """A catalog whose prices of spot are of its own day: as they are found, they decide."""
    return replace(
        catalog,
        offers=tuple(
            replace(offer, as_of=catalog.as_of)
            if offer.purchase == "spot"
            else offer
            for offer in catalog.offers
        ),
    )


@pytest.fixture(scope="module")
def lasting(catalog: Catalog) -> Catalog:
    """A catalog of one machine type, in its regions."""
    return only(
        fresh(catalog), lambda offer: offer.instance.instance_type == LASTING
    )


@pytest.mark.parametrize("promise", PROMISES)
def test_no_share_that_a_person_writes_is_cheaper(
    lasting: Catalog, promise: str
) -> None:
    """Any share keeps the promise with enough spare machines: the cheapest is found."""
    found = find(lasting, promised(promise), keep=0)
    cheapest = present(found.bill).total
    written = [
        bill.total
        for share in range(1, 100, 7)
        # Of few on demand no number of machines keeps a promise of much.
        if (bill := find(lasting, promised(promise, f"{share}%"), keep=0).bill)
    ]
    assert cheapest <= min(*written, total(lasting, never(promise)))
    base, nodes = parts(found).get("on_demand", 0), found.pools[0].nodes
    if base in (0, nodes):
        one_way = "spot: only" if base == 0 else "spot: never"
        text = promised(promise).replace("on_demand_base: auto", one_way)
    else:
        text = promised(promise, f"{100 * base // nodes}%")
    assert cheapest == total(lasting, text)


def test_a_promise_of_more_never_costs_less(catalog: Catalog) -> None:
    catalog = fresh(catalog)
    costs = [total(catalog, promised(promise)) for promise in PROMISES]
    assert costs == sorted(costs)
    for promise, cost in zip(PROMISES, costs, strict=True):
        assert cost <= total(catalog, never(promise))
    # Both ends of what is bought are among them.
    assert costs[0] < total(catalog, never("95%")) / 2


def test_it_is_the_smallest_base(lasting: Catalog) -> None:
    """What is said of the time is what the promise asks for, and not of one machine fewer."""
    for promise in ("99.99%", "99.999%"):
        solution = find(lasting, promised(promise), keep=0)
        assert parts(solution)["on_demand"] > 0
        share = float(promise.rstrip("%")) / 100
        assert promise_of(solution)["high_rate_share"] >= share
        assert (
            promise_of(solution)["low_rate_share"]
            >= promise_of(solution)["high_rate_share"]
        )


def test_fewer_reclaims_never_cost_more(lasting: Catalog) -> None:
    """The published end of a band decides; an open one leaves what traces show."""

    def at(high_share: float) -> Decimal:
        band = ReclaimBand(0.0, high_share, "2026-11")
        return total(
            replace(
                lasting,
                offers=tuple(
                    replace(offer, reclaim_band=band)
                    if offer.purchase == "spot"
                    else offer
                    for offer in lasting.offers
                ),
            ),
            promised("99.95%"),
        )

    costs = [at(share) for share in (0.01, 0.05, 0.2, 0.6, 1.0)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
    # Nothing is promised of machines of which a third of the time none is there.
    assert costs[-1] <= total(lasting, never("99.95%"))


def test_weak_prices_decide_nothing(lasting: Catalog) -> None:
    weak = replace(
        lasting,
        offers=tuple(
            replace(offer, confidence="low")
            if offer.purchase == "spot"
            else offer
            for offer in lasting.offers
        ),
    )
    [pool] = find(weak, promised(), keep=0).pools
    assert {part.purchase for part in pool.purchases} == {"on_demand"}
    # A person may take them all the same.
    text = promised(base="50%").replace(", availability: 99.9%", "")
    assert parts(find(weak, text, keep=0))["spot"]


def test_a_promise_that_spot_alone_cannot_keep_is_not_made(
    lasting: Catalog,
) -> None:
    text = promised("99.999%").replace("on_demand_base: auto", "spot: only")
    assert not find(lasting, text, keep=0).pools
    kept = find(lasting, text.replace("99.999%", "99%"), keep=0)
    assert parts(kept) == {"spot": kept.pools[0].nodes}
    assert promise_of(kept)["high_rate_share"] >= 0.99


def test_a_stated_share_has_as_many_spares_as_the_promise_needs(
    lasting: Catalog,
) -> None:
    """Without a promise nothing is known of reclaims, and no machine is there for them."""
    text = promised("99.99%", "20%")
    careless = find(lasting, text.replace(", availability: 99.99%", ""), keep=0)
    careful = find(lasting, text, keep=0)
    assert careful.pools[0].nodes > careless.pools[0].nodes
    assert promise_of(careful)["high_rate_share"] >= 0.9999


def test_a_commitment_stands_below_the_base(lasting: Catalog) -> None:
    """The base runs at night too, so what it costs falls with a commitment."""
    text = promised("99.999%", more=", commit: [none, 1y, 3y]")
    mixed = find(lasting, text, keep=0)
    assert present(mixed.bill).total <= total(lasting, promised("99.999%"))
    assert {"reserved_3y", "spot"} <= set(parts(mixed))


def test_a_commitment_hides_no_machine_on_spot(lasting: Catalog) -> None:
    """How many of a stated base are committed to changes nothing of what is taken back."""
    text = promised("99.99%", "20%", more=", commit: [none, 3y]")
    solution = find(lasting, text, keep=0)
    assert promise_of(solution)["high_rate_share"] >= 0.9999
    assert total(lasting, text) <= total(lasting, promised("99.99%", "20%"))


@pytest.mark.parametrize("cloud", clouds())
def test_what_is_promised_is_built_and_billed(
    catalog: Catalog, here: Path, cloud: str
) -> None:
    """A base and spot above it, in groups of their own, at what was planned."""
    text = promised(
        "97%", profile="business-hours", where=f"where: {{clouds: [{cloud}]}}"
    )
    calm = replace(
        catalog,
        offers=tuple(
            replace(offer, reclaim_band=ReclaimBand(0.0, 0.9, "2026-11"))
            if offer.purchase == "spot"
            else offer
            for offer in fresh(catalog).offers
        ),
    )
    text = text.replace("97%", "99.9%")
    plan = plan_of(calm, text)
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    world = engine.shared_world
    advance(world, 7 * SECONDS_PER_DAY)
    begin = world.view().memory.seconds
    advance(world, WEEKS * 7 * SECONDS_PER_DAY)
    memory = world.view().memory
    [machines] = [
        line
        for line in metered_lines(memory, calm, begin, memory.seconds)
        if line.kind == "accelerators"
    ]
    planned = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind == "accelerators"
    )
    month = Decimal(730) / (WEEKS * 168)
    assert float(machines.usd * month) == pytest.approx(
        float(planned), rel=0.01
    )
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_the_page_says_both_ends(tonnage: Command, here: Path) -> None:
    (here / "spec.yaml").write_text(promised("99.99%"))
    code, page, _ = tonnage("plan", "spec.yaml")
    assert code == 0
    said = re.sub(r"\s+", " ", page)
    assert re.search(
        r"enough machines are up 99\.99\d% of the time at the highest published rate of "
        r"reclaims, (99\.99\d|100\.000)% at the lowest; there \d+ that stay of \d+ would do, "
        r"for \$[\d,]+\.\d\d",
        said,
    )


def test_a_commitment_that_is_cheaper_than_spot_is_bought(
    catalog: Catalog,
) -> None:
    """Leaving the base to the planner is a wider choice than any base that it may choose."""
    few = only(
        catalog,
        lambda offer: (
            offer.instance.accelerator == "a100-40gb-sxm"
            and offer.region == "eu-central-1"
        ),
    )
    committed = promised("99.5%").replace(
        "on_demand_base: auto", "commit: [none, 3y]"
    )
    auto = promised("99.5%", more=", commit: [none, 3y]")
    assert total(few, auto) <= total(few, committed)
    assert "spot" not in parts(find(few, auto, keep=0))


def test_a_dearer_region_is_taken_where_spot_lasts(catalog: Catalog) -> None:
    """The cheapest region of a type may be one in which nothing can be promised."""
    few = only(
        catalog,
        lambda offer: (
            offer.provider == "aws"
            and offer.instance.accelerator == "a100-40gb-sxm"
        ),
    )
    text = promised("99%").replace("on_demand_base: auto", "spot: only")
    alone = [
        bill.total
        for region in sorted({offer.region for offer in few.offers})
        if (
            bill := find(
                only(few, lambda offer, region=region: offer.region == region),  # type: ignore[misc]
                text,
                keep=0,
            ).bill
        )
    ]
    assert alone
    assert total(few, text) == min(alone)


def test_a_spare_group_in_all_hours_may_be_enough(lasting: Catalog) -> None:
    """Failures alone ask for a spare from some load on; reclaims for one in every hour."""
    text = promised("99.9%", profile="business-hours").replace(
        "peak_rps: 30", "peak_rps: 200"
    )
    solution = find(lasting, text, keep=0)
    [pool] = solution.pools
    assert promise_of(solution)["high_rate_share"] >= 0.999
    assert pool.spares.from_load == 0
    regions = sorted({offer.region for offer in lasting.offers})
    assert present(solution.bill).total == min(
        bill.total
        for region in regions
        if (
            bill := find(
                only(
                    lasting,
                    lambda offer, region=region: offer.region == region,  # type: ignore[misc]
                ),
                text,
                keep=0,
            ).bill
        )
    )


def test_what_survives_a_zone_is_explained_at_any_load(
    tonnage: Command, here: Path
) -> None:
    """Thousands of groups are looked at where a limit is tight."""
    (here / "spec.yaml").write_text(
        promised("99.9%").replace("sla: {", "sla: {survives: zone, ")
    )
    code, page, told = tonnage("explain", "spec.yaml", "--pareto")
    assert code == 0, told
    assert "INFEASIBLE" not in page
