"""A capacity block: all of it is paid for, and its machines work between its start and its end."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.errors import SpecError
from stacks.build import build_stack
from tests.conftest import chat, find, present, spec_of
from tests.planner.cli.conftest import Command
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

OFFERED, BOUGHT = "cb-0a1b2c3d4e5f60718", "cr-0a1b2c3d4e5f60718"
BLOCK = {
    "id": OFFERED,
    "zone": "us-east-1a",
    "machines": "8",
    "type": "p5.48xlarge",
    "starts": "2026-12-01T11:30Z",
    "ends": "2026-12-08T11:30Z",
    "usd": "55800",
}
TRAINING = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 20B, storage: object}
train: {method: finetune}
"""


def rule(**changes: str) -> str:
    fields = ", ".join(
        f"{key}: {value}" for key, value in {**BLOCK, **changes}.items()
    )
    return f"block: {{{fields}}}"


def training(extra: str = "", **changes: str) -> str:
    return f"{TRAINING}buy: {{{rule(**changes)}{extra}}}\n"


def test_all_of_a_block_is_paid_for(catalog) -> None:
    solution = find(catalog, training(), keep=0)
    [pool] = solution.pools
    assert 1 <= pool.nodes <= 8
    assert (pool.region, pool.zones) == ("us-east-1", ("us-east-1a",))
    [part] = pool.purchases
    assert part.purchase == "capacity_block"
    assert part.usd_hour == Decimal(55800) / (8 * 168)
    [machines] = [
        line
        for line in present(solution.bill).lines
        if line.kind == "accelerators"
    ]
    assert machines.usd == 55800


@pytest.mark.parametrize(
    "changes",
    [
        # A day does not do what takes most of one on eight machines.
        {"machines": "1", "ends": "2026-12-02T11:30Z"},
        # Nor does an hour of many: it ends 40 minutes earlier for the machines.
        {"machines": "64", "ends": "2026-12-01T12:30Z"},
    ],
)
def test_a_run_ends_before_its_block(catalog, changes: dict[str, str]) -> None:
    solution = find(catalog, training(**changes), keep=0)
    assert not solution.pools
    assert "buy.block" in {limit.constraint for limit in solution.bindings}


def test_machine_types_that_are_sold_in_blocks_alone_can_be_had(
    catalog,
) -> None:
    machine = "p5e.48xlarge"
    listed = [
        offer
        for offer in catalog.offers
        if offer.instance.instance_type != machine
    ]
    text = training(type=machine, zone="us-east-2a")
    unlisted = replace(catalog, offers=tuple(listed))
    [pool] = find(unlisted, text, keep=0).pools
    assert pool.instance.instance_type == machine
    with pytest.raises(SpecError, match="no machine type p9"):
        find(catalog, training(type="p9.48xlarge"), keep=0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (training(ends="2026-12-01T11:30Z"), "is none"),
        (training(ends="2026-02-31T11:30Z"), "is none"),
        (training(extra=", spot: only"), "excludes"),
        (training(extra=", commit: 1y"), "excludes"),
        (training() + "shutdown: {ttl: 2d}\n", "begins later"),
        (chat(extra=f"buy: {{{rule()}}}"), "only a training"),
        (training(id="cx-1"), "cb-"),
        (training(starts="tomorrow"), "2026-12-01T11:30Z"),
    ],
)
def test_what_is_no_block_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError) as refusal:
        spec_of(text)
    problem = refusal.value.problems[0]
    assert told in f"{problem.message} {problem.next_step}"


def graph_of(catalog: Any, text: str) -> Any:
    made = spec_of(text)
    return build_stack(made, find(catalog, text, keep=0), made.name).graph


@pytest.mark.parametrize("block_id", [OFFERED, BOUGHT])
def test_what_is_built_buys_waits_and_ends(catalog, block_id: str) -> None:
    graph = graph_of(catalog, training(id=block_id))
    check(graph)
    bought = inputs_of(graph, "CapacityBlockReservation")
    assert [block["capacityBlockOfferingId"] for block in bought.values()] == (
        [OFFERED] if block_id == OFFERED else []
    )
    [template] = inputs_of(graph, "LaunchTemplate").values()
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = template["capacityReservationSpecification"]
    assert target["capacityReservationTarget"]["capacityReservationId"] == (
        {"$ref": "block", "output": "id"} if block_id == OFFERED else block_id
    )
    # A block has places of its own.
    assert not inputs_of(graph, "PlacementGroup")
    [group] = inputs_of(graph, "Group").values()
    assert group["desiredCapacity"] == 0
    schedules = inputs_of(graph, "Schedule")
    start = schedules["train-block-start"]
    assert start["startTime"] == "${from.20261201T113000Z}"
    assert start["desiredCapacity"] == group["maxSize"]
    # The cloud ends machines half an hour before the end of the block.
    end = schedules["train-block-end"]
    assert end["scheduleExpression"] == "at(2026-12-08T11:00:00)"


def test_a_block_is_bought_only_when_that_is_said(
    tonnage: Command, here: Path
) -> None:
    spec = here / "s.yaml"
    spec.write_text(training())
    assert tonnage("plan", "s.yaml", "--simulate", "-o", "p.json")[0] == 0
    apply = ("apply", "p.json", "--simulate")
    code, _, err = tonnage(*apply)
    assert (code, "error[buy-block]" in err, "55,800 USD" in err) == (
        5,
        True,
        True,
    )
    assert tonnage(*apply, "--buy-capacity-blocks")[0] == 0
    # What is bought is not bought again.
    assert tonnage(*apply)[0] == 0
    spec.write_text(training(id=OFFERED.replace("8", "9")))
    assert tonnage("plan", "s.yaml", "--simulate", "-o", "p.json")[0] == 0
    code, _, err = tonnage(*apply)
    assert (code, "error[buy-block]" in err) == (5, True)


RESERVED = "projects/corp-ai/reservations/calendar-1"
CALENDAR = {
    "id": RESERVED,
    "zone": "us-central1-a",
    "type": "a3-ultragpu-8g",
    "machines": "4",
}


def test_a_calendar_reservation_of_google_is_a_block(catalog) -> None:
    text = training(**CALENDAR).replace("s3://", "gs://")
    solution = find(catalog, text, keep=0)
    [pool] = solution.pools
    assert (pool.instance.provider, pool.region, pool.zones) == (
        "gcp",
        "us-central1",
        ("us-central1-a",),
    )
    graph = graph_of(catalog, text)
    check(graph)
    [template] = inputs_of(graph, "InstanceTemplate").values()
    scheduling = template["scheduling"]
    # What the reservation-bound model of Compute Engine asks for.
    assert scheduling["provisioningModel"] == "RESERVATION_BOUND"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    affinity = template["reservationAffinity"]
    assert affinity["type"] == "SPECIFIC_RESERVATION"
    assert affinity["specificReservation"]["values"] == [RESERVED]
    [group] = inputs_of(graph, "InstanceGroupManager").values()
    assert group["targetSize"] == 0
    jobs = inputs_of(graph, "Job")
    start, end = jobs["train-block-start"], jobs["train-block-end"]
    assert start["schedule"] == "${from.cron.20261201T113000Z}"
    assert start["httpTarget"]["uri"].endswith(f"size={pool.nodes}")
    assert end["schedule"] == "${from.cron.20261208T110000Z}"
    assert end["httpTarget"]["uri"].endswith("size=0")


@pytest.mark.parametrize("changes", [{}, CALENDAR], ids=["aws", "gcp"])
def test_its_machines_come_at_the_start_and_are_gone_at_the_end(
    tonnage: Command, here: Path, changes: dict[str, str]
) -> None:
    (here / "s.yaml").write_text(training(**changes))
    (here / "world.yaml").write_text("clock: 2026-11-30T00:00:00Z\n")
    world = ("--simulate", "world.yaml")
    applied = tonnage(
        "apply", "s.yaml", *world, "--yes", "--buy-capacity-blocks"
    )
    assert applied[0] == 0, applied[2]

    def machines_after(time: str) -> str:
        assert tonnage("simulate", "advance", time, *world)[0] == 0
        code, out, _ = tonnage("status", "tune", *world)
        assert code == 0
        return next(
            part for part in out.split("  ·  ") if "machine" in part
        ).partition(" ")[0]

    assert machines_after("1d") == "0"
    assert int(machines_after("13h")) > 0
    assert machines_after("7d") == "0"


@pytest.mark.parametrize("zone", ["us-east-1z", "xx-east-1a", "us-east4-a"])
def test_a_block_is_in_a_zone_that_its_cloud_has(catalog, zone: str) -> None:
    with pytest.raises(SpecError, match=f"aws has no zone {zone}"):
        find(catalog, training(zone=zone), keep=0)


@pytest.mark.parametrize(
    ("now", "code"), [("2027-01-10T00:00:00Z", 2), ("2026-11-30T00:00:00Z", 0)]
)
def test_a_block_that_is_over_is_not_applied(
    tonnage: Command, here: Path, now: str, code: int
) -> None:
    (here / "t.yaml").write_text(training())
    (here / "w.yaml").write_text(f"clock: {now}\n")
    found, _, told = tonnage(
        "apply",
        "t.yaml",
        "--simulate",
        "w.yaml",
        "--yes",
        "--buy-capacity-blocks",
    )
    assert found == code, told
    assert ("error[block-over]" in told) == (code == 2)
