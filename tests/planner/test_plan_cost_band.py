"""The band of a bill: as often right as it says, and wider for what is known less."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from statistics import NormalDist, mean
from typing import Any

import pytest
from msgspec.structs import replace

from planner.cost.traffic_change import next_reach, traffic_ratios
from planner.market.offer import PriceRange
from planner.market.own_prices import read_own_prices
from planner.plan.types import CostBand, CostCause, Plan
from tests.conftest import ROOT, chat, present
from tests.planner.market.test_mix_committed import few
from tests.stacks.engine.test_simulated import plan_of

Z95 = NormalDist().inv_cdf(0.95)
AWS = "buy: {%s}\nwhere: {clouds: [aws]}"


def blueprint(catalog: Any, name: str) -> Plan:
    text = (ROOT / "blueprints" / f"{name}.yaml").read_text()
    return plan_of(catalog, text)


def band_of(plan: Plan) -> CostBand:
    return present(plan.cost.band)


def cause(plan: Plan, name: str) -> CostCause | None:
    return next(
        (one for one in band_of(plan).causes if one.cause == name), None
    )


@pytest.mark.parametrize(
    "name",
    [
        "chat-8b",
        "code-assistant",
        "pretrain-7b",
        "research-spot",
        "summarize-batch",
        "workspace-night",
    ],
)
def test_of_bills_with_independent_causes_nine_in_ten_are_within(
    catalog, name: str
) -> None:
    """Each cause is drawn by itself, with its 5th and 95th percentile where the plan says.

    A price at its upper end rises no more: of such bills more than that are within.
    """
    plan = blueprint(catalog, name)
    band = band_of(plan)
    total = float(plan.cost.total)
    assert band.low <= plan.cost.total <= band.high
    draw = random.Random(7)

    def drawn_usd() -> float:
        usd = total
        for one in band.causes:
            z_score = draw.gauss()
            end = one.low if z_score < 0 else one.high
            usd += abs(z_score) / Z95 * (float(end) - total)
        return usd

    within = mean(
        float(band.low) <= drawn_usd() <= float(band.high)
        for _ in range(20_000)
    )
    is_at_upper_end = any(one.code == "moved-price" for one in plan.warnings)
    expected_share = 0.95 if is_at_upper_end else 0.9
    assert within == pytest.approx(expected_share, abs=0.03)


def test_old_prices_widen_it_and_new_ones_do_not(catalog) -> None:
    small = few(catalog, "g6.xlarge", "us-east-1")
    text = chat(extra=AWS % "")
    spans = []
    for today in ("2026-11-18", "2027-11-18", "2029-11-18"):
        prices = present(
            cause(plan_of(replace(small, as_of=today), text), "prices")
        )
        spans.append(prices.high - prices.low)
    assert spans == sorted(spans)
    assert spans[0] < spans[-1]


def test_spot_is_as_unsure_as_it_was_seen_and_never_above_on_demand(
    catalog,
) -> None:
    """A machine whose price of spot was seen at a tenth of it, and at ten times as much."""
    small = few(catalog, "g6.xlarge", "us-east-1")
    on_demand = next(
        offer for offer in small.offers if offer.purchase == "on_demand"
    )
    text = chat(extra=AWS % "spot: only")

    def prices(seen: PriceRange | None) -> CostCause:
        offers = tuple(
            replace(offer, price_range=seen)
            if offer.purchase == "spot"
            else offer
            for offer in small.offers
        )
        return present(
            cause(plan_of(replace(small, offers=offers), text), "prices")
        )

    spot_usd = next(
        offer.usd_hour for offer in small.offers if offer.purchase == "spot"
    )
    narrow = prices(None)
    wide = prices(PriceRange(spot_usd / 10, spot_usd * 10))
    assert wide.low < narrow.low
    assert wide.high >= narrow.high
    plan = plan_of(small, text)
    [machines] = [
        line for line in plan.cost.lines if line.kind == "accelerators"
    ]
    assert machines.name.endswith("spot")
    dearest = on_demand.usd_hour * machines.quantity
    others = plan.cost.total - present(machines.usd)
    assert wide.high <= dearest + others + Decimal(1)


def test_a_commitment_costs_the_same_in_every_month_of_as_many_days(
    catalog,
) -> None:
    """Against working hours: on demand moves with the working days of a month."""
    small = few(catalog, "g6.xlarge", "us-east-1")
    hours = "shutdown: {schedule: weekdays 09:00-17:00 UTC}\n"
    on_demand = plan_of(small, chat(extra=hours + AWS % ""))
    committed = plan_of(small, chat(extra=hours + AWS % "commit: 3y"))
    spans = {}
    for plan in (on_demand, committed):
        months = present(cause(plan, "months"))
        spans[plan.cost.lines[0].name] = float(
            (months.high - months.low) / plan.cost.total
        )
    assert len(spans) == 2
    most, least = spans.values()
    assert most > least
    # 28 to 31 days of 30.4.
    assert least == pytest.approx(3 / 30.4, abs=0.03)


def test_what_a_time_to_live_ends_costs_the_same_however_fast_it_is(
    catalog,
) -> None:
    plan = blueprint(catalog, "summarize-batch")
    life = present(plan.cost.life)
    assert life.ended_by == "ttl"
    assert cause(plan, "work") is None


def test_a_batch_that_says_when_it_is_done_costs_what_its_time_does(
    catalog,
) -> None:
    plan = blueprint(catalog, "classify-backlog")
    life = present(plan.cost.life)
    assert life.ended_by == "done"
    work = present(cause(plan, "work"))
    machines_usd = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind in ("accelerators", "disk")
    )
    duration = plan.solution.predicted["duration_days"]
    slower = (24 * float(duration.high) + float(life.tail_hours)) / float(
        life.hours
    )
    assert float(work.high - plan.cost.total) == pytest.approx(
        float(machines_usd) * (slower - 1), rel=0.01
    )


def test_a_daily_batch_that_goes_when_idle_costs_what_its_time_does(
    catalog,
) -> None:
    text = (ROOT / "blueprints/summarize-batch.yaml").read_text()
    text = text.replace("ttl: 10h ", "ttl: 10h\n  idle: 30m ")
    plan = plan_of(catalog, text)
    assert "idle: 30m" in text
    work = present(cause(plan, "work"))
    duration = plan.solution.predicted["duration_days"]
    # The tail of half an hour is there however fast the work is.
    assert float(work.low / plan.cost.total) > duration.low / duration.value
    assert float(work.high / plan.cost.total) < duration.high / duration.value
    assert work.low < plan.cost.total < work.high


def test_a_price_of_a_year_may_be_of_its_first_day(catalog) -> None:
    """Its last day may be still to come, which would let it be of today."""
    small = few(catalog, "g6.xlarge", "us-east-1")
    year = catalog.as_of[:4]
    widths = []
    for as_of in (catalog.as_of, year, f"{year}-01-01"):
        dated = replace(
            small,
            offers=tuple(replace(one, as_of=as_of) for one in small.offers),
        )
        prices = present(cause(plan_of(dated, chat(extra=AWS % "")), "prices"))
        widths.append(prices.high - prices.low)
    newest, of_year, of_first_day = widths
    assert newest < of_year == of_first_day


def test_a_price_of_a_contract_does_not_grow_old(catalog) -> None:
    small = few(catalog, "g6.xlarge", "us-east-1")
    rates = b"rates: [{cloud: aws, type: g6.xlarge, usd_hour: 0.80}]\n"
    own = read_own_prices(rates, "prices.yaml").applied(small)
    text = chat(extra=AWS % "")
    listed, agreed = (
        present(cause(plan_of(one, text), "prices")) for one in (small, own)
    )
    [machines] = [
        line
        for line in plan_of(own, text).cost.lines
        if line.kind == "accelerators"
    ]
    assert machines.price_as_of is None
    spread = {one.high - one.low for one in (listed, agreed)}
    # What is left are disks and networks, which are the same in both.
    assert len(spread) == 1


def test_nine_in_ten_of_the_next_changes_are_within_reach_of_a_few() -> None:
    """Whatever services change by in general, three of them tell how far a fourth may."""
    draw = random.Random(11)

    def is_within() -> bool:
        spread = draw.uniform(0.01, 2)
        seen = [draw.gauss(0, spread) for _ in range(3)]
        return abs(draw.gauss(0, spread)) <= next_reach(seen)

    within = mean(is_within() for _ in range(20_000))
    assert within == pytest.approx(0.9, abs=0.01)


PUBLIC = """endpoint:
  public: true
  host: chat.example.com
  certificate: arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012
  api_key: secret://key
"""


@pytest.mark.parametrize("rps", ["0.02", "0.5"])
@pytest.mark.parametrize("endpoint", ["", PUBLIC])
def test_a_fleet_that_stays_costs_at_other_traffic_what_a_plan_of_it_says(
    catalog, endpoint: str, rps: str
) -> None:
    """Gigabytes to the internet are dearer than in proportion: the first hundred are free."""
    small = few(catalog, "g6.xlarge", "us-east-1")
    extra = endpoint + AWS % ""

    def planned(rate: float) -> Plan:
        traffic = f"peak_rps: {rate:.6f}"
        return plan_of(small, chat(traffic=traffic, extra=extra))

    traffic = present(cause(planned(float(rps)), "traffic"))
    for ratio, said in zip(
        traffic_ratios(), (traffic.low, traffic.high), strict=True
    ):
        plan = planned(float(rps) * ratio)
        assert [pool.nodes for pool in plan.solution.pools] == [1]
        # Each line is rounded to the cent.
        assert plan.cost.total == pytest.approx(said, abs=Decimal("0.03"))


def test_machines_of_an_elastic_service_come_and_go_with_its_traffic(
    catalog,
) -> None:
    """Counted by the hour: never below the least, never above the most."""
    small = few(catalog, "g6.xlarge", "us-east-1")
    hours_of_a_day = ", ".join(["1"] * 12 + ["4"] * 12)
    profile = f"\n  profile: [{hours_of_a_day}]"
    elastic = "elastic: {least: 0.5, most: 1.1}\n"
    plan = plan_of(
        small,
        chat(traffic=f"peak_rps: 40{profile}", extra=elastic + AWS % ""),
    )
    [pool] = plan.solution.pools
    most = math.ceil(pool.nodes * 1.1)
    groups = pool.nodes - pool.spare_groups

    def hours(ratio: float) -> int:
        loads = (1 / 4, 1.0)

        def nodes(share: float, load: float) -> int:
            return max(1, math.ceil(groups * share * load - 1e-9))

        return sum(
            12
            * min(
                most,
                pool.spare_groups + max(nodes(0.5, load), nodes(ratio, load)),
            )
            for load in loads
        )

    assert pool.spare_groups == 0
    traffic = present(cause(plan, "traffic"))
    by_hour = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind in ("accelerators", "disk", "logs", "nat_data")
    )
    by_byte = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind in ("load_balancer_unit", "cross_zone")
    )
    for ratio, said in zip(
        traffic_ratios(), (traffic.low, traffic.high), strict=True
    ):
        more_hours = Decimal(hours(ratio)) / hours(1) - 1
        expected = (
            plan.cost.total
            + by_hour * more_hours
            + by_byte * (Decimal(ratio) - 1)
        )
        assert said == pytest.approx(expected, abs=Decimal("0.05"))
    assert traffic.low < plan.cost.total < traffic.high


def test_of_a_job_no_traffic_moves_the_bill(catalog) -> None:
    for name in ("classify-backlog", "pretrain-7b", "workspace-night"):
        assert cause(blueprint(catalog, name), "traffic") is None


def test_the_dearest_month_has_31_days(catalog) -> None:
    """A fleet that always runs pays 744 hours then, and no months but the long ones as much."""
    plan = plan_of(
        catalog, chat(extra=AWS % "spot: never", traffic="peak_rps: 1")
    )
    months = present(cause(plan, "months"))
    dearest_usd = present(band_of(plan).dearest_month_usd)
    assert dearest_usd == months.high
    assert float(dearest_usd) == pytest.approx(
        float(plan.cost.total) * 744 / 730, rel=2e-3
    )
    job = blueprint(catalog, "pretrain-7b")
    assert band_of(job).dearest_month_usd is None


def test_where_spot_is_taken_back_more_often_less_is_paid(catalog) -> None:
    """Until a cloud has one again, nobody pays for a machine."""
    extra = "buy: {spot: only}\nwhere: {clouds: [gcp]}"
    plan = plan_of(catalog, chat(extra=extra))
    reclaims = present(cause(plan, "reclaims"))
    assert reclaims.low < plan.cost.total <= reclaims.high
    assert float(reclaims.low) > 0.5 * float(plan.cost.total)
    on_demand = plan_of(catalog, chat(extra="buy: {spot: never}"))
    assert cause(on_demand, "reclaims") is None
