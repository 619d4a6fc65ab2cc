"""A service with machines of their own for long requests: what it promises, tells and builds."""

from __future__ import annotations

import itertools
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.perf.common.constant import constant
from planner.perf.serving.monte_carlo import RequestStream
from planner.sentence import describe
from planner.solve.serving.class_search import ClassSearch
from planner.solve.serving.length_class import text_bytes
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.settings import SolveSettings
from planner.spec.model import Inference
from planner.workload.solver import what_if
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.runtime.vm.node.length_rule import up_to_pattern
from stacks.runtime.vm.serving import server_words, serving_work
from stacks.spec.stack import derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, find, present, solve, spec_of
from tests.planner.solve.serving.test_mixed_answer import (
    played,
    with_prices,
)
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
)
from tests.stacks.test_build import check

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog
    from planner.perf.serving.simulation import Request

# A machine that holds the longest context and a small one that does not, of each cloud.
TYPES = {
    "aws": {"g6e.xlarge": "8.00", "g6.xlarge": "0.20"},
    "gcp": {"a2-highgpu-1g": "8.00", "g2-standard-4": "0.20"},
    "azure": {
        "Standard_NC24ads_A100_v4": "8.00",
        "Standard_NV36ads_A10_v5": "0.20",
    },
}
LIMITS_S = {"ttft": 10.0, "tpot": 0.15}
TEXT = text_bytes(None)


def documents(cloud: str, classes: str = "auto", more: str = "") -> str:
    return f"""
apiVersion: tonnage/v1
kind: Inference
name: chat
model: {{name: llama-3.1-8b, precision: bf16, context: 96k}}
traffic:
  peak_rps: 8
  input_tokens: {{mean: 1000, p95: 3000}}
  output_tokens: 100
sla: {{ttft_p95: 10s, tpot_p95: 150ms}}
serving: {{classes: {classes}}}
where: {{clouds: [{cloud}]}}
buy: {{spot: never}}
{more}"""


def repriced(catalog: Catalog, cloud: str) -> Catalog:
    return with_prices(catalog, cloud, TYPES[cloud])


@pytest.mark.parametrize("cloud", TYPES)
def test_it_costs_less_than_one_pool_and_is_built(
    catalog: Catalog, cloud: str, here: Path
) -> None:
    """On each cloud: two groups of which one takes everything, applied and destroyed."""
    few = repriced(catalog, cloud)
    alone = present(find(few, documents(cloud, "none")).bill)
    text = documents(cloud)
    solution = find(few, text)
    assert present(solution.bill).total < alone.total
    assert [pool.name for pool in solution.pools] == [
        "serve-short",
        "serve-long",
    ]
    assert len({pool.region for pool in solution.pools}) == 1
    assert solution.predictions["requests_per_s"].value == pytest.approx(8)
    [rival] = solution.alternatives
    assert rival.usd == alone.total
    check(build_stack(spec_of(text), solution, "chat").graph)
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(few, text)
    short, long = plan.solution.pools
    assert present(short.requests).length == "short"
    assert present(long.requests).length == "long"
    assert present(short.requests).verified is not None
    assert "tpot_p95_ms" in present(long.requests).predicted
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_machines_are_told_what_the_plan_says(catalog: Catalog) -> None:
    """The border and the contexts: of records of the router, and of engines."""
    text = documents("aws")
    spec = spec_of(text)
    solution = find(repriced(catalog, "aws"), text)
    stack = derive_stack(spec, solution, "chat")
    assert stack.has_router
    limits = []
    for fleet, pool in zip(stack.fleets, solution.pools, strict=True):
        layout = present(fleet.layout)
        [group] = fleet.scaling_groups
        work = serving_work(stack, fleet, group, layout)
        limits.append(work["router"].get("body_limit", 0))
        words = server_words(stack, fleet, layout)
        context = (
            words[words.index("--max-model-len") + 1]
            if ("--max-model-len" in words)
            else next(
                word.partition("=")[2]
                for word in words
                if word.startswith("--max-model-len=")
            )
        )
        assert int(context) == pool.context_tokens
    taken = present(solution.pools[0].requests)
    assert limits == [taken.body_bytes, 0]
    assert solution.pools[0].context_tokens > taken.body_bytes
    assert solution.pools[1].context_tokens == 96_000 or (
        solution.pools[1].context_tokens == 96 * 1024
    )


@pytest.mark.parametrize("told", ["least", "most", "any"])
def test_all_requests_keep_the_limits_whatever_their_text(
    catalog: Catalog, told: str
) -> None:
    """One stream, drawn anew and divided by the rule of the proxy, played on all machines."""
    few = repriced(catalog, "aws")
    spec = spec_of(documents("aws"))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(few.price_book)
    fleet = present(
        ClassSearch(requirement, search, TEXT).cheapest(
            few.offers, few.offers, math.inf
        )
    )
    is_short = re.compile(up_to_pattern(fleet.classes[0].body_bytes)).fullmatch
    draw = random.Random(3)
    stream = RequestStream(requirement.load, seed=11)
    machines = [[pool] * pool.sizing.peak_groups for pool in fleet.pools]
    sent: list[list[list[Request]]] = [[[] for _ in same] for same in machines]
    for request in itertools.islice(stream.requests(1.0, 8.0), 12_000):
        token_bytes = {
            "least": TEXT.least,
            "most": TEXT.most,
            "any": draw.uniform(TEXT.least, TEXT.most),
        }[told]
        frame = 0 if told == "least" else constant("request_frame")
        body = math.floor(request.prompt_tokens * token_bytes + frame)
        side = 0 if is_short(str(body)) else 1
        assert request.prompt_tokens <= (
            fleet.pools[side].requirement.load.max_context_tokens
        )
        draw.choice(sent[side]).append(request)
    for same, queues in zip(machines, sent, strict=True):
        assert all(queues)
        times = [
            played(pool, requests)
            for pool, requests in zip(same, queues, strict=True)
        ]
        for metric, limit_s in LIMITS_S.items():
            values = sorted(
                value for machine in times for value in machine[metric]
            )
            assert values[int(0.95 * len(values))] <= limit_s


@pytest.mark.parametrize(("burstiness", "is_told"), [("1", False), ("3", True)])
def test_quiet_hours_of_a_class_are_told_where_they_miss_a_limit(
    catalog: Catalog, burstiness: str, *, is_told: bool
) -> None:
    """Clumps weigh more on the few machines of a night than on those of the day."""
    few = repriced(catalog, "aws")
    nights = ", ".join(["0.1"] * 12 + ["1"] * 12)
    text = documents("aws").replace(
        "peak_rps: 8",
        f"peak_rps: 20\n  burstiness: {burstiness}\n  profile: [{nights}]",
    )
    solution = find(few, text)
    assert len(solution.pools) == 2
    told = [w.reason for w in solution.warnings if w.code == "quiet-hours"]
    assert bool(told) == is_told
    for reason in told:
        reached_s, limit_s = (
            float(reason.values[name]) for name in ("reached_s", "limit_s")
        )
        assert reached_s > limit_s


def test_the_plan_says_the_rule_or_that_there_is_none(catalog: Catalog) -> None:
    few = repriced(catalog, "aws")
    text = documents("aws")
    solution = find(few, text)
    taken = present(solution.pools[0].requests)
    [rule] = [
        describe(warning.reason)
        for warning in solution.warnings
        if warning.code == "classes"
    ]
    for number in (taken.body_bytes, taken.sure_tokens, taken.most_tokens):
        assert f"{number:,}" in rule
    dear = replace(
        few,
        offers=tuple(
            replace(offer, usd_hour=Decimal(8)) for offer in few.offers
        ),
    )
    whole = find(dear, text)
    assert len(whole.pools) == 1
    [note] = [w for w in whole.warnings if w.code == "classes"]
    assert "at none of 5 borders" in describe(note.reason)
    none = find(few, documents("aws", "none"))
    assert not [w for w in none.warnings if w.code == "classes"]


def test_wishes_are_priced_against_two_classes_too(catalog: Catalog) -> None:
    """No wish that is left out makes the plan dearer, and more traffic is planned alike."""
    few = repriced(catalog, "aws")
    solution = solve(few, documents("aws"))
    assert len(solution.pools) == 2
    for binding in solution.bindings:
        assert present(binding.saves_usd) > 0
    settings = SolveSettings(
        catalog=few,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    half = documents("aws").replace("peak_rps: 8", "peak_rps: 4")
    twice = what_if(spec_of(half), settings, 2.0)
    assert twice.fleet == find(few, documents("aws")).summary


def test_a_told_mean_of_bytes_moves_the_border(catalog: Catalog) -> None:
    few = repriced(catalog, "aws")
    borders = [
        present(
            find(
                few,
                documents(
                    "aws", more=f"usage: {{prompt_bytes_per_token: {x}}}"
                ),
            )
            .pools[0]
            .requests
        ).body_bytes
        for x in (3, 6)
    ]
    assert borders[1] > 1.5 * borders[0]


def test_each_pool_is_up_often_enough_for_both(catalog: Catalog) -> None:
    few = repriced(catalog, "aws")
    text = documents("aws").replace(
        "tpot_p95: 150ms", "tpot_p95: 150ms, availability: 99.9%"
    )
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    fleet = present(
        ClassSearch(requirement, ServingSearch(few.price_book), TEXT).cheapest(
            few.offers, few.offers, math.inf
        )
    )
    asked = [present(pool.requirement.availability) for pool in fleet.pools]
    assert math.prod(asked) == pytest.approx(Decimal("0.999"))
    assert all(pool.sizing.spares.count for pool in fleet.pools)


def recorded() -> bytes:
    """Eight requests a second for ten minutes: some of them have prompts of a document."""
    draw = random.Random(2)
    rows = ["timestamp,input_tokens,output_tokens"]
    time_s = 0.0
    for _ in range(4800):
        time_s += draw.expovariate(8)
        is_document = draw.random() < 0.08
        prompt = (
            draw.randint(4000, 8000) if is_document else draw.randint(50, 900)
        )
        rows.append(f"{time_s:.3f},{prompt},{draw.randint(50, 150)}")
    return "\n".join(rows).encode()


def test_a_recording_is_divided_and_verified_by_itself(
    catalog: Catalog,
) -> None:
    few = repriced(catalog, "aws")
    text = re.sub(
        r"traffic:.*?sla",
        "traffic: {trace: requests.csv}\nsla",
        documents("aws"),
        flags=re.DOTALL,
    )
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: recorded())
    search = ServingSearch(few.price_book)
    fleet = present(
        ClassSearch(requirement, search, TEXT).cheapest(
            few.offers, few.offers, math.inf
        )
    )
    short, long = fleet.pools
    whole = present(requirement.trace)
    taken = fleet.classes[0]
    both_ways = sum(
        taken.sure_tokens < prompt <= taken.most_tokens
        for prompt in whole.prompt_tokens
    )
    counts = [len(present(pool.requirement.trace)) for pool in fleet.pools]
    assert sum(counts) == len(whole) + both_ways
    for pool in (short, long):
        judged = present(search.judge.check(pool.requirement, pool.sizing, 0))
        assert (judged.request_source, judged.verdict) == ("trace", "holds")


def test_the_example_of_the_page_costs_what_it_says(catalog: Catalog) -> None:
    """With the whole catalog: what the page tells of both plans."""
    page = (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
    example = re.search(
        r"## Long requests.*?```yaml\n(.*?)```", page, flags=re.DOTALL
    )
    text = (
        "apiVersion: tonnage/v1\nkind: Inference\nname: assistant\n"
        + present(example)[1]
    )
    solution = find(catalog, text)
    one = find(catalog, text.replace("classes: auto", "classes: none"))
    taken = present(solution.pools[0].requests)
    for told in (
        f"${present(solution.bill).total:,.0f}",
        f"${present(one.bill).total:,.0f}",
        f"{taken.body_bytes:,} bytes",
        f"{taken.sure_tokens:,} tokens",
        f"{taken.most_tokens:,} long",
    ):
        assert told in page
    assert solution.status == "optimal"
