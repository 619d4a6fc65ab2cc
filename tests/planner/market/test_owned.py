"""Machines that are paid for already serve first: they never cost more, and save what they run."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.cost.bill_line import MACHINE_KIND
from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.market.owned import read_owned
from planner.solve.settings import SolveSettings
from planner.solve.solution import Solution
from planner.units import HOURS_PER_MONTH
from planner.workload.solver import find
from stacks.spec.table import unsupported_reason
from tests.conftest import present, spec_of
from tests.oracles.standing import WEEK_MINUTES, standing_nodes
from tests.planner.cli.conftest import Command
from tests.planner.market.test_mix_committed import STAIRS, few, text_of

MACHINE, REGION = "g6e.xlarge", "us-east-1"


def owned_text(count: int, region: str = REGION, machine: str = MACHINE) -> str:
    return (
        f"machines: [{{cloud: aws, type: {machine}, region: '{region}', "
        f"count: {count}, usd_hour: 1.2}}]\n"
    )


def with_owned(
    catalog: Any,
    file_text: str,
    commit: str = "[none]",
    profile: str = "business-hours",
    extra: str = "",
) -> Solution:
    text = text_of("aws", f"{commit}, owned: owned.yaml{extra}", profile)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: file_text.encode(),
        alternative_count=0,
    )
    return find(spec_of(text), settings)


def total(solution: Solution) -> Decimal:
    return present(solution.bill).total


def machines_usd(solution: Solution) -> Decimal:
    return sum(
        (
            present(line.usd)
            for line in present(solution.bill).lines
            if line.kind == MACHINE_KIND
        ),
        Decimal(0),
    )


@pytest.mark.parametrize("profile", ["flat", "business-hours", "diurnal"])
@pytest.mark.parametrize("commit", ["[none]", "[none, 1y, 3y]"])
def test_more_that_is_owned_never_costs_more(
    catalog, commit: str, profile: str
) -> None:
    costs = [
        total(with_owned(catalog, owned_text(count), commit, profile))
        for count in (1, 2, 4, 50)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] < total(
        with_owned(catalog, owned_text(1, "nowhere"), commit, profile)
    )


@pytest.mark.parametrize("profile", ["flat", "business-hours", "diurnal"])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_owned_saves_the_hours_in_which_it_runs(
    catalog, count: int, profile: str
) -> None:
    """Of one machine type in one region, where nothing else can change."""
    catalog = few(catalog, MACHINE, REGION)
    plain = with_owned(catalog, owned_text(1, "nowhere"), profile=profile)
    owned = with_owned(catalog, owned_text(count), profile=profile)
    [pool], [plain_pool] = owned.pools, plain.pools
    assert pool.nodes == plain_pool.nodes
    hours, own_hours = (
        sum(min(count, nodes) for nodes in standing_nodes(solution, each))
        * HOURS_PER_MONTH
        / WEEK_MINUTES
        for solution, each in ((plain, plain_pool), (owned, pool))
    )
    [price] = [
        offer.usd_hour
        for offer in catalog.offers
        if offer.purchase == "on_demand"
    ]
    saved = machines_usd(plain) - machines_usd(owned)
    assert abs(saved - hours * price) <= Decimal("0.01")
    # What starts is worth more than what costs nothing, and so stays.
    assert total(owned) <= total(plain) - saved
    [use] = owned.owned
    # What costs nothing may run in more hours than it has to.
    assert own_hours >= hours
    assert use.used_share == pytest.approx(
        own_hours / (count * HOURS_PER_MONTH)
    )
    assert use.machines.usd_month == count * Decimal("1.2") * HOURS_PER_MONTH


def test_what_is_owned_elsewhere_is_said_to_be_unused(catalog) -> None:
    solution = with_owned(catalog, owned_text(2, "nowhere"))
    [use] = solution.owned
    assert use.used_share == 0
    assert {part.purchase for part in solution.pools[0].purchases} == {
        "on_demand"
    }


def test_no_more_is_used_than_is_owned(tonnage: Command, here: Path) -> None:
    """From one machine to more than the fleet, with all that a plan says beside its fleet."""
    (here / "s.yaml").write_text(
        text_of("aws", "[none], owned: o.yaml", "diurnal")
    )
    costs = []
    for count in range(1, 9):
        (here / "o.yaml").write_text(owned_text(count))
        code, out, _ = tonnage("plan", "s.yaml", "-f", "json")
        assert code == 0
        plan = json.loads(out)
        [pool] = plan["solution"]["pools"]
        used = sum(
            part["nodes"]
            for part in pool["purchases"]
            if part["purchase"] == "owned"
        )
        assert used <= count
        [owned] = plan["cost"]["owned"]
        assert 0 <= owned["used_share"] <= 1
        costs.append(Decimal(plan["cost"]["total"]))
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("extra", ["", ", on_demand_base: 60%"])
@pytest.mark.parametrize("commit", ["[none]", "[none, 1y]"])
@pytest.mark.parametrize("count", [3, 40])
def test_no_bound_is_above_a_bill(
    catalog, extra: str, commit: str, count: int
) -> None:
    """So a choice of one machine type alone never costs less than the whole catalog."""
    file_text = owned_text(count) + ("  # another type\n")
    file_text = file_text.replace(
        "}]",
        f"}}, {{cloud: aws, type: p5.48xlarge, region: us-east-1, count: {count}, "
        "usd_hour: 9}]",
    )

    def least(offered: Any) -> Decimal:
        solution = with_owned(offered, file_text, commit, "diurnal", extra)
        return total(solution) if solution.pools else Decimal("Infinity")

    whole = least(catalog)
    for machine in (MACHINE, "p5.48xlarge", "g6.xlarge"):
        assert whole <= least(few(catalog, machine)), machine


def test_four_ways_to_buy_stand_in_one_fleet(catalog) -> None:
    """Owned, committed, on demand, and spot above a share."""
    solution = with_owned(
        few(catalog, MACHINE, REGION),
        owned_text(1),
        "[none, 1y]",
        STAIRS,
        ", on_demand_base: 80%",
    )
    [pool] = solution.pools
    assert [part.purchase for part in pool.purchases] == [
        "owned",
        "reserved_1y",
        "on_demand",
        "spot",
    ]


@pytest.mark.parametrize("cloud", clouds())
def test_a_fleet_with_owned_machines_is_built(
    tonnage: Command, here: Path, catalog, cloud: str
) -> None:
    text = text_of(cloud, "[none, 3y], owned: o.yaml", "diurnal")
    (here / "s.yaml").write_text(text.replace(", owned: o.yaml", ""))
    plan = json.loads(tonnage("plan", "s.yaml", "-f", "json")[1])
    [pool] = plan["solution"]["pools"]
    (here / "s.yaml").write_text(text)
    (here / "o.yaml").write_text(
        f"machines: [{{cloud: {cloud}, type: {pool['instance_type']}, "
        f"region: {pool['region']}, count: 1, usd_hour: 2}}]\n"
    )
    assert tonnage("plan", "s.yaml", "-o", "p.json")[0] == 0
    page = tonnage("plan", "s.yaml")[1]
    assert f"owned: 1 x {pool['instance_type']} in {cloud}" in page
    assert "$1,460 a month anyway, 0 % of it unused" in page
    flags = ("--simulate", "--yes", "--commitments-bought")
    assert tonnage("apply", "p.json", *flags)[0] == 0
    status = tonnage("status", "chat", "--simulate")[1]
    assert "1 owned" in status
    assert (
        "counts on what is bought beside the stack: "
        f"1 x {pool['instance_type']} owned" in status
    )
    # A plan is stale when what is owned has changed.
    (here / "o.yaml").write_text("machines: []\n")
    assert tonnage("apply", "p.json", *flags)[0] == 11
    assert tonnage("destroy", "chat", "--simulate", "--yes")[0] == 0


@pytest.mark.parametrize(
    ("file_text", "told"),
    [
        ("machines: [{cloud: aws, type: p5.48xlarge}]", "region is missing"),
        (owned_text(0), "too small"),
        (owned_text(2).replace("usd_hour: 1.2", "usd_hour: NaN"), "read"),
        (owned_text(2).replace("count", "cuont"), "count"),
        ("[]", "keys and values"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    file_text: str, told: str
) -> None:
    with pytest.raises(SpecError, match=told) as refusal:
        read_owned(file_text.encode(), "owned.yaml")
    places = [problem.place for problem in refusal.value.problems]
    assert all(present(place).path == "owned.yaml" for place in places)


@pytest.mark.parametrize(
    ("row", "cause", "told"),
    [
        (
            "type: g6e.xlrage, region: us-east-1",
            "'g6e.xlrage' matches nothing: the catalog has no such machine type of aws",
            "did you mean 'g6e.xlarge'?",
        ),
        (
            "type: zzz, region: '*'",
            "'zzz' matches nothing",
            "see names: tonnage offers --limit 1000",
        ),
        (
            "type: g6e.xlarge, region: us-esat-1",
            "the catalog has no such region of aws",
            "did you mean 'us-east-1'?",
        ),
        (
            "type: g6e.*, region: us-east-1",
            "has 1 x l40s, and g6e.48xlarge has 8 x l40s",
            "a row of its own",
        ),
        (
            "type: 'p5*.48xlarge', region: '*'",
            " USD an hour in ",
            "a row of its own",
        ),
    ],
)
@pytest.mark.parametrize("command", ["plan", "check"])
def test_owned_machines_that_no_plan_can_use_as_meant_are_refused(
    tonnage: Command, here: Path, command: str, row: str, cause: str, told: str
) -> None:
    """A misspelt name is paid for and never used; a pattern takes large for small."""
    (here / "s.yaml").write_text(text_of("aws", "[none], owned: o.yaml"))
    (here / "o.yaml").write_text(
        "machines:\n"
        "  - {cloud: aws, type: g6e.xlarge, region: '*', count: 1, usd_hour: 1}\n"
        f"  - {{cloud: aws, {row}, count: 4, usd_hour: 0.3}}\n"
    )
    code, _, error = tonnage(command, "s.yaml")
    assert code == 2
    assert "o.yaml:3:5  error[owned]" in error
    assert (cause in error, told in error) == (True, True), error
    assert "o.yaml:2" not in error


def test_a_pattern_may_be_of_machines_that_are_alike(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none], owned: o.yaml"))
    (here / "o.yaml").write_text(owned_text(1, "us-*", "g6e.x*"))
    assert tonnage("check", "s.yaml")[0] == 0


def test_the_library_refuses_what_the_command_does() -> None:
    with pytest.raises(SpecError, match="matches nothing"):
        api.plan(
            text_of("aws", "[none], owned: o.yaml").encode(),
            read_file=lambda _: owned_text(1, machine="nosuch").encode(),
        )
