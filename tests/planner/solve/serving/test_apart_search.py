"""Pools of prompts and answers: equal to brute force where replicas carry what a test says."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from planner.cost.service_price import PriceBook
from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.replica import Replica
from planner.sentence import describe
from planner.solve.serving.apart_fleet import common_zones, part_requirements
from planner.solve.serving.apart_judge import PARTS, ApartJudge
from planner.solve.serving.apart_rule import may_hand_over, may_take_part
from planner.solve.serving.apart_search import ApartSearch
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import Inference
from planner.units import HOURS_PER_MONTH
from tests.conftest import find, only, present, solve, spec_of
from tests.planner.perf.serving.test_simulation import LOAD
from tests.planner.perf.test_serving import node

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.solve.serving.apart_judge import ChainEnd, Part
    from planner.solve.serving.requirement import ServingRequirement

TYPES = (
    "g6.xlarge",
    "g6e.xlarge",
    "g6.12xlarge",
    "p5.4xlarge",
    "p5en.48xlarge",
)
REGIONS = ("us-east-1", "us-east-2", "us-west-2")
MOST_GROUPS = 40
CASES = range(60)
SPLIT = """\
apiVersion: tonnage/v1
kind: Inference
name: split
model: {name: llama-3.1-70b}
sla: {ttft_p95: 3s, tpot_p95: TPOT}
serving: {pools: POOLS}
where: {clouds: [aws]}
traffic:
  peak_rps: RATE
  input_tokens: {mean: 1000, p95: 3000}
  output_tokens: {mean: 200, p95: 600}
"""
LARGE = ("p5.48xlarge", "p5en.48xlarge")


def required(peak_rps: float) -> ServingRequirement:
    text = SPLIT.replace("llama-3.1-70b", "llama-3.1-8b")
    text = text.replace("TPOT", "80ms").replace("RATE", str(peak_rps))
    spec = spec_of(text.replace("POOLS", "auto"))
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


class StatedTrial:
    """A run that keeps all limits."""

    def misses(self, _limits: Any) -> bool:
        return False


class StatedJudge(ApartJudge):
    """A judge who lets a replica carry a stated rate of each part, and pairs what both carry."""

    def __init__(self, requirement: ServingRequirement, seed: int) -> None:
        super().__init__(requirement.load)
        self._draw = random.Random(seed)
        self._stated_rps: dict[tuple[str, str], float] = {}

    def stated_rps(self, part: Part, replica: Replica) -> float:
        """What a replica carries of one part; some carry nothing."""
        name = f"{replica.node.accelerator.accelerator} {replica.layout}"
        if (part, name) not in self._stated_rps:
            share = self._draw.choice((0.0, 0.3, 0.5, 0.8))
            self._stated_rps[part, name] = share * self.most_rps(part, replica)
        return self._stated_rps[part, name]

    def misses(
        self,
        requirement: ServingRequirement,
        part: Part,
        replica: Replica,
        replica_count: int,
    ) -> bool:
        rate_rps = requirement.load.rate_per_s / replica_count
        return rate_rps > self.stated_rps(part, replica) * (1 + 1e-9)

    def most_handed_rps(self, _end: ChainEnd) -> float:
        return math.inf

    def may_start_in_time(self, *_: Any) -> bool:
        return True

    def chain(self, *_: Any) -> Any:
        return StatedTrial()


def priced(catalog: Catalog, draw: random.Random) -> list[Offer]:
    """Some machine types in some of three regions, at drawn prices and in drawn zones."""
    return [
        replace(
            offer,
            usd_hour=Decimal(draw.randint(50, 900)) / 100,
            mix=None,
            zones=tuple(draw.sample(("a", "b", "c"), draw.randint(1, 2))),
        )
        for offer in catalog.offers
        if offer.instance.instance_type in TYPES
        and offer.region in REGIONS
        and offer.purchase == "on_demand"
        and draw.random() < 0.8
    ]


def by_brute_force(
    search: ServingSearch,
    judge: StatedJudge,
    requirement: ServingRequirement,
    offers: list[Offer],
) -> Decimal | None:
    """The least cost of a pool for each part in one zone, counted out."""
    rate_rps = requirement.load.rate_per_s
    pools: dict[Part, list[tuple[Offer, Replica, Decimal]]] = {
        part: [] for part in PARTS
    }
    for offer in offers:
        for replica, group in search.one_node_replicas(requirement, offer):
            if not replica.max_batch or not may_take_part(offer, replica):
                continue
            for part in PARTS:
                carried = judge.stated_rps(part, replica) * group.replicas
                enough = next(
                    (
                        groups
                        for groups in range(1, MOST_GROUPS + 1)
                        if groups * carried >= rate_rps * (1 - 1e-9)
                    ),
                    None,
                )
                if enough is not None:
                    usd = HOURS_PER_MONTH * enough * offer.usd_hour
                    pools[part].append((offer, replica, usd))
    costs = [
        first_usd + second_usd
        for (first, prompts, first_usd), (
            second,
            answers,
            second_usd,
        ) in itertools.product(pools["prompts"], pools["answers"])
        if first.region == second.region
        and set(first.zones) & set(second.zones)
        and may_hand_over(prompts, answers)
    ]
    return min(costs, default=None)


@pytest.mark.parametrize("seed", CASES)
def test_no_pair_of_pools_is_cheaper(catalog: Catalog, seed: int) -> None:
    """Random prices, regions, zones and capacities: to the cent, or nothing where it is."""
    draw = random.Random(seed)
    offers = priced(catalog, draw)
    requirement = required(draw.choice([0.5, 3, 9, 15]))
    search = ServingSearch(PriceBook({}))
    judge = StatedJudge(requirement, seed)
    expected = by_brute_force(search, judge, requirement, offers)
    found = ApartSearch(requirement, search, judge).cheapest(offers, math.inf)
    assert (found.bill.total if found else None) == expected
    if found is not None:
        prompts, answers = found.pools
        assert prompts.offer.zones == answers.offer.zones
        assert len(prompts.offer.zones) == 1


def test_a_ceiling_leaves_out_what_costs_as_much(catalog: Catalog) -> None:
    requirement = required(3)
    search = ServingSearch(PriceBook({}))
    judge = StatedJudge(requirement, 4)
    offers = priced(catalog, random.Random(4))
    found = present(
        ApartSearch(requirement, search, judge).cheapest(offers, math.inf)
    )
    usd = float(found.bill.total)
    for ceiling_usd, is_found in ((usd, False), (usd + 0.01, True)):
        again = ApartSearch(requirement, search, judge).cheapest(
            offers, ceiling_usd
        )
        assert (again is not None) == is_found


def replica_on(
    chip: str, tp: int, kv: str = "bf16", model: str = "llama-3.1-70b"
) -> Replica:
    layout = ReplicaLayout(precision="fp8", kv_precision=kv, tp=tp)
    return Replica(find_model(model), layout, node(chip), LOAD)


@pytest.mark.parametrize(
    ("prompts", "answers", "may"),
    [
        (("h100-sxm", 8), ("h200-sxm", 8), True),
        (("h100-sxm", 2), ("h200-sxm", 8), True),
        (("h100-sxm", 8), ("h200-sxm", 2), True),
        # Eight heads of the cache on sixteen accelerators: some hold a copy.
        (("h100-sxm", 16), ("h200-sxm", 8), False),
        (("h100-sxm", 8), ("h200-sxm", 6), False),
        (("h100-sxm", 8, "fp8"), ("h200-sxm", 8, "bf16"), False),
        # Kernels of Ampere and Hopper are the same for a cache of 16 bits alone.
        (("a100-80gb-sxm", 8), ("h100-sxm", 8), True),
        (("a100-80gb-sxm", 8, "fp8"), ("h100-sxm", 8, "fp8"), False),
        (("b200-sxm", 8), ("h100-sxm", 8), False),
        (("b200-sxm", 8), ("b200-sxm", 8), True),
    ],
)
def test_who_may_hand_caches_to_whom(
    prompts: Any, answers: Any, *, may: bool
) -> None:
    assert may_hand_over(replica_on(*prompts), replica_on(*answers)) == may


def test_latent_attention_wants_the_same_generation() -> None:
    pairs = [
        (
            replica_on(first, 8, model="deepseek-v3"),
            replica_on("h100-sxm", 8, model="deepseek-v3"),
        )
        for first in ("a100-80gb-sxm", "h200-sxm")
    ]
    assert [may_hand_over(*pair) for pair in pairs] == [False, True]


def few(catalog: Catalog) -> Catalog:
    return only(
        catalog,
        lambda offer: (
            offer.instance.instance_type in LARGE
            and offer.purchase == "on_demand"
        ),
    )


def text_of(tpot: str, rate: float, pools: str) -> str:
    text = SPLIT.replace("TPOT", tpot).replace("RATE", str(rate))
    return text.replace("POOLS", pools)


@pytest.mark.parametrize("rate", [2, 20])
@pytest.mark.parametrize("tpot", ["15ms", "20ms", "60ms"])
def test_apart_is_taken_where_it_costs_less_and_nowhere_else(
    catalog: Catalog, tpot: str, rate: float
) -> None:
    sold = few(catalog)
    together = present(find(sold, text_of(tpot, rate, "together")).bill)
    answer = find(sold, text_of(tpot, rate, "auto"))
    bill = present(answer.bill)
    is_apart = len(answer.pools) == 2
    assert is_apart == (bill.total < together.total)
    assert is_apart or bill.total == together.total


def test_the_answer_says_what_it_saves_and_promises(catalog: Catalog) -> None:
    sold = few(catalog)
    together = present(find(sold, text_of("15ms", 20, "together")).bill)
    answer = solve(sold, text_of("15ms", 20, "auto"))
    bill = present(answer.bill)
    told = {
        warning.code: describe(warning.reason) for warning in answer.warnings
    }
    assert f"${together.total - bill.total:,.2f}" in told["apart"]
    assert "TCP" in told["hand-over"]
    [rival] = [
        alternative
        for alternative in answer.alternatives
        if alternative.usd == together.total
    ]
    assert rival is not None
    assert [pool.part for pool in answer.pools] == ["prompts", "answers"]
    check = present(answer.simulation_check)
    assert check.percentile_bands["tpot_p95_ms"][0] <= 15
    assert check.percentile_bands["ttft_p95_ms"][0] <= 3000
    for metric in ("ttft", "tpot", "e2e"):
        values = [
            answer.predictions[f"{metric}_p{percentile}_ms"].value
            for percentile in (50, 90, 95, 99)
        ]
        assert values == sorted(values)
        # As slow as the confidence asks for is slower than expected.
        assert values[2] < check.percentile_bands[f"{metric}_p95_ms"][0]
    assert answer.predictions["requests_per_s"].value == 20
    assert 0 < answer.predictions["busy_fraction"].value < 1


def test_requests_are_billed_once_and_machines_of_both_pools(
    catalog: Catalog,
) -> None:
    sold = few(catalog)
    bills = [
        present(find(sold, text_of("15ms", 20, pools)).bill)
        for pools in ("together", "auto")
    ]
    together, apart = (
        next(line for line in bill.lines if line.kind == "load_balancer_unit")
        for bill in bills
    )
    assert apart.quantity == together.quantity > 0
    pools = {line.pool for line in bills[1].lines if line.pool}
    assert pools == {"prompts", "answers"}


def test_both_pools_are_up_as_often_as_is_asked(catalog: Catalog) -> None:
    text = text_of("15ms", 20, "auto").replace(
        "sla: {", "sla: {availability: 99.9%, survives: node, "
    )
    answer = find(few(catalog), text)
    if len(answer.pools) == 2:
        assert all(pool.spares.count >= 1 for pool in answer.pools)
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    whole = serving_requirement(spec, lambda _: b"")
    product = Decimal(1)
    for part in part_requirements(whole):
        product *= present(part.availability)
        assert part.load.rate_per_s == whole.load.rate_per_s
    assert float(product) == pytest.approx(0.999)


def test_zones_are_those_that_both_have_in_the_order_of_the_first(
    catalog: Catalog,
) -> None:
    offers = [
        replace(offer, zones=zones)
        for offer, zones in zip(
            catalog.offers[:2], (("c", "a", "b"), ("b", "c")), strict=True
        )
    ]
    assert common_zones(*offers) == ("c", "b")
