"""Lines of a bill, weeks, energy and file systems against what a person counts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.cost import capacity_block
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    egress_lines,
    priced_line,
    service_lines,
)
from planner.cost.energy import (
    Energy,
    PoweredMachine,
    machine_energy,
    sum_energy,
)
from planner.cost.file_system import file_systems
from planner.cost.service_price import PriceBook, ServicePrice
from planner.cost.weekly_load import (
    SpareGroups,
    running_shares,
    weekly_load,
    weekly_starts,
)
from planner.facts.accelerator import accelerators
from tests.conftest import present


def use(provider: str, **more: object) -> Usage:
    words: dict[str, object] = {
        "provider": provider,
        "node_hours": Decimal(730),
        "cache_gb": Decimal(0),
        "stored_gb_months": Decimal(16),
        "sent_gb": Decimal(0),
        "received_gb": Decimal(0),
        "serves_traffic": True,
        **more,
    }
    return Usage(**words)  # type: ignore[arg-type]


def price(
    usd: str,
    unit: str = "GB",
    start: int | None = None,
    end: int | None = None,
) -> ServicePrice:
    return ServicePrice(
        provider="aws",
        role="",
        item="",
        region="",
        unit=unit,
        usd=Decimal(usd),
        from_gb=None if start is None else Decimal(start),
        to_gb=None if end is None else Decimal(end),
        source="a list",
        as_of="2026-11",
        confidence="",
    )


def book(**prices: ServicePrice) -> PriceBook:
    return PriceBook({("aws", role): (one,) for role, one in prices.items()})


HALF_A_MONTH = {
    "node_hours": Decimal(365),
    "network_hours": Decimal(100),
    "cache_gb": Decimal(100),
    "sent_gb": Decimal(300),
    "received_gb": Decimal(20),
}


@pytest.mark.parametrize(
    ("cloud", "zones", "proxied_zones", "gb"),
    [
        # Of 320 GB two thirds go to another zone, and AWS bills both sides of the border.
        ("aws", 3, 1, Decimal(320) * 2 / 3 * 2),
        # A proxy sends half of what it gets on to a machine in the other zone.
        ("aws", 2, 2, Decimal(320) * (Decimal(1) / 2 + Decimal(1) / 2) * 2),
        ("aws", 1, 1, None),
        # A balancer that passes packets through sends nothing across, a proxy does.
        ("gcp", 3, 1, None),
        ("gcp", 3, 3, Decimal(320) * 2 / 3),
    ],
)
def test_traffic_between_zones_is_what_is_spread_evenly(
    cloud: str, zones: int, proxied_zones: int, gb: Decimal | None
) -> None:
    lines = service_lines(
        use(cloud, **HALF_A_MONTH, zones=zones, proxied_zones=proxied_zones),
        PriceBook({}),
    )
    found = [line.quantity for line in lines if line.kind == "cross_zone"]
    assert found == (
        [] if gb is None else [pytest.approx(gb, abs=Decimal("0.001"))]
    )


def test_every_quantity_is_that_of_a_pocket_calculator() -> None:
    """Half a month of one machine: 128 GB of disk, 12 GB for each of 4 starts, 13.5 MB an hour.

    Logs pass the NAT too.
    """
    lines = service_lines(use("aws", **HALF_A_MONTH), PriceBook({}))
    assert [(x.name, x.unit, x.quantity) for x in lines] == [
        ("boot disks", "GB-month", 64),
        ("model and data disks", "GB-month", 50),
        ("NAT gateway", "hour", 100),
        ("NAT data", "GB", Decimal("28.9275")),
        ("public address", "hour", 100),
        ("load balancer", "hour", 100),
        ("load balancer data", "GB", 320),
        ("object storage", "GB-month", 16),
        ("logs", "GB", Decimal("4.9275")),
        ("dashboard", "dashboard-month", Decimal("0.1370")),
        ("custom metrics", "metric-month", Decimal("0.9589")),
        ("alarms", "alarm-month", Decimal("0.5479")),
    ]
    quiet = service_lines(
        use(
            "aws",
            **HALF_A_MONTH | {"serves_traffic": False, "cache_gb": Decimal(0)},
        ),
        PriceBook({}),
    )
    assert [x.kind for x in quiet] == [
        "disk",
        "nat",
        "nat_data",
        "public_ip",
        "object_storage",
        "logs",
        "dashboard",
        "metric",
        "alarm",
    ]


def test_what_is_sold_by_the_disk_the_machine_or_the_unit_is_counted_so() -> (
    None
):
    prices = book(
        disk_p10=price("20", "disk-month"),
        disk=price("0.1", "GB-month"),
        nat_per_node=price("0.5", "node-hour"),
        nat=price("1", "hour"),
        load_balancer_unit=price("0.008", "LCU-hour"),
    )
    lines = {
        x.name: x for x in service_lines(use("aws", **HALF_A_MONTH), prices)
    }
    found = {
        name: (x.unit, x.quantity, x.usd)
        for name, x in lines.items()
        if x.is_priced
    }
    assert found == {
        "boot disks": ("disk-month", Decimal("0.5"), 10),
        # Without a price of its own a cache disk costs as a boot disk.
        "model and data disks": ("GB-month", 50, 5),
        "NAT gateway": ("node-hour", 365, Decimal("182.5")),
        "load balancer data": ("LCU-hour", 320, Decimal("2.56")),
    }
    own = PriceBook(
        prices.prices | book(cache_disk=price("0.2", "GiB-month")).prices
    )
    cache = service_lines(use("aws", **HALF_A_MONTH), own)[1]
    assert (cache.unit, cache.usd) == ("GiB-month", Decimal(10))


@pytest.mark.parametrize(
    ("sent", "lines"),
    [
        (100, []),
        (101, [("egress above 100 GB", 1, Decimal("0.1"))]),
        (1000, [("egress above 100 GB", 900, 90)]),
        (
            1500,
            [
                ("egress above 100 GB", 900, 90),
                ("egress above 1000 GB", 500, None),
            ],
        ),
    ],
)
def test_egress_is_free_then_priced_then_unknown(
    sent: int, lines: list[tuple[str, Decimal, Decimal | None]]
) -> None:
    tiers = (price("0", "GB", None, 100), price("0.1", "GB", 100, 1000))
    found = egress_lines(
        "aws", Decimal(sent), PriceBook({("aws", "egress"): tiers})
    )
    assert [(x.name, x.quantity, x.usd) for x in found] == lines


def test_halves_are_rounded_up_and_the_shown_quantity_is_priced() -> None:
    line = priced_line("x", "x", "GB", Decimal("0.50005"), price("5"))
    assert line.quantity == Decimal("0.5001")
    assert line.usd == Decimal("2.50")
    assert str(line.usd) == "2.50"
    line = priced_line("x", "x", "GB", Decimal("0.50004"), price("250"))
    assert line.usd == Decimal("125.00")  # not 125.01
    line = priced_line("x", "x", "GB", Decimal(1), price("0.125"))
    assert line.usd == Decimal("0.13")


def test_a_cache_disk_has_a_fifth_to_spare_unless_local_disks_hold_it() -> None:
    assert cache_disk_gb(0.0, Decimal("100.1")) == 121  # 120.12 GB
    assert cache_disk_gb(120.0, Decimal("100.1")) == 121
    assert cache_disk_gb(120.0, Decimal(100)) == 0
    assert cache_disk_gb(121.0, Decimal(100)) == 0


def test_blocks_begin_at_one_day_and_end_on_the_second() -> None:
    day = 86_400.0
    for seconds, days in (
        (0.0, 1),
        (day, 1),
        (day + 1, 2),
        (14 * day + 60, 21),
        (182 * day, 182),
        (182 * day + 1, None),
    ):
        assert (
            capacity_block.block_days("capacity_block", "aws", 256, seconds)
            == days
        )
    assert capacity_block.max_nodes("aws") == 256


@pytest.mark.parametrize(
    ("mb_s", "gib", "sizes"),
    [
        (0, 1200, (1200, 1200, 1200, 1200)),
        (0, 1201, (2400, 2400, 2400, 2400)),
        # 10 GB/s at 125, 250, 500 and 1,000 MB/s of a TiB.
        (10_000, 1, (84_000, 43_200, 21_600, 12_000)),
        (1000, 9000, (9600, 9600, 9600, 9600)),
        # 2,343.75 MB/s are 2,400 GiB at 1,000 MB/s of a TiB, and no more.
        (2343.75, 1, (19_200, 9600, 4800, 2400)),
        (2344, 1, (21_600, 12_000, 7200, 4800)),
    ],
)
def test_a_file_system_is_the_smallest_that_is_sold_for_room_and_speed(
    mb_s: float, gib: int, sizes: tuple[int, ...]
) -> None:
    """AWS: 1.2 TiB or a multiple of 2.4 TiB, at the MB/s of its tier for each 1,024 GiB."""
    found = file_systems("aws", mb_s * 1e6, gib * 2**30)
    assert [x.mb_s_per_tib for x in found] == [125, 250, 500, 1000]
    assert tuple(x.capacity_gib for x in found) == sizes
    for one in found:
        assert one.bytes_per_s >= mb_s * 1e6
        assert one.bytes_per_s == pytest.approx(
            one.capacity_gib / 1024 * one.mb_s_per_tib * 1e6
        )


def test_a_file_system_is_paid_by_the_gib_and_month() -> None:
    one = file_systems("aws", 0, 1)[0]
    line = one.priced_line(
        book(lustre_125=price("0.145", "GB-month")), Decimal("0.5")
    )
    assert (line.quantity, line.unit, line.usd) == (
        Decimal(600),
        "GB-month",
        Decimal(87),
    )
    unknown = one.priced_line(PriceBook({}), Decimal("0.5"))
    assert (unknown.quantity, unknown.unit, unknown.usd) == (
        Decimal(600),
        "GiB-month",
        None,
    )


def machine(**words: object) -> PoweredMachine:
    return PoweredMachine(
        **{  # type: ignore[arg-type]
            "provider": "aws",
            "region": "us-east-1",
            "chip": accelerators()["h100-sxm"],
            "board_count": 8.0,
            "role": "train",
            **words,
        }
    )


@pytest.mark.parametrize(
    ("words", "kw", "grid"),
    [
        ({}, 5.6 * 1.82 * 0.85 * 1.15, 0.39625),
        # No PUE of this region: the one of the provider; another role.
        (
            {"region": "ca-west-9", "role": "serve"},
            5.6 * 1.82 * 0.6 * 1.14,
            None,
        ),
        # An architecture without a row takes the mean of the known ones.
        (
            {"chip": accelerators()["a100-80gb-sxm"], "board_count": 1.0},
            0.4 * 1.8 * 0.85 * 1.15,
            0.39625,
        ),
    ],
)
def test_power_is_boards_times_machine_load_and_building(
    words: dict[str, object], kw: float, grid: float | None
) -> None:
    """700 W a board of an H100, 400 W of an A100; 3 machines for 100 hours of one machine."""
    found = present(machine_energy(machine(**words), 3, Decimal(100)))
    assert found.kw == pytest.approx(3 * kw)
    assert found.kwh == pytest.approx(100 * kw)
    if grid is None:
        assert found.kg_co2e is None
    else:
        assert found.kg_co2e == pytest.approx(100 * kw * grid)


def test_energy_adds_up_and_its_carbon_only_where_all_of_it_is_known() -> None:
    one, other = Energy(1.0, 20.0, 300.0), Energy(2.0, 30.0, 500.0)
    assert sum_energy([one, other]) == Energy(3.0, 50.0, 800.0)
    assert sum_energy([one, Energy(2.0, 30.0, None)]) == Energy(3.0, 50.0, None)


def test_an_unknown_cloud_has_no_energy() -> None:
    assert machine_energy(machine(provider="nimbus"), 1, Decimal(1)) is None


def test_a_week_is_what_a_person_counts_on_its_hours() -> None:
    """A third of the load until noon; each day 06:30 to 18:00: 5.5 quiet hours and 6 busy ones."""
    weights = (Decimal(1),) * 12 + (Decimal(3),) * 12
    week = weekly_load(weights, "daily 06:30-18:00")
    assert week.relative_load == ((1 / 3,) * 12 + (1.0,) * 12) * 7
    # Three groups of two nodes and a spare group: (1 + 1) * 2 until noon, (3 + 1) * 2 after.
    nodes = week.hourly_nodes(3, 2, SpareGroups(1))
    assert nodes == ((0,) * 6 + (4,) * 6 + (8,) * 6 + (0,) * 6) * 7
    a_month = Decimal(730) / 24
    assert week.node_hours(3, 2, SpareGroups(1)) == pytest.approx(
        (22 + 48) * a_month
    )
    # The spare group from the load of noon on.
    assert week.node_hours(3, 2, SpareGroups(1, 0.5)) == pytest.approx(
        (11 + 48) * a_month
    )
    assert week.node_hours(3, 2) == pytest.approx((11 + 36) * a_month)
    assert week.running_hours == pytest.approx(Decimal("11.5") * a_month)
    assert week.mean_load == pytest.approx((5.5 / 3 + 6) / 24)


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        # Hour 0 is Monday 00:00; Sunday night runs on into Monday.
        ("sun 22:30-02:15", {0: 1, 1: 1, 2: 0.25, 166: 0.5, 167: 1}),
        ("sat 10:00-12:00", {130: 1, 131: 1}),
        ("mon-tue 12:00-12:00", dict.fromkeys(range(12, 60), 1)),
    ],
)
def test_a_schedule_runs_in_the_hours_that_it_names(
    schedule: str, shares: dict[int, float]
) -> None:
    found = running_shares(schedule)
    assert len(found) == 168
    assert {h: float(s) for h, s in enumerate(found) if s} == shares


@pytest.mark.parametrize(
    ("weight", "groups"), [("0.07", 7), ("0.0704", 8), ("0.004", 1), ("0", 1)]
)
def test_a_whole_number_of_groups_is_not_rounded_up_by_an_error_of_floats(
    weight: str, groups: int
) -> None:
    assert 100 * 0.07 > 7
    quiet = weekly_load((Decimal(weight),) * 23 + (Decimal(1),), None)
    assert quiet.hourly_nodes(100, 1)[:24] == (groups,) * 23 + (100,)
    assert quiet.node_hours(100, 1) == pytest.approx(
        Decimal(groups * 23 + 100) * 730 / 24
    )


def test_weekends_of_a_profile_follow_its_weekdays() -> None:
    load = weekly_load("business-hours", None).relative_load
    assert (load[8], load[4 * 24 + 8], load[5 * 24 + 8], load[167]) == (
        1,
        1,
        0.1,
        0.1,
    )
    own = tuple(Decimal(hour + 1) for hour in range(168))
    assert weekly_load(own, None).relative_load == tuple(
        (hour + 1) / 168 for hour in range(168)
    )


def test_weights_from_a_hub_pass_the_gateway_at_each_start() -> None:
    """100 GB and an image of 12 GB at each of 4 starts a month, for half of it."""
    lines = service_lines(
        use("aws", **HALF_A_MONTH, fetched_gb=Decimal(100)), PriceBook({})
    )
    [nat_data] = [line for line in lines if line.name == "NAT data"]
    # And the logs of the machine.
    assert nat_data.quantity == 2 * (100 + 12) + Decimal("4.9275")


@pytest.mark.parametrize(
    ("hours", "starts"),
    [
        ((2,) * 168, 0),
        # Ten hours on five days, with two machines.
        (((0,) * 7 + (2,) * 10 + (0,) * 7) * 5 + (0,) * 48, 10),
        # Through the end of the week: what runs on Sunday night runs on Monday.
        ((1,) * 12 + (0,) * 144 + (1,) * 12, 1),
        ((1,) * 84 + (3,) * 84, 2),
    ],
)
def test_machines_start_where_the_hours_of_the_week_rise(
    hours: tuple[int, ...], starts: int
) -> None:
    assert weekly_starts(hours) == starts


def test_addresses_of_machines_take_the_place_of_a_nat() -> None:
    """Hours of machines on demand and on spot, each at its price; the way in keeps its own."""
    prices = book(
        public_ip=price("0.01", "hour"), public_ip_spot=price("0.004", "hour")
    )
    usage = {
        **HALF_A_MONTH,
        "has_machine_addresses": True,
        "spot_hours": Decimal(100),
    }
    lines = {x.name: x for x in service_lines(use("aws", **usage), prices)}
    assert not any("NAT" in name or name == "public address" for name in lines)
    standard_hours = HALF_A_MONTH["node_hours"] - 100
    assert lines["machine addresses"].usd == standard_hours / 100
    assert lines["spot machine addresses"].usd == Decimal("0.40")
    with_balancer = service_lines(
        use("aws", **usage | {"public_addresses": 2}), PriceBook({})
    )
    unpriced = {x.name: x for x in with_balancer}
    assert unpriced["public address"].quantity == 200
    assert unpriced["machine addresses"].usd is None
