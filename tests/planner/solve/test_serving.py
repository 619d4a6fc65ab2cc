"""The solver against brute force, and the laws that any solver must keep."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.errors import MissingError, SpecError
from planner.market.offer import Offer
from planner.market.offer_filter import OfferFilter, spec_rules
from planner.sentence import describe
from planner.solve.cause import DEARER
from planner.solve.serving.cloud_limit import obtainable
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingResult, ServingSearch
from planner.solve.serving.sizing import run_time_s, sized_fleet
from planner.solve.settings import DEFAULT_CONFIDENCE, Memory, SolveSettings
from planner.spec.model import Batch, Inference
from planner.workload.registry import workload_of
from planner.workload.solver import find, what_if, why_not
from planner.workload.solver import solve as solve_spec
from stacks.spec.table import unsupported_reason
from tests.conftest import BLUEPRINTS, chat, only, present, solve, spec_of
from tests.conftest import find as find_fleet
from tests.oracles import brute

# `make brute-force` compares 5,000.
BRUTE_CASES = int(os.environ.get("TONNAGE_BRUTE_CASES", "200"))
DEAREST = Decimal(20_000)  # USD a month that nothing is looked for beyond
MODELS = (
    "llama-3.1-8b",
    "qwen2.5-32b",
    "gpt-oss-20b",
    "mixtral-8x7b",
    "gemma-3-12b",
)


def inference_spec(text: str) -> Inference:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    return spec


def buildable_offers(catalog, most_accelerators: int) -> list[Offer]:
    return [
        o
        for kind in catalog.offer_groups
        for o in kind
        if unsupported_reason(o.instance) is None
        and o.instance.chip.bandwidth_gb_s
        and o.instance.accelerators <= most_accelerators
    ]


def random_case(catalog, seed: int):
    """A small catalog and a spec, drawn from a seed that the test's name shows."""
    draw = random.Random(seed)
    offers = tuple(draw.sample(buildable_offers(catalog, 4), 7))
    limits = [f"tpot_p95: {draw.choice([30, 60, 120])}ms"]
    limits += [
        f"ttft_p{draw.choice([50, 90, 95])}: {draw.choice([600, 1500, 4000])}ms"
    ]
    limits += ["e2e_p90: 20s"] if draw.random() < 0.3 else []
    text = chat(
        model=draw.choice(MODELS),
        sla=", ".join(limits),
        precision=draw.choice(["auto", "[bf16, int4]", "mxfp4"]),
        traffic=f"peak_rps: {draw.choice(['0.2', '1', '3'])}\n  burstiness: {draw.choice([1, 2])}",
        extra="buy: {commit: [none, 1y, 3y]}",
    )
    return replace(catalog, offers=offers), text


@pytest.mark.parametrize("first", range(0, BRUTE_CASES, 25))
def test_the_solver_finds_what_brute_force_finds(catalog, first: int) -> None:
    for seed in range(first, first + 25):
        compare_with_brute_force(catalog, seed)


def compare_with_brute_force(catalog, seed: int) -> None:
    small, text = random_case(catalog, seed)
    spec = inference_spec(text)
    wanted = replace(
        serving_requirement(spec, lambda _: b""), confidence=DEFAULT_CONFIDENCE
    )
    offers = OfferFilter(
        small.offer_groups,
        spec_rules(
            spec,
            unsupported_reason,
            resumes=workload_of(spec).resumes,
        ),
    ).cheapest()
    # The bill adds lines that depend on the machine, so the search is asked without a price list.
    empty = replace(small.price_book, prices={})
    best = ServingSearch(empty).solve(wanted, offers).best
    cost = None if best is None else best.bill.lines[0].usd
    tolerance = Decimal("0.005")
    ceiling = DEAREST if cost is None else cost + tolerance
    truth = brute.machines_cost(wanted, offers, ceiling)
    if truth is None or cost is None:
        assert truth is None, seed
        assert cost is None, seed
    else:
        assert abs(cost - truth) < tolerance, seed


def cost_of(catalog, text: str) -> Decimal:
    """The cost of the fleet of a spec; what its wishes cost takes four times as long."""
    return present(find_fleet(catalog, text, keep=0).bill).total


def test_more_traffic_never_costs_less(catalog) -> None:
    costs = [
        cost_of(catalog, chat(traffic=f"peak_rps: {r}"))
        for r in (1, 2, 4, 8, 16, 32)
    ]
    assert costs == sorted(costs)


def test_a_looser_sla_never_costs_more(catalog) -> None:
    limits = ("500ms", "800ms", "1500ms", "5s", "20s")
    costs = [
        cost_of(catalog, chat(sla=f"ttft_p95: {x}", traffic="peak_rps: 6"))
        for x in limits
    ]
    assert costs == sorted(costs, reverse=True)


def test_more_choice_never_costs_more(catalog) -> None:
    narrow = cost_of(
        catalog, chat(extra="where: {clouds: [aws], regions: [eu-west-1]}")
    )
    wider = cost_of(catalog, chat(extra="where: {clouds: [aws]}"))
    widest = cost_of(catalog, chat())
    assert narrow >= wider >= widest


def test_permuting_the_catalog_changes_nothing(catalog) -> None:
    text = chat(traffic="peak_rps: 5", extra="buy: {commit: [none, 1y]}")
    shuffled = list(catalog.offers)
    random.Random(7).shuffle(shuffled)
    found = solve(replace(catalog, offers=tuple(shuffled)), text)
    again = solve(catalog, text)
    # What predicts other loads is a function, and equal to nothing but itself.
    assert replace(found, find_load_curve=None) == replace(
        again, find_load_curve=None
    )


def test_duplicated_offers_change_nothing(catalog) -> None:
    double = replace(catalog, offers=catalog.offers * 2)
    found = find_fleet(catalog, chat())
    again = find_fleet(double, chat())
    assert (found.pools, found.bill) == (again.pools, again.bill)


def test_the_total_is_the_sum_of_its_lines(catalog) -> None:
    for text in (chat(), chat(model="llama-3.1-70b", traffic="peak_rps: 20")):
        bill = find_fleet(catalog, text).bill
        assert bill is not None
        known = [x.usd for x in bill.lines if x.usd is not None]
        assert bill.total == sum(known)
        assert set(bill.unpriced_lines) == {
            x.name for x in bill.lines if x.usd is None
        }


def test_every_limit_is_met_by_what_is_predicted(catalog) -> None:
    solution = find_fleet(
        catalog, chat(sla="ttft_p95: 900ms, tpot_p90: 30ms, e2e_p95: 20s")
    )
    assert solution.predictions["ttft_p95_ms"].value <= 900
    assert solution.predictions["tpot_p90_ms"].value <= 30
    assert solution.predictions["e2e_p95_ms"].value <= 20_000
    for found in solution.predictions.values():
        assert found.low <= found.value <= found.high


def test_spot_is_for_batch_unless_it_is_asked_for(catalog) -> None:
    assert (
        find_fleet(catalog, chat()).pools[0].purchases[0].purchase
        == "on_demand"
    )
    spot = solve(catalog, chat(extra="buy: {spot: only}"))
    assert spot.pools[0].purchases[0].purchase == "spot"
    assert any(w.code == "spot" for w in spot.warnings)


def test_cheaper_fleets_that_were_not_chosen_say_why(catalog) -> None:
    solution = solve(
        catalog, chat(model="llama-3.1-70b", traffic="peak_rps: 3")
    )
    assert solution.bill is not None
    cheaper = [a for a in solution.alternatives if a.usd < solution.bill.total]
    assert cheaper
    assert all(a.rejected_by != DEARER for a in cheaper)
    dearer = [a for a in solution.alternatives if a.usd > solution.bill.total]
    assert dearer
    assert all(a.rejected_by == DEARER for a in dearer)


def test_relaxing_a_binding_constraint_as_told_saves_what_is_told(
    catalog,
) -> None:
    text = chat(model="llama-3.1-8b", sla="e2e_p95: 6s", traffic="peak_rps: 4")
    solution = solve(catalog, text)
    assert solution.bill is not None
    binding = next(b for b in solution.bindings if b.constraint == "e2e_p95")
    told = binding.relax_to.values["value_s"]
    relaxed = cost_of(catalog, text.replace("6s", f"{told}s"))
    assert solution.bill.total - relaxed == binding.saves_usd
    # Without any limit nothing has to hold with confidence, and less may do.
    assert cost_of(catalog, text.replace("{e2e_p95: 6s}", "{}")) <= relaxed


def test_no_limit_is_loosened_beyond_four_times_of_it(catalog) -> None:
    """Five weaker machines would keep no limit on the first token below minutes."""
    text = Path("blueprints/chat-70b.yaml").read_text()
    solution = solve(catalog, text)
    [loosened] = [b for b in solution.bindings if b.constraint == "ttft_p95"]
    told = describe(loosened.relax_to).replace(" ", "")
    assert told == "3.2s"
    assert cost_of(catalog, text.replace("800ms", told)) == loosened.usd


def test_infeasible_names_the_nearest_value_and_that_value_is_feasible(
    catalog,
) -> None:
    text = chat(model="llama-3.1-70b", sla="ttft_p95: 20ms")
    solution = solve(catalog, text)
    assert solution.status == "infeasible"
    nearest = next(b for b in solution.bindings if b.constraint == "ttft_p95")
    loosened = text.replace("20ms", describe(nearest.relax_to).replace(" ", ""))
    assert cost_of(catalog, loosened) == nearest.usd


def test_who_looks_at_fleets_alone_is_told_nothing_of_what_would_do(
    catalog,
) -> None:
    text = chat(model="llama-3.1-70b", sla="ttft_p95: 20ms")
    told = find_fleet(catalog, text)
    assert told.bindings
    assert find_fleet(catalog, text, names_nearest=False) == replace(
        told, bindings=()
    )


def test_a_budget_makes_what_is_dearer_infeasible(catalog) -> None:
    cost = cost_of(catalog, chat(traffic="peak_rps: 6"))
    below = solve(
        catalog, chat(traffic="peak_rps: 6", extra="buy: {budget: 10/month}")
    )
    assert below.status == "infeasible"
    assert any(
        b.constraint == "buy.budget" and b.usd == cost for b in below.bindings
    )
    enough = chat(
        traffic="peak_rps: 6", extra=f"buy: {{budget: {cost + 1}/month}}"
    )
    assert cost_of(catalog, enough) == cost


def test_availability_and_what_must_survive_add_machines(catalog) -> None:
    text = chat(sla="ttft_p95: 2s", traffic="peak_rps: 3")
    plain = find_fleet(catalog, text)
    safe = find_fleet(
        catalog,
        text.replace("ttft_p95: 2s", "ttft_p95: 2s, availability: 99.99%"),
    )
    assert plain.bill is not None
    assert safe.bill is not None
    assert safe.bill.total > plain.bill.total
    assert safe.pools[0].spares.count >= 1
    costs = [plain.bill.total]
    for failure in ("node", "zone"):
        surviving = find_fleet(
            catalog,
            text.replace("ttft_p95: 2s", f"ttft_p95: 2s, survives: {failure}"),
        )
        pool = surviving.pools[0]
        lost = {"node": 1, "zone": math.ceil(pool.nodes / len(pool.zones))}
        assert pool.nodes - lost[failure] >= pool.nodes - pool.spares.count
        costs.append(present(surviving.bill).total)
    assert costs == sorted(costs)


def test_one_zone_is_not_enough_to_survive_its_loss(catalog) -> None:
    text = chat(
        sla="ttft_p95: 2s, survives: zone",
        extra="where: {clouds: [gcp]}",
    )
    nearest = solve(catalog, text)
    assert nearest.status == "infeasible"
    assert {b.constraint for b in nearest.bindings} >= {
        "sla.survives",
        "where.clouds",
    }


def test_several_machines_hold_a_replica_only_when_one_cannot(catalog) -> None:
    small = only(
        catalog,
        lambda o: o.instance.instance_type in ("p4de.24xlarge", "p5.48xlarge"),
    )
    fp8 = find_fleet(
        small,
        chat(model="llama-3.1-405b", precision="fp8", sla="tpot_p95: 200ms"),
    )
    assert fp8.pools[0].nodes_per_group == 1
    bf16 = find_fleet(
        small,
        chat(
            model="llama-3.1-405b",
            precision="bf16",
            sla="tpot_p95: 300ms",
            traffic="peak_rps: 0.05",
        ),
    )
    assert bf16.pools[0].nodes_per_group == 2
    assert present(bf16.pools[0].layout).pp == 2


def test_unsupported_families_are_refused_by_name(catalog) -> None:
    spec = spec_of(chat())
    solver = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    found = {
        a.fleet: describe(present(a.reason))
        for a in why_not(spec, solver, "ct5*")
    }
    assert found
    assert all("TPU" in why for why in found.values())
    with pytest.raises(MissingError):
        why_not(spec, solver, "no-such-machine")


def blueprint(name: str) -> str:
    [path] = [path for path in BLUEPRINTS if path.stem == name]
    return path.read_text()


def asking(catalog) -> SolveSettings:
    return SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )


def test_a_dearer_machine_says_what_one_fewer_of_it_misses(catalog) -> None:
    spec = spec_of(blueprint("chat-8b"))
    [answer] = why_not(spec, asking(catalog), "g5.xlarge")
    assert present(answer.fleet).nodes > 1
    assert present(answer.reason) == DEARER
    assert "p95" in describe(present(answer.binding))


def test_a_fleet_is_found_before_what_its_wishes_cost(catalog) -> None:
    """Nothing is planned again before somebody asks; then it is as if asked at once."""
    spec = spec_of(chat(traffic="peak_rps: 8"))
    found = find(spec, asking(catalog))
    assert not found.bindings
    assert present(found.confidence_cost).extra_usd_month is None
    whole = solve_spec(spec, asking(catalog))
    assert found.bill == whole.bill
    assert found.explained().bindings == whole.bindings
    assert whole.find_reasons is None


def test_a_router_saves_what_the_spec_with_it_saves(catalog) -> None:
    """At some rates it saves a machine; at which ones is a matter of the fit."""
    saved = 0
    for peak in (12, 15, 20, 30):
        text = blueprint("code-assistant").replace(
            "peak_rps: 15", f"peak_rps: {peak}"
        )
        routed = text.replace(
            "traffic:\n", "traffic:\n  routing: least-loaded\n"
        )
        for limit in solve(catalog, text).bindings:
            if limit.constraint == "traffic.routing":
                saved += 1
                assert limit.usd == cost_of(catalog, routed)
    assert saved


def test_twice_the_traffic_is_what_a_spec_with_twice_the_traffic_costs(
    catalog,
) -> None:
    solver = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    asked = what_if(spec_of(chat(traffic="peak_rps: 4")), solver, 2.0)
    assert asked.usd == cost_of(catalog, chat(traffic="peak_rps: 8"))


def test_a_schedule_and_a_profile_make_it_cheaper(catalog) -> None:
    always = cost_of(catalog, chat())
    office = cost_of(
        catalog,
        chat(
            extra='shutdown: {schedule: "weekdays 08:00-18:00 Europe/Berlin"}'
        ),
    )
    assert office < always * Decimal("0.5")


def test_batch_runs_end_before_their_deadline_and_use_spot(catalog) -> None:
    text = """
apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: llama-3.1-8b}
traffic: {total_requests: 2M, input_tokens: 1000, output_tokens: 200}
deadline: 6h
"""
    solution = find_fleet(catalog, text)
    assert solution.pools[0].purchases[0].purchase == "spot"
    assert solution.predictions["duration_days"].value <= 0.25
    slower = find_fleet(catalog, text.replace("6h", "2d"))
    assert slower.bill is not None
    assert solution.bill is not None
    assert slower.bill.total <= solution.bill.total


@pytest.mark.parametrize("requests", ["30k", "2M", "10M"])
@pytest.mark.parametrize("deadline", ["2h", "12h", "4d"])
def test_a_batch_runs_on_as_many_machines_as_cost_least(
    catalog, requests: str, deadline: str
) -> None:
    # Google Cloud has no service by the hour: there the fewest machines cost least.
    offers = random.Random(deadline).sample(
        [
            o
            for o in buildable_offers(catalog, 1)
            if o.purchase == "spot" and o.provider != "gcp"
        ],
        12,
    )
    spec = spec_of(f"""
apiVersion: tonnage/v1
kind: Batch
name: batch
model: {{name: llama-3.1-8b}}
traffic: {{total_requests: {requests}, input_tokens: 1000, output_tokens: 200}}
deadline: {deadline}
""")
    assert isinstance(spec, Batch)
    wanted = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(catalog.price_book)
    totals = []
    for offer in offers:
        for replica, group in search.one_node_replicas(wanted, offer):
            # Far more machines than a deadline needs, or the known capacity, are tried.
            for machines in range(1, 400 if replica.max_batch else 1):
                fleet = sized_fleet(wanted, replica, group, machines)
                fits = obtainable(wanted, offer, fleet)
                slowest = run_time_s(wanted, replica, group, machines)
                if slowest <= wanted.deadline_s and fits is fleet:
                    bill = search.bill(wanted, fleet, offer)
                    totals.append(bill.total)
    best = ServingSearch(catalog.price_book).solve(wanted, offers).best
    found = None if best is None else best.bill.total
    assert found == min(totals, default=None)


def test_a_workspace_holds_what_it_must(catalog) -> None:
    text = """
apiVersion: tonnage/v1
kind: Workspace
name: ws
fits: {model: MODEL, for: USE}
users: 2
"""
    costs = []
    for use in ("inference", "lora", "finetune"):
        solution = find_fleet(
            catalog, text.replace("MODEL", "llama-3.1-8b").replace("USE", use)
        )
        assert solution.predictions["memory_fraction"].value <= 1
        costs.append(present(solution.bill).total)
    assert costs == sorted(costs)


def test_a_workspace_sleeps_unless_it_is_told_not_to() -> None:
    spec = spec_of(
        "apiVersion: tonnage/v1\nkind: Workspace\nname: ws\n"
        "accelerator: {memory: 24GiB}\n"
    )
    assert spec.shutdown.idle == 3600


def trace_of(row: bytes) -> Callable[[str], bytes]:
    return lambda _: b"timestamp,input_tokens,output_tokens\n" + row


def test_a_trace_gives_rate_lengths_and_burstiness(catalog) -> None:
    draw = random.Random(3)
    at = 0.0
    lines = ["timestamp,input_tokens,output_tokens"]
    for _ in range(2000):
        at += draw.expovariate(5.0)
        lines.append(f"{at},{draw.randint(100, 900)},{draw.randint(10, 300)}")
    text = chat(traffic="trace: t.csv").replace(
        "  input_tokens: {mean: 900, p95: 3000}\n", ""
    )
    spec = inference_spec(
        text.replace("  output_tokens: {mean: 200, p95: 600}\n", "")
    )
    wanted = serving_requirement(spec, lambda _: "\n".join(lines).encode())
    assert wanted.load.rate_per_s == pytest.approx(5.6, rel=0.15)
    assert wanted.load.prompt_lengths.mean_tokens == pytest.approx(
        500, rel=0.05
    )
    assert wanted.load.arrival_variation == pytest.approx(1.0, rel=0.2)
    marked = ("\ufeff" + "\n".join(lines)).encode()
    assert serving_requirement(spec, lambda _: marked).load == wanted.load
    for row in (b"x,1,2", b"nan,1,2", b"1,inf,2", b"1,2,-3", b"1,2"):
        with pytest.raises(SpecError, match="numbers"):
            serving_requirement(spec, trace_of(row))
    with pytest.raises(SpecError, match="0 requests"):
        serving_requirement(spec, lambda _: b"")


def test_a_closed_loop_holds_all_of_its_requests_at_once(catalog) -> None:
    for count in (8, 64, 512):
        solution = find_fleet(
            catalog, chat(traffic=f"concurrency: {count}", sla="tpot_p95: 80ms")
        )
        pool = solution.pools[0]
        assert pool.replicas * pool.max_batch >= count
        assert solution.predictions["tpot_p95_ms"].value <= 80


def test_the_spare_of_availability_runs_at_night_too(catalog) -> None:
    text = chat(
        sla="ttft_p95: 2s, survives: node",
        traffic="peak_rps: 8\n  profile: business-hours",
    )
    pool = find_fleet(catalog, text).pools[0]
    assert pool.spares.count >= 1
    assert pool.min_nodes >= 1 + pool.spares.count


def test_the_order_of_prices_does_not_decide_what_is_sold_out(tmp_path) -> None:
    import shutil

    from providers.catalog.load import load_catalog
    from providers.catalog.manifest import CATALOG_FOLDER, write_manifest

    copy = tmp_path / "catalog"
    shutil.copytree(CATALOG_FOLDER, copy)
    head, *rest = (copy / "prices.csv").read_text().splitlines()
    (copy / "prices.csv").write_text("\n".join([head, *reversed(rest)]) + "\n")
    write_manifest(copy)
    turned = load_catalog(copy / "manifest.json")
    assert {o.key for o in turned.offers} == {
        o.key for o in load_catalog().offers
    }


def test_a_daily_batch_starts_every_day_and_ends_at_its_deadline(
    catalog,
) -> None:
    from stacks.spec.stack import derive_stack

    text = """
apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: llama-3.1-8b}
traffic: {requests_per_day: 100k, input_tokens: 1000, output_tokens: 200}
deadline: 6h
"""
    spec = spec_of(text)
    solution = solve(catalog, text)
    [(_, group)] = derive_stack(spec, solution, "batch").scaling_groups
    found = group.capacity_changes
    assert [(c.weekdays, c.minute_of_day, c.nodes) for c in found] == [
        (tuple(range(7)), 0, solution.pools[0].nodes),
        (tuple(range(7)), 360, 0),
    ]
    assert spec.shutdown.idle == 3600
    once = solve(catalog, text.replace("requests_per_day", "total_requests"))
    [(_, group)] = derive_stack(spec, once, "batch").scaling_groups
    assert group.capacity_changes == ()


def test_one_search_answers_every_question_as_a_new_one_does(catalog) -> None:
    """What it remembers of other models, lengths and limits changes no answer."""
    texts = [
        chat(traffic="peak_rps: 2"),
        chat(traffic="peak_rps: 2").replace("mean: 900, p95: 3000", "mean: 90"),
        chat(model="qwen2.5-7b"),
        chat(sla="tpot_p95: 20ms"),
        chat(traffic="concurrency: 9"),
        chat(extra="serving: {token_budget: 4k}"),
    ]
    shared = ServingSearch(catalog.price_book)
    for text in [*texts, *texts]:
        spec = inference_spec(text)
        requirement = serving_requirement(spec, lambda _: b"")
        offers = OfferFilter(
            catalog.offer_groups,
            spec_rules(spec, unsupported_reason, resumes=False),
        ).cheapest()
        fresh = ServingSearch(catalog.price_book).solve(requirement, offers)
        again = shared.solve(requirement, offers)
        assert present(again.best).rank == present(fresh.best).rank
        assert step_tokens(again) == step_tokens(fresh)


def test_a_time_to_live_hides_no_commitment_from_the_next_spec(
    catalog,
) -> None:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    text = chat(
        traffic="peak_rps: 40\n  profile: business-hours",
        extra="buy: {commit: [none, 1y, 3y]}\nwhere: {clouds: [aws]}",
    )
    alone = find(spec_of(text), replace(settings, memory=Memory()))
    find(spec_of(f"{text}\nshutdown: {{ttl: 20d}}"), settings)
    found = find(spec_of(text), settings)
    assert found.bill == alone.bill


def test_specs_that_are_planned_together_get_the_plans_of_each_alone(
    catalog, monkeypatch
) -> None:
    """Specs of the same service differ in availability, week, purchase and recording."""
    # Few enough that what is remembered is dropped on the way.
    monkeypatch.setattr("planner.solve.serving.search.MOST_SHAPES", 2)
    texts = [
        chat(traffic="peak_rps: 3", extra="buy: {spot: never}"),
        chat(traffic="peak_rps: 3\n  profile: business-hours"),
        chat(traffic="peak_rps: 3", sla="tpot_p95: 60ms, availability: 99.9%"),
        chat(traffic="peak_rps: 3", sla="ttft_p99: 2s, tpot_p95: 60ms"),
        chat(traffic="peak_rps: 3\n  routing: least-loaded"),
        chat(model="qwen2.5-7b"),
        chat(traffic="peak_rps: 3", sla="tpot_p95: 60ms"),
    ]
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    alone = [
        find(spec_of(text), replace(settings, memory=Memory()))
        for text in texts
    ]
    for text, single in [*zip(texts, alone, strict=True)] * 2:
        found = find(spec_of(text), settings)
        for part in ("status", "bill", "predictions", "simulation_check"):
            assert getattr(found, part) == getattr(single, part), part
        assert [rival.usd for rival in found.alternatives] == [
            rival.usd for rival in single.alternatives
        ]


def step_tokens(result: ServingResult) -> int:
    """The most tokens of a step of the best fleet."""
    replica = present(result.best).sizing.replica
    return replica.startup_memory.max_step_tokens


def test_denying_a_family_denies_all_of_it(catalog) -> None:
    text = chat(
        model="llama-3.1-70b", extra="where: {accelerators: {deny: [h100]}}"
    )
    solution = solve(catalog, text, keep=20)
    fleets = [pool.instance for pool in solution.pools]
    fleets += [rival.offer.instance for rival in solution.alternatives]
    assert fleets
    assert not [i for i in fleets if i.accelerator.startswith("h100")]


def test_the_budget_that_is_told_is_enough_and_a_dollar_less_is_not(
    catalog,
) -> None:
    text = chat(model="llama-3.1-70b", extra="buy: {budget: 10/month}")
    nearest = next(
        b for b in solve(catalog, text).bindings if b.constraint == "buy.budget"
    )
    told = describe(nearest.relax_to)
    assert told.endswith("/month")
    enough = int(told.removesuffix("/month"))
    for budget, is_enough in ((enough, True), (enough - 1, False)):
        given = text.replace("10/month", f"{budget}/month")
        assert (find_fleet(catalog, given).status != "infeasible") == is_enough


def test_a_model_of_so_many_parameters_is_planned_with_what_was_assumed(
    catalog,
) -> None:
    """Its architecture is assumed, and that is told; what was assumed is part of the question."""
    text = chat().replace("name: llama-3.1-8b", "params: 8B")
    assert "params: 8B" in text
    solution = solve(catalog, text, keep=0)
    assert solution.pools
    assert "assumed-architecture" in {
        warning.reason.code for warning in solution.warnings
    }
