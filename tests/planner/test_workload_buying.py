"""Every way to buy a workload: each is the plan of a spec that says so."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.facts.small_cloud import small_clouds
from planner.market.small_cloud import with_small_clouds
from planner.solve.settings import SolveSettings
from planner.workload.buying import BoughtWay, buy_in_every_way, ways
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, chat, find, only, present, spec_of
from tests.planner.cli.conftest import Command
from tests.planner.solve.serving.test_mixed_answer import (
    repriced,
    two_types,
)

TEXT = chat(
    traffic="peak_rps: 20\n  profile: diurnal",
    extra="where: {clouds: [aws]}\nbuy: {BUY}",
)
# The block `buy` of each way, as a person would write it.
WRITTEN = {
    "on-demand": "spot: never",
    "term-1y": "commit: 1y, spot: never",
    "term-3y": "commit: 3y, spot: never",
    "mix-1y": "commit: [none, 1y], spot: never",
    "mix": "commit: [none, 1y, 3y], spot: never",
    "spot": "spot: only",
    "half-spot": "on_demand_base: 50%",
    "half-mix": "commit: [none, 1y, 3y], on_demand_base: 50%",
    "two-types": "spot: never, machine_types: 2",
    "small-cloud": "spot: never",
    "sglang": "spot: never",
    "tensorrt-llm": "spot: never",
}


# Of a spec that vLLM serves without guesses: these are no other ways.
ONE_TYPE = {
    way.way: way.name
    for way in ways()
    if way.machine_types == 1
    and way.engine != "vllm"
    and way.speculation is None
}


def found_ways(catalog: Any, text: str) -> dict[str, BoughtWay]:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
    )
    return {
        found.way.way: found
        for found in buy_in_every_way(spec_of(text), settings)
    }


def test_each_way_is_the_plan_of_a_spec_that_says_so(catalog) -> None:
    catalog = only(
        catalog, lambda offer: offer.instance.family in ("g6", "g6e", "g5")
    )
    found = found_ways(catalog, TEXT.replace("BUY", "spot: auto"))
    # Weights of a draft do not come through the bucket.
    assert present(found.pop("eagle3").refused).code == "speculation-weights"
    assert found.keys() == WRITTEN.keys() == {"two-types", *ONE_TYPE}
    for way, written in WRITTEN.items():
        text = TEXT.replace("BUY", written)
        offered = catalog
        if way == "small-cloud":
            names = ", ".join(small_clouds())
            text = text.replace("[aws]", f"[{names}]")
            offered = with_small_clouds(catalog, small_clouds())
        if way in ("sglang", "tensorrt-llm"):
            text += f"serving: {{engine: {way}}}\n"
        solution = find(offered, text, keep=0)
        assert found[way].usd == present(solution.bill).total, way
        assert found[way].purchases == tuple(
            part for pool in solution.pools for part in pool.purchases
        )
    usd = {way: present(one.usd) for way, one in found.items()}
    assert usd["mix"] <= usd["mix-1y"] <= min(usd["on-demand"], usd["term-1y"])
    assert usd["mix"] <= usd["term-3y"]
    assert usd["half-mix"] <= usd["half-spot"]
    assert usd["spot"] <= usd["half-spot"] <= usd["on-demand"]
    for one in found.values():
        owed = sum(
            part.nodes * part.usd_hour * 730 * years * 12
            for part in one.purchases
            for years in (1, 3)
            if part.purchase == f"reserved_{years}y"
        )
        assert one.owed_usd == Decimal(owed)


def test_two_machine_types_are_no_way_where_they_save_nothing(catalog) -> None:
    """The same traffic all week leaves no hours in which a second type pays."""
    few = only(
        catalog, lambda offer: offer.instance.family in ("g6", "g6e", "g5")
    )
    text = TEXT.replace("diurnal", "flat").replace("BUY", "spot: auto")
    second = found_ways(few, text)["two-types"]
    assert (second.usd, second.refused, second.nearest) == (None, None, None)


def test_two_machine_types_are_a_way_where_they_cost_less(catalog) -> None:
    few = repriced(catalog, "aws")
    found = found_ways(few, two_types("aws", 1))
    solution = find(few, two_types("aws"), keep=0)
    assert found["two-types"].usd == present(solution.bill).total
    assert found["two-types"].fleets == tuple(
        pool.summary for pool in solution.pools
    )
    assert present(found["two-types"].usd) < present(found["on-demand"].usd)


@pytest.mark.parametrize("name", ["lora-8b", "workspace-one-gpu"])
def test_other_kinds_have_the_ways_that_their_rules_allow(
    catalog, name: str
) -> None:
    text = (ROOT / "blueprints" / f"{name}.yaml").read_text()
    found = found_ways(catalog, text)
    for way in ("on-demand", "small-cloud"):
        assert found[way].usd is not None
    # A rule of the spec says of the others why they are none.
    assert present(found["two-types"].refused).message.startswith(
        "buy.machine_types is for a service"
    )
    # Nothing is served, so no engine is a way, and nothing guesses.
    assert found.keys() == {
        way.way
        for way in ways()
        if way.engine is None and way.speculation is None
    }


def test_engines_are_compared_with_the_one_that_serves(catalog) -> None:
    catalog = only(catalog, lambda offer: offer.instance.family in ("g6", "p5"))
    text = TEXT.replace("BUY", "spot: auto") + "serving: {engine: sglang}\n"
    found = found_ways(catalog, text)
    assert "sglang" not in found
    by_default = found_ways(catalog, TEXT.replace("BUY", "spot: auto"))
    for mine, other in (("on-demand", "sglang"), ("vllm", "on-demand")):
        assert present(found[mine].usd) == by_default[other].usd


def test_published_guesses_are_ways_where_a_spec_has_others(catalog) -> None:
    catalog = only(catalog, lambda offer: offer.instance.family == "g6e")
    text = TEXT.replace("BUY", "spot: never").replace(
        "model: {", "model: {weights: 'hf:owner/name', "
    )
    texts = {
        word: f"{text}serving: {{speculation: {word}}}\n"
        for word in ("off", "eagle3", "auto")
    }
    usd = {
        word: present(find(catalog, own_text, keep=0).bill).total
        for word, own_text in texts.items()
    }
    others = {
        "off": ("eagle3",),
        "eagle3": ("off",),
        "auto": ("off", "eagle3"),
    }
    for word, named in others.items():
        found = found_ways(catalog, texts[word])
        assert {"off", "eagle3", "mtp"} & found.keys() == set(named)
        assert found["on-demand"].usd == usd[word]
        for method in named:
            assert found[method].usd == usd[method]


def test_what_stops_a_way_is_what_would_have_to_change(catalog) -> None:
    """The plan of that change exists, at the cost that is said."""
    text = (ROOT / "blueprints/chat-405b-bf16.yaml").read_text()
    ways_found = found_ways(catalog, text)
    other_engine = present(ways_found["tensorrt-llm"].nearest)
    assert other_engine.constraint == "serving.engine"
    assert other_engine.usd == ways_found["on-demand"].usd
    found = ways_found["small-cloud"]
    limit = present(found.nearest)
    assert (found.usd, limit.constraint) == (None, "model.precision")
    changed = text.replace("precision: bf16", "precision: int4").replace(
        "where:\n", f"where:\n  clouds: [{', '.join(small_clouds())}]\n"
    )
    there = find(with_small_clouds(catalog, small_clouds()), changed, keep=0)
    assert present(there.bill).total == limit.usd


@pytest.mark.parametrize("name", ["pretrain-70b", "chat-405b-bf16"])
def test_machines_that_need_a_fabric_are_not_compared_alone(
    tonnage: Command, here: Path, name: str
) -> None:
    """A plan there has to meet the spec, which such machines without a fabric may not."""
    (here / "s.yaml").write_text(
        (ROOT / "blueprints" / f"{name}.yaml").read_text()
    )
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    [row] = [
        line
        for line in page.splitlines()
        if line.startswith("| on demand at a small cloud |")
    ]
    assert row.split("|")[3].strip() == "-"
    assert "such machines" not in page


def test_cells_that_cannot_be_filled_say_why(
    tonnage: Command, here: Path
) -> None:
    (here / "dc.yaml").write_text(
        "machines: [{name: own, accelerator: l4, accelerators_per_node: 1, "
        "nodes: 1, price: 9000, power: 0.6kW}]\nspace: 0\nstaff: 0\n"
    )
    text = (ROOT / "blueprints/finetune-70b.yaml").read_text()
    (here / "s.yaml").write_text(f"{text}where: {{on_premises: dc.yaml}}\n")
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    for told in (
        "| no fleet of own meets the spec |",
        "| what is sold by the token are answers |",
        "What ends is over before a commitment is",
    ):
        assert told in page
    assert "||" not in page


def test_the_page_has_every_way_and_what_is_not_rented(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(TEXT.replace("BUY", "spot: auto"))
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    for name in ONE_TYPE.values():
        assert f"| {name} |" in page
    assert "as the spec says" in page
    assert "the same tokens at" in page
    assert "the workload ends after 4 months" in page
    assert tonnage("explain", "s.yaml", "--ways", "--traffic", "2x")[0] == 2


def test_rows_of_guesses_say_what_they_take(
    tonnage: Command, here: Path
) -> None:
    text = TEXT.replace("BUY", "spot: never").replace(
        "model: {", "model: {weights: 'hf:owner/name', "
    )
    (here / "s.yaml").write_text(f"{text}serving: {{speculation: auto}}\n")
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    [off] = [line for line in page.splitlines() if "without guesses" in line]
    [on] = [line for line in page.splitlines() if "guesses by eagle3" in line]
    assert off.endswith("| serving.speculation: off |")
    assert "serving.speculation: eagle3; how often guesses are right" in on


@pytest.mark.parametrize(
    ("nodes", "price", "said"),
    [
        (50, 900, "to buy, paid after month"),
        (1, 900, "to buy, and there is 1 |"),
        (50, 900_000, "to buy |"),
    ],
)
def test_the_page_has_the_machines_of_a_file(
    tonnage: Command, here: Path, nodes: int, price: int, said: str
) -> None:
    (here / "dc.yaml").write_text(
        "machines: [{name: l4-1, accelerator: l4, accelerators_per_node: 1, "
        f"nodes: {nodes}, price: {price}, power: 0.3kW}}]\nspace: 50\nstaff: 0\n"
    )
    text = TEXT.replace("clouds: [aws]", "clouds: [aws], on_premises: dc.yaml")
    (here / "s.yaml").write_text(text.replace("BUY", "spot: auto"))
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    [row] = [line for line in page.splitlines() if "own | " in line]
    assert "machines of your own" in row
    assert " x l4-1 |" in row
    assert said in row
    # What is planned with other machines is told from what is bought otherwise alone.
    assert "| way to buy, each planned anew |" in page
    assert "| of the same fleet |" in page
    assert "| a commitment |" not in page


def test_what_has_a_life_is_compared_by_its_hours(
    tonnage: Command, here: Path
) -> None:
    (here / "dc.yaml").write_text(
        "machines: [{name: l4-1, accelerator: l4, accelerators_per_node: 1, "
        "nodes: 9, price: 900, power: 0.3kW}]\nspace: 50\nstaff: 0\n"
    )
    text = TEXT.replace("clouds: [aws]", "clouds: [aws], on_premises: dc.yaml")
    text = text.replace("BUY", "spot: auto") + "\nshutdown: {ttl: 3d}\n"
    (here / "s.yaml").write_text(text)
    code, page, _ = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")
    assert code == 0
    [row] = [
        line
        for line in page.splitlines()
        if line.startswith("| machines of your own")
    ]
    # A share of a month for three days, of as many as the traffic needs.
    assert row.endswith("to buy, and there are 9 |")
    usd = int(row.split("|")[3].strip(" $"))
    nodes = int(row.split("|")[2].split()[0])
    assert 0 < usd < nodes * 900
