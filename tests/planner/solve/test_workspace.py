"""Machines for people: the cheapest by what is paid, and advice that can be followed."""

from __future__ import annotations

from planner.sentence import describe
from planner.solve.settings import SolveSettings
from planner.workload.solver import why_not
from stacks.spec.table import unsupported_reason
from tests.conftest import find, present, solve, spec_of

WORKSPACE = """apiVersion: tonnage/v1
kind: Workspace
name: w
accelerator: {memory: 20GiB}
users: 2
"""
# Two hours of a day: a commitment is cheap by the hour and dear by the month.
RARELY = (
    'shutdown: {schedule: "weekdays 08:00-10:00"}\nbuy: {commit: [none, 1y]}\n'
)


def test_a_machine_type_costs_what_its_cheapest_bill_says(catalog) -> None:
    text = WORKSPACE + RARELY
    chosen = solve(catalog, text)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    [pool] = chosen.pools
    [answer] = why_not(spec_of(text), settings, pool.instance.instance_type)
    assert answer.usd == present(chosen.bill).total
    for rival in chosen.alternatives:
        pattern = rival.offer.instance.instance_type
        [answer] = why_not(spec_of(text), settings, pattern)
        if answer.usd is not None:
            assert answer.usd == rival.usd


def test_only_wishes_of_the_spec_are_relaxed_and_the_advice_can_be_followed(
    catalog,
) -> None:
    text = WORKSPACE.replace("20GiB", "100GiB")
    narrow = f"{text}where: {{accelerators: {{allow: [l4]}}}}\n"
    solution = solve(catalog, narrow)
    assert solution.status == "infeasible"
    assert solution.bindings
    for nearest in solution.bindings:
        assert nearest.constraint.startswith(("where.", "buy"))
        assert describe(nearest.relax_to) == "any"
        assert present(nearest.fleet).nodes == 2
    [nearest] = [
        b for b in solution.bindings if b.constraint == "where.accelerators"
    ]
    assert present(find(catalog, text).bill).total == nearest.usd
