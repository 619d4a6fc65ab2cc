"""Small clouds: what the machine-hours of a bill would cost there."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.facts.small_cloud import small_cloud_machines, small_clouds
from planner.market.small_cloud import cheapest_elsewhere, with_small_clouds
from planner.perf.common.constant import constant
from planner.units import HOURS_PER_MONTH
from tests.conftest import ROOT, TODAY, chat, find, only, present, spec_of
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import plan_of


def test_a_cloud_has_one_price_for_a_machine() -> None:
    found = Counter(
        (machine.cloud, machine.accelerator, machine.accelerators)
        for machine in small_cloud_machines()
    )
    assert max(found.values()) == 1


def test_machines_are_compared_with_such_ones_alone(catalog) -> None:
    """For every machine type: as many of the same accelerator, cheapest first."""
    instances = {
        offer.instance.instance_type: offer.instance for offer in catalog.offers
    }
    compared = 0
    for instance in instances.values():
        fleets = cheapest_elsewhere(
            small_cloud_machines(), instance, HOURS_PER_MONTH, most=99
        )
        compared += bool(fleets)
        for fleet in fleets:
            machine = fleet.machine
            assert machine.accelerator == instance.accelerator
            assert machine.accelerators == instance.accelerators
            assert fleet.usd == round(HOURS_PER_MONTH * machine.usd_hour, 2)
        assert [fleet.usd for fleet in fleets] == sorted(
            fleet.usd for fleet in fleets
        )
        assert instance.fraction == 1 or not fleets
    assert compared > 10


@pytest.mark.parametrize("name", ["chat-405b", "finetune-70b"])
def test_a_plan_compares_the_hours_of_its_bill(catalog, name: str) -> None:
    plan = plan_of(catalog, (ROOT / f"blueprints/{name}.yaml").read_text())
    hours = sum(
        line.quantity for line in plan.cost.lines if line.kind == "accelerators"
    )
    assert plan.cost.elsewhere
    for found in plan.cost.elsewhere:
        assert abs(found.usd - hours * found.usd_hour) <= Decimal("0.01")


def test_a_catalog_has_its_own_prices_of_small_clouds(catalog) -> None:
    """In the bill of a plan, and as offers; one without machines has none of the program."""
    cheap = tuple(
        replace(machine, usd_hour=Decimal(1), source="live-x", as_of=TODAY)
        for machine in small_cloud_machines()
        if machine.cloud_name == "oci"
    )
    few = replace(catalog, small_machines=cheap)
    text = (ROOT / "blueprints/chat-405b.yaml").read_text()
    [found] = plan_of(few, text).cost.elsewhere
    assert (found.usd_hour, found.price_source) == (Decimal(1), "live-x")
    assert (found.cloud, found.price_as_of) == ("OCI", TODAY)
    names = ("lambda", "oci")
    added = with_small_clouds(few, names).offers[len(few.offers) :]
    assert {offer.provider for offer in added} == {"oci"}
    assert {(offer.usd_hour, offer.as_of) for offer in added} == {
        (Decimal(1), TODAY)
    }
    none = replace(catalog, small_machines=())
    assert with_small_clouds(none, names) is none


def test_what_nobody_else_rents_out_is_not_compared(catalog) -> None:
    few = only(
        catalog, lambda offer: offer.instance.instance_type == "g2-standard-4"
    )
    text = (ROOT / "blueprints/chat-8b.yaml").read_text()
    assert plan_of(few, text).cost.elsewhere == ()


SMALL = "where: {clouds: [lambda, nebius]}"


def test_a_plan_there_is_that_of_such_a_machine_at_its_price(catalog) -> None:
    """Against the plan on the machine that the hosts are taken to be like."""
    text = chat("llama-3.1-70b", extra=SMALL)
    solution = find(with_small_clouds(catalog, ("lambda", "nebius")), text)
    [pool] = solution.pools
    bill = present(solution.bill)
    [row] = [
        machine
        for machine in small_cloud_machines()
        if (machine.cloud_name, machine.machine)
        == (pool.instance.provider, pool.instance.instance_type)
    ]
    assert pool.instance.accelerators == row.accelerators
    assert bill.lines[0].unit_price == row.usd_hour
    assert bill.total == bill.lines[0].usd
    assert set(bill.unpriced_lines) == {line.name for line in bill.lines[1:]}
    alike = only(
        catalog,
        lambda offer: (
            offer.instance.accelerator == row.accelerator
            and offer.instance.accelerators == row.accelerators
        ),
    )
    # Its network joins no machines, as far as is known.
    apart = tuple(
        replace(
            offer,
            instance=replace(offer.instance, fabric=pool.instance.fabric),
        )
        for offer in alike.offers
    )
    elsewhere = find(replace(alike, offers=apart), chat("llama-3.1-70b"))
    assert elsewhere.pools[0].nodes == pool.nodes
    assert elsewhere.pools[0].layout == pool.layout


TUNING = """\
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 50M, size: 2TB}
train: {method: lora, rank: 16, deadline: 24h}
buy: {spot: never}
where: {clouds: [CLOUDS]}
"""


def test_a_training_there_has_one_machine_at_its_price(catalog) -> None:
    """Without a price are all other lines, but what the data cost where they leave."""
    names = ("lambda", "verda")
    text = TUNING.replace("CLOUDS", ", ".join(names))
    solution = find(with_small_clouds(catalog, names), text)
    [pool] = solution.pools
    bill = present(solution.bill)
    [row] = [
        machine
        for machine in small_cloud_machines()
        if (machine.cloud_name, machine.machine)
        == (pool.instance.provider, pool.instance.instance_type)
    ]
    assert pool.nodes == 1
    machines, *others, data = bill.lines
    assert machines.unit_price == row.usd_hour
    assert not any(line.is_priced for line in others)
    # 2,000 GB, of which AWS takes nothing for the first 100: 0.09 USD for each other.
    assert data.name == "data out of aws above 100 GB"
    assert data.usd == Decimal("171.00")
    assert bill.total == present(machines.usd) + Decimal("171.00")


@pytest.mark.parametrize(
    "name",
    [
        "object_store_gb_s",
        "object_store_all_read_gb_s",
        "object_store_all_write_gb_s",
    ],
)
def test_their_buckets_are_taken_to_be_as_slow_as_any(name: str) -> None:
    assert constant(name, "other") == min(
        constant(name, cloud) for cloud in clouds()
    )


def test_nothing_there_joins_the_machines_of_a_training(catalog) -> None:
    """405 billion parameters with their optimizer are more than any machine holds."""
    text = (
        TUNING.replace("llama-3.1-8b", "llama-3.1-405b")
        .replace("lora, rank: 16", "finetune")
        .replace("24h", "30d")
    )
    names = tuple(small_clouds())
    there = text.replace("CLOUDS", ", ".join(names))
    assert find(with_small_clouds(catalog, names), there).pools == ()
    assert find(catalog, text.replace("CLOUDS", "aws")).pools[0].nodes > 1


def test_no_file_system_is_known_there() -> None:
    text = TUNING.replace("size: 2TB", "size: 2TB, storage: parallel")
    with pytest.raises(SpecError) as caught:
        spec_of(text.replace("CLOUDS", "lambda, nebius"))
    [problem] = caught.value.problems
    assert "at lambda, nebius" in problem.message
    assert present(problem.place).line == 5
    assert spec_of(text.replace("CLOUDS", "lambda, aws"))


def test_more_clouds_never_cost_more(catalog) -> None:
    def usd(*clouds: str) -> Decimal:
        text = chat(extra=f"where: {{clouds: [{', '.join(clouds)}]}}")
        bill = find(with_small_clouds(catalog, clouds), text).bill
        return present(bill).total

    few = usd("aws", "gcp")
    assert usd("aws", "gcp", "hyperstack", "lambda") <= few
    assert usd("hyperstack", "lambda") <= usd("lambda")


@pytest.fixture(
    params=[
        chat("llama-3.1-70b", extra=SMALL),
        TUNING.replace("CLOUDS", "lambda").replace("name: tune", "name: chat"),
    ],
    ids=["service", "training"],
)
def spec_path(here: Path, request: pytest.FixtureRequest) -> str:
    (here / "s.yaml").write_text(request.param)
    return "s.yaml"


def test_apply_refuses_it_by_name_and_touches_nothing(
    tonnage: Command, here: Path, spec_path: str
) -> None:
    code, page, _ = tonnage("plan", spec_path, "-o", "p.json")
    assert code == 0
    assert "apply refuses this plan" in page
    assert ">= $" in page
    assert "no price is known of" in page
    before = sorted(here.rglob("*"))
    for argument in (spec_path, "p.json"):
        code, _, problem = tonnage("apply", argument, "--simulate", "--yes")
        assert code == 2
        assert "error[unbuilt-cloud]: nothing is built at " in problem
    assert tonnage("list", "--simulate", "-f", "json")[1].strip() == "[]"
    assert sorted(here.rglob("*")) == before


def test_a_standing_stack_is_not_taken_down_for_it(
    tonnage: Command, here: Path, spec_path: str
) -> None:
    (here / "aws.yaml").write_text(
        chat("llama-3.1-70b", extra="where: {clouds: [aws]}")
    )
    assert tonnage("apply", "aws.yaml", "--simulate", "--yes")[0] == 0
    resources = tonnage("status", "chat", "--simulate", "-f", "json")[1]
    assert tonnage("apply", spec_path, "--simulate", "--yes")[0] == 2
    assert tonnage("status", "chat", "--simulate", "-f", "json")[1] == resources


@pytest.mark.parametrize("cloud", small_clouds())
def test_spot_of_a_small_cloud_is_refused_and_not_said_to_be_sold_by_nobody(
    cloud: str,
) -> None:
    where = f"where: {{clouds: [{cloud}]}}"
    with pytest.raises(SpecError, match="publishes how often"):
        spec_of(chat(extra=f"buy: {{spot: only}}\n{where}"))
    assert spec_of(chat(extra=where))
    for large in clouds():
        other = f"where: {{clouds: [{large}]}}"
        assert spec_of(chat(extra=f"buy: {{spot: only}}\n{other}"))
