"""Machines that come all at once when their cloud has them, for a week at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cost.lifetime import release_time
from planner.errors import SpecError
from stacks.build import build_stack
from tests.conftest import chat, find, present, spec_of
from tests.planner.cli.conftest import Command
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

TRAINING = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: gs://sets/chat, tokens: TOKENS, storage: object}
train: {method: finetune}
where: {clouds: [gcp], accelerators: {allow: [h100]}}
buy: {flex_start: true}
"""


def training(tokens: str = "2B") -> str:
    return TRAINING.replace("TOKENS", tokens)


def test_a_run_is_planned_at_the_price_of_flex_start(catalog) -> None:
    solution = find(catalog, training(), keep=0)
    [pool] = solution.pools
    [part] = pool.purchases
    assert part.purchase == "flex_start"
    prices = {
        offer.usd_hour
        for offer in catalog.unlisted
        if offer.purchase == "flex_start"
        and offer.instance.instance_type == pool.instance.instance_type
        and offer.region == pool.region
    }
    assert part.usd_hour in prices
    run = present(solution.training_run)
    assert run.hours_p50_p90[1] * 3600 <= float(release_time("flex_limit_s"))


def test_a_run_of_more_than_a_week_is_not_planned(catalog) -> None:
    solution = find(catalog, training("1000B"), keep=0)
    assert not solution.pools
    limits = {limit.constraint for limit in solution.bindings}
    assert "buy.flex_start" in limits


def test_one_request_asks_for_all_machines(catalog) -> None:
    text = training("20B")
    made, solution = spec_of(text), find(catalog, text, keep=0)
    graph = build_stack(made, solution, made.name).graph
    check(graph)
    [pool] = solution.pools
    [template] = inputs_of(graph, "InstanceTemplate").values()
    scheduling = template["scheduling"]
    assert scheduling["provisioningModel"] == "FLEX_START"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert template["reservationAffinity"] == {"type": "NO_RESERVATION"}
    [group] = inputs_of(graph, "InstanceGroupManager").values()
    assert group["targetSize"] == 0
    assert group["instanceLifecyclePolicy"]["defaultActionOnFailure"] == (
        "DO_NOTHING"
    )
    [request] = inputs_of(graph, "ResizeRequest").values()
    assert request["resizeBy"] == pool.nodes
    asked_s = int(request["requestedRunDuration"]["seconds"])
    assert 600 <= asked_s <= 604_800
    assert asked_s == scheduling["maxRunDuration"]["seconds"]
    hours = present(solution.training_run).hours_p50_p90[1]
    assert asked_s >= min(hours * 3600, 604_800)


def test_simulated_machines_come_and_go_and_cost_their_price(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(training())
    code, _, err = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert code == 0, err

    def status() -> str:
        _, out, _ = tonnage("status", "tune", "--simulate")
        return next(p for p in out.split("  \u00b7  ") if "machine" in p)

    assert status().startswith("0 machines")
    assert tonnage("simulate", "advance", "30m", "--simulate")[0] == 0
    assert not status().startswith("0 machines")
    code, bill, _ = tonnage("simulate", "bill", "--simulate")
    assert (code, "accelerators" in bill) == (0, True)
    assert tonnage("simulate", "advance", "8d", "--simulate")[0] == 0
    assert status().startswith("0 machines")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (chat(extra="buy: {flex_start: true}"), "for a training"),
        (training().replace("true}", "true, spot: only}"), "excludes"),
        (training().replace("true}", "true, commit: 1y}"), "excludes"),
        (training() + "shutdown: {ttl: 2d}\n", "come later"),
    ],
)
def test_what_does_not_wait_or_is_bought_otherwise_is_refused(
    text: str, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        spec_of(text)
