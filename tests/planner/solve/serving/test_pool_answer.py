"""What an answer says of a cache that the search has chosen."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.replica import Confidence, Replica
from planner.sentence import describe
from planner.solve.serving.requirement import serving_requirement
from planner.spec.model import Inference
from tests.conftest import ROOT, find, present, spec_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.solve.solution import Solution

# Long questions on machines of one accelerator: they are full of cache.
LONG = (ROOT / "blueprints/rag-prefix-cache.yaml").read_text()
# So many requests that guesses spare machines.
EXPERTS = (
    (ROOT / "blueprints/moe-deepseek-r1.yaml")
    .read_text()
    .replace("peak_rps: 1\n", "peak_rps: 2.5\n")
)


def with_cache(kv_precision: str) -> str:
    return LONG.replace(
        "model:\n", f"model:\n  kv_precision: {kv_precision}\n", 1
    )


def cache_of(solution: Solution) -> str:
    return present(solution.pools[0].layout).kv_precision


def cost_of(solution: Solution) -> Decimal:
    return present(solution.bill).total


def told(solution: Solution, code: str = "small-cache") -> list[str]:
    return [
        describe(warning.reason)
        for warning in solution.warnings
        if warning.code == code
    ]


def test_a_cache_of_8_bits_is_chosen_where_it_saves_and_says_how_much(
    catalog: Catalog,
) -> None:
    chosen = find(catalog, with_cache("auto"), keep=0)
    default = find(catalog, with_cache("bf16"), keep=0)
    assert (cache_of(chosen), cache_of(default)) == ("fp8", "bf16")
    saved_usd = cost_of(default) - cost_of(chosen)
    assert saved_usd > 0
    [sentence] = told(chosen)
    assert "write model.kv_precision: bf16" in sentence
    # What it saves takes another plan: it is told with what the wishes cost.
    assert not told(chosen, "default-cache")
    [sentence] = told(chosen.explained(), "default-cache")
    assert f"saves ${saved_usd:,.2f}" in sentence


def test_nothing_is_said_of_a_cache_that_the_spec_names(
    catalog: Catalog,
) -> None:
    assert not told(find(catalog, with_cache("fp8"), keep=0))
    assert not told(find(catalog, with_cache("bf16"), keep=0))


def test_nothing_is_said_of_a_cache_that_the_engine_alone_has(
    catalog: Catalog,
) -> None:
    """The way out would be refused: nothing asks TensorRT-LLM for 16 bits beside fp8 weights."""
    text = (
        "serving: {engine: tensorrt-llm}\n"
        + (ROOT / "blueprints/moe-deepseek-r1.yaml").read_text()
    )
    solution = find(catalog, text, keep=0)
    assert cache_of(solution) == "fp8"
    assert not told(solution)
    assert not told(solution.explained(), "default-cache")


def test_of_equal_costs_the_cache_stays_as_the_engine_takes_it(
    catalog: Catalog,
) -> None:
    large = (ROOT / "blueprints/chat-70b.yaml").read_text()
    solution = find(catalog, large, keep=0)
    assert cache_of(solution) == "bf16"
    assert not told(solution)
    assert not told(solution.explained(), "default-cache")


def test_a_cache_of_8_bits_gives_room_and_promises_no_speed(
    catalog: Catalog,
) -> None:
    spec = spec_of(LONG)
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    offer = next(
        offer
        for kind in catalog.offer_groups
        for offer in kind
        if offer.instance.instance_type == "p5.4xlarge"
    )
    layouts = {
        kv_precision: ReplicaLayout(
            precision="fp8", kv_precision=kv_precision, tp=1
        )
        for kv_precision in ("bf16", "fp8")
    }
    large, small = (
        Replica(
            requirement.llm,
            layout,
            offer.instance.node,
            requirement.load.shape,
            Confidence(level=0.9),
            metrics=requirement.metrics,
        )
        for layout in layouts.values()
    )
    assert small.max_batch >= 1.9 * large.max_batch
    for batch_size in (1, 8, large.max_batch):
        assert small.tpot(batch_size) == large.tpot(batch_size)


def speculating(words: str) -> str:
    return EXPERTS.replace("model:\n", f"serving: {{{words}}}\nmodel:\n", 1)


def test_without_speculation_the_plan_is_that_of_a_spec_that_says_nothing(
    catalog: Catalog,
) -> None:
    silent, off = (
        find(catalog, text, keep=0)
        for text in (EXPERTS, speculating("speculation: off"))
    )
    assert (silent.pools, silent.bill, silent.predictions) == (
        off.pools,
        off.bill,
        off.predictions,
    )
    assert not told(silent, "draft")


def test_a_plan_with_guesses_says_what_they_assume_and_what_it_costs_without(
    catalog: Catalog,
) -> None:
    plain = find(catalog, EXPERTS, keep=0)
    guessing = find(catalog, speculating("speculation: mtp"), keep=0)
    assert cost_of(guessing) < cost_of(plain)
    [sentence] = told(guessing, "draft")
    assert "85%" in sentence
    [sentence] = told(guessing.explained(), "no-draft")
    assert f"${cost_of(plain):,.2f}" in sentence
    # Guesses that are seldom right cost time, and no plan is cheaper for them.
    seldom = speculating("speculation: mtp, acceptance: 1%")
    assert cost_of(find(catalog, seldom, keep=0)) >= cost_of(plain)
