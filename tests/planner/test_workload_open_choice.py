"""A spec that leaves its engine or its guesses open: the cheapest plan of all that name one."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

import pytest

from planner.errors import Problem, SpecError
from planner.solve.settings import SolveSettings
from planner.spec.model import EngineName, GuessMethod, Inference
from planner.workload.open_choice import (
    cheapest_answer,
    guess_methods,
    open_choice,
)
from planner.workload.solver import what_if, why_not
from stacks.spec.stack import derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, chat, only, present, solve, spec_of

if TYPE_CHECKING:
    from pathlib import Path

    from planner.solve.solution import Solution
    from planner.spec.model import Spec
    from tests.planner.cli.conftest import Command

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
BACKLOG = """
apiVersion: tonnage/v1
kind: Batch
name: backlog
model: {name: MODEL}
traffic:
  total_requests: 200k
  input_tokens: 1500
  output_tokens: 150
deadline: 2d
where: {clouds: [aws], accelerators: {allow: ['ACCELERATOR*']}}
serving: {engine: ENGINE}
"""
SERVICE = chat(extra="where: {clouds: [aws]}\nserving: {engine: ENGINE}\n")


def batch(model: str, accelerator: str) -> str:
    return BACKLOG.replace("MODEL", model).replace("ACCELERATOR", accelerator)


def usd_of(solution: Solution) -> Decimal:
    return Decimal("Infinity") if solution.bill is None else solution.bill.total


def settings_of(catalog: Any) -> SolveSettings:
    return SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )


CASES = {
    "service": (SERVICE, "vllm"),
    "8b on H100": (batch("llama-3.1-8b", "h100"), "sglang"),
    "70b on H100": (
        (ROOT / "blueprints/summarize-batch.yaml")
        .read_text()
        .replace("name: llama-3.1-8b", "name: llama-3.1-70b-fp8")
        + "where: {accelerators: {allow: ['h100*']}}\nserving: {engine: ENGINE}\n",
        "tensorrt-llm",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_any_engine_is_the_cheapest_of_all(catalog, case: str) -> None:
    text, winner = CASES[case]
    named = {
        engine: solve(catalog, text.replace("ENGINE", engine), keep=0)
        for engine in ENGINES
    }
    found = solve(catalog, text.replace("ENGINE", "any"), keep=0)
    usd = {engine: usd_of(one) for engine, one in named.items()}
    assert usd_of(found) == min(usd.values())
    assert winner == min(ENGINES, key=lambda engine: usd[engine])
    assert found.pools == named[winner].pools
    said = {
        warning.reason.values["engine"]: warning.reason.values["other_usd"]
        for warning in found.warnings
        if warning.code == "engine-choice"
    }
    assert said == {
        engine: usd[engine] for engine in ENGINES if engine != winner
    }


def test_other_loads_and_other_machines_may_have_another_engine(
    catalog,
) -> None:
    text = batch("llama-3.1-8b", "")
    settings = settings_of(
        only(catalog, lambda offer: offer.instance.family in ("p5", "g6e"))
    )
    specs = {
        engine: spec_of(text.replace("ENGINE", engine))
        for engine in (*ENGINES, "any")
    }
    for factor in (0.5, 3.0):
        usd = {
            engine: what_if(spec, settings, factor).usd
            for engine, spec in specs.items()
        }
        open_usd = usd.pop("any")
        assert open_usd == min(map(present, usd.values()))
    told = {
        engine: why_not(spec, settings, "p5.48xlarge")[0].usd
        for engine, spec in specs.items()
    }
    open_usd = told.pop("any")
    assert open_usd == min(map(present, told.values()))


def test_machines_start_the_engine_that_was_chosen(catalog) -> None:
    text, winner = CASES["8b on H100"]
    spec = spec_of(text.replace("ENGINE", "any"))
    stack = derive_stack(
        spec, solve(catalog, text.replace("ENGINE", "any")), "backlog"
    )
    assert {fleet.engine for fleet in stack.fleets} == {winner}


def test_an_engine_that_refuses_the_spec_is_no_choice(catalog) -> None:
    elastic = SERVICE + "elastic: {most: 2}"
    found = solve(catalog, elastic.replace("ENGINE", "any"), keep=0)
    refused = {
        warning.reason.values["engine"]: warning.reason.values["told"]
        for warning in found.warnings
        if warning.reason.code == "refused-engine"
    }
    with pytest.raises(SpecError) as refusal:
        spec_of(elastic.replace("ENGINE", "tensorrt-llm"))
    assert refused == {"tensorrt-llm": refusal.value.problems[0].message}


def test_what_all_engines_refuse_is_refused(catalog) -> None:
    choice = present(open_choice(spec_of(SERVICE.replace("ENGINE", "any"))))

    def refuse(own_spec: Spec) -> Solution:
        assert isinstance(own_spec, Inference)
        raise SpecError(
            Problem(code="no", message=own_spec.serving.engine, next_step="-")
        )

    with pytest.raises(SpecError) as refusal:
        cheapest_answer(choice, refuse)
    assert {one.message for one in refusal.value.problems} == set(ENGINES)


def test_a_benchmark_is_of_one_engine(tonnage: Command, here: Path) -> None:
    (here / "s.yaml").write_text(SERVICE.replace("ENGINE", "any"))
    code, _, errors = tonnage("bench", "s.yaml", "--simulate")
    assert code == 2
    assert re.search(r"s\.yaml:\d+:\d+\s+error\[engine\]", errors)
    assert "--set serving.engine=vllm" in errors


WEIGHTS = "model: {weights: 'hf:owner/name', name: "
GUESSING = {
    # A batch decodes all the time: a draft pays.
    "batch": (
        BACKLOG.replace("model: {name: MODEL", WEIGHTS + "llama-3.1-8b")
        .replace("ACCELERATOR", "l40s")
        .replace("input_tokens: 1500", "input_tokens: 400")
        .replace("output_tokens: 150", "output_tokens: 400")
        .replace("ENGINE", "vllm, speculation: GUESSES"),
        "eagle3",
    ),
    # One machine is enough with and without.
    "service": (
        chat(
            extra="where: {clouds: [aws]}\nserving: {speculation: GUESSES}\n"
        ).replace("model: {name: ", WEIGHTS),
        "off",
    ),
}


def told_guesses(solution: Solution) -> dict[str, object]:
    return {
        str(warning.reason.values["method"]): warning.reason.values["other_usd"]
        for warning in solution.warnings
        if warning.reason.code == "other-guesses"
    }


@pytest.mark.parametrize("case", GUESSING)
def test_any_guesses_are_the_cheapest_of_all(catalog, case: str) -> None:
    text, winner = GUESSING[case]
    methods: tuple[GuessMethod, ...] = ("off", "eagle3")
    named = {
        method: solve(catalog, text.replace("GUESSES", method), keep=0)
        for method in methods
    }
    found = solve(catalog, text.replace("GUESSES", "auto"), keep=0)
    usd = {method: usd_of(one) for method, one in named.items()}
    assert usd_of(found) == min(usd.values())
    # What guesses assume is taken only where they cost less.
    assert winner == min(methods, key=lambda method: usd[method])
    assert found.pools == named[winner].pools
    assert told_guesses(found) == {
        method: usd[method]
        for method in methods
        if method not in ("off", winner)
    }
    [pool] = found.pools
    assert (pool.drafting is None) == (winner == "off")


def test_a_plan_that_chose_guesses_says_what_it_costs_without(catalog) -> None:
    text, _ = GUESSING["batch"]
    off = solve(catalog, text.replace("GUESSES", "off"), keep=0)
    found = solve(catalog, text.replace("GUESSES", "auto"), keep=0)
    [without] = [
        warning.reason.values["without_usd"]
        for warning in found.warnings
        if warning.reason.code == "no-draft"
    ]
    assert without == usd_of(off)


def test_machines_guess_as_was_chosen(catalog) -> None:
    text, winner = GUESSING["batch"]
    text = text.replace("GUESSES", "auto")
    stack = derive_stack(spec_of(text), solve(catalog, text), "backlog")
    [fleet] = stack.fleets
    assert present(fleet.drafting).method == winner


def test_other_loads_and_other_machines_may_have_other_guesses(catalog) -> None:
    text, _ = GUESSING["batch"]
    settings = settings_of(
        only(catalog, lambda offer: offer.instance.family == "g6e")
    )
    specs = {
        method: spec_of(text.replace("GUESSES", method))
        for method in ("off", "eagle3", "auto")
    }
    asked = {
        "traffic": lambda spec: what_if(spec, settings, 3.0).usd,
        "machine": lambda spec: why_not(spec, settings, "g6e.xlarge")[0].usd,
    }
    for ask in asked.values():
        usd = {method: present(ask(spec)) for method, spec in specs.items()}
        open_usd = usd.pop("auto")
        assert open_usd == min(usd.values())


def test_engine_and_guesses_may_both_be_open(catalog) -> None:
    text, _ = GUESSING["batch"]
    text = text.replace("engine: vllm", "engine: ENGINE")
    costs = [
        usd_of(
            solve(
                catalog,
                text.replace("ENGINE", engine).replace("GUESSES", method),
                keep=0,
            )
        )
        for engine, method in (
            ("vllm", "off"),
            ("vllm", "eagle3"),
            ("sglang", "off"),
            ("tensorrt-llm", "off"),
        )
    ]
    both = text.replace("ENGINE", "any").replace("GUESSES", "auto")
    assert usd_of(solve(catalog, both, keep=0)) == min(costs)
    told = why_not(spec_of(both), settings_of(catalog), "g6e.xlarge")[0].usd
    assert told == min(
        present(
            why_not(
                spec_of(
                    text.replace("ENGINE", engine).replace("GUESSES", method)
                ),
                settings_of(catalog),
                "g6e.xlarge",
            )[0].usd
        )
        for engine, method in (
            ("vllm", "off"),
            ("vllm", "eagle3"),
            ("sglang", "off"),
        )
    )


def test_guesses_that_are_refused_are_no_choice(catalog) -> None:
    text, _ = GUESSING["service"]
    text = text.replace("weights: 'hf:owner/name', ", "")
    found = solve(catalog, text.replace("GUESSES", "auto"), keep=0)
    refused = {
        warning.reason.values["method"]: warning.reason.values["told"]
        for warning in found.warnings
        if warning.reason.code == "refused-guesses"
    }
    with pytest.raises(SpecError) as refusal:
        spec_of(text.replace("GUESSES", "eagle3"))
    assert refused == {"eagle3": refusal.value.problems[0].message}


def test_of_weights_without_a_published_draft_a_plan_says_so(catalog) -> None:
    text = GUESSING["service"][0].replace("llama-3.1-8b", "qwen2.5-7b")
    found = solve(catalog, text.replace("GUESSES", "auto"), keep=0)
    off = solve(catalog, text.replace("GUESSES", "off"), keep=0)
    assert found.pools == off.pools
    assert [
        warning.reason.code
        for warning in found.warnings
        if warning.code == "guess-choice"
    ] == ["unknown-guesses"]


@pytest.mark.parametrize(
    ("model", "methods"),
    [
        ("llama-3.1-8b", ("off", "eagle3")),
        ("meta-llama/Llama-3.1-8B-Instruct", ("off", "eagle3")),
        ("deepseek-r1", ("off", "mtp")),
        # The same architecture, and other weights than those of its draft.
        ("llama-3.1-70b", ("off",)),
    ],
)
def test_a_choice_is_of_published_guesses(
    model: str, methods: tuple[str, ...]
) -> None:
    spec = spec_of(chat(model=model, extra="serving: {speculation: auto}\n"))
    assert isinstance(spec, Inference)
    assert guess_methods(spec) == methods
