"""What a plan says before it is paid for: the network that stands while nothing runs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.market.offer import Catalog
from planner.solve.solution import Solution
from tests.conftest import chat, find, only, present

NIGHTS_OFF = 'shutdown: {schedule: "weekdays 10:00-12:00"}\n'
HERE = "where: {clouds: [aws], regions: [us-east-1]}\n"
# What stands in all hours, by the names of the lines of the bill.
NETWORK = {"NAT gateway", "public address"}


def idle_usd(solution: Solution) -> Decimal | None:
    found = [
        warning.reason.values["idle_usd"]
        for warning in solution.warnings
        if warning.code == "idle-network"
    ]
    return Decimal(str(found[0])) if found else None


@pytest.mark.parametrize(
    ("hours", "week_hours"), [("10:00-12:00", 10), ("08:00-19:00", 55)]
)
def test_a_network_that_stands_alone_for_long_is_questioned(
    catalog: Catalog, hours: str, week_hours: int
) -> None:
    schedule = NIGHTS_OFF.replace("10:00-12:00", hours)
    solution = find(catalog, chat(extra=schedule + HERE), keep=0)
    bill = present(solution.bill)
    network_usd = sum(
        present(line.usd) for line in bill.lines if line.name in NETWORK
    )
    by_hand = network_usd * (1 - Decimal(week_hours) / 168)
    assert by_hand > bill.total / 20
    assert abs(present(idle_usd(solution)) - by_hand) < Decimal("0.01")


def test_where_machines_run_always_it_is_not(catalog: Catalog) -> None:
    assert idle_usd(find(catalog, chat(extra=HERE), keep=0)) is None


def test_a_network_of_others_is_not_paid(catalog: Catalog) -> None:
    given = (
        "network: {id: vpc-0a1b2c3d, subnets: [subnet-0a1b2c3d@us-east-1a, "
        "subnet-0a1b2c3e@us-east-1b], range: 10.20.0.0/20}\n"
    )
    given_one = find(catalog, chat(extra=NIGHTS_OFF + HERE + given), keep=0)
    assert idle_usd(given_one) is None
    assert idle_usd(find(catalog, chat(extra=NIGHTS_OFF + HERE), keep=0))


@pytest.mark.parametrize(
    "text",
    [
        chat(extra=NIGHTS_OFF + HERE),
        "apiVersion: tonnage/v1\nkind: Workspace\nname: desk\nusers: 1\n"
        "accelerator: {memory: 20GiB}\ndisk: 50GiB\n" + NIGHTS_OFF + HERE,
    ],
)
def test_addresses_save_what_the_question_says(
    catalog: Catalog, text: str
) -> None:
    """The same machines, planned with the key."""
    machine = find(catalog, text, keep=0).pools[0].instance
    one_type = only(catalog, lambda offer: offer.instance == machine)
    found = find(one_type, text, keep=0)
    [reason] = [
        warning.reason
        for warning in found.warnings
        if warning.code == "idle-network"
    ]
    addressed = find(
        one_type, text + "network: {public_addresses: true}\n", keep=0
    )
    assert addressed.pools[0].nodes == found.pools[0].nodes
    saved_usd = present(found.bill).total - present(addressed.bill).total
    assert saved_usd > 0
    assert reason.values["saved_usd"] == saved_usd
    assert idle_usd(addressed) is None
