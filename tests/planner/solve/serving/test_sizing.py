"""Groups, spares and bills of replicas whose pace is known, against what a person counts."""

from __future__ import annotations

import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from planner.cost.service_price import PriceBook
from planner.cost.weekly_load import SpareGroups, weekly_load
from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common import memory
from planner.perf.common.layout import Node, ReplicaLayout
from planner.solve.serving.bill import bought_parts, serving_bill
from planner.solve.serving.layout_choice import serving_layouts
from planner.solve.serving.requirement import resolve_precisions
from planner.solve.serving.sizing import (
    SCREEN_FACTOR,
    FleetSizing,
    LayoutRejection,
    group_lower_bound,
    predict_service,
    replica_group,
    size_fleet,
    startup_time_s,
)
from planner.spec.model import ShutdownRule
from tests.conftest import chat, spec_of


def node(count: int = 8, chip: str = "h100-sxm") -> Node:
    return Node(
        accelerator=accelerators()[chip],
        accelerator_count=count,
        memory_gib=80.0,
        compute_fraction=1.0,
        scaleup_link="nvswitch",
        network_gb_s=400.0,
    )


class Steady:
    """A replica that keeps its pace up to `most` requests a second, and not beyond."""

    def __init__(self, most: float, bound: float, batch: int = 10) -> None:
        self.most = most
        self.bound = bound
        self.max_batch = batch
        self.node = node()
        self.layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=2)
        self.llm = self.stored_llm = find_model("llama-3.1-8b")
        self.idle = 0.01
        self.asked: list[float] = []
        self.startup_memory = SimpleNamespace(total_gib=80.0, kv_gib=-12.0)

    @property
    def predicted(self) -> Steady:
        return self

    def rate_bound(self, limit_s: float) -> float:
        self.asked.append(limit_s)
        return self.bound

    def idle_quantile(self, *_: object) -> float:
        return self.idle

    def completion_rate(self, batch: int) -> float:
        return batch / 5

    def open_service(self, rate: float, count: int) -> object:
        if rate > self.most * (1 + 1e-12):
            return None
        return SimpleNamespace(rate=rate, count=count, meets=lambda *_: True)

    def closed_service(self, users: float) -> object:
        return SimpleNamespace(
            users=users, meets=lambda *_: users <= self.most * (1 + 1e-12)
        )


LIMIT = SimpleNamespace(
    key="tpot_p95", metric="tpot", percentile=95, seconds=Decimal("0.08")
)


def need(mode: str = "open", **words: object) -> Any:
    load = SimpleNamespace(
        engine="vllm",
        rate_per_s=words.pop("rate", 1.0),
        concurrency=words.pop("users", 0),
        max_context_tokens=4096,
    )
    base = {
        "limits": (LIMIT,),
        "availability": None,
        "survives": None,
        "elastic": None,
        "role": "serve",
        "traffic_share": 1.0,
        "load": load,
        "week": weekly_load("flat", None),
    }
    return SimpleNamespace(**base | {"mode": mode} | words)


def sized(
    wanted: Any, one: Any, nodes: int = 1
) -> FleetSizing | LayoutRejection:
    return size_fleet(wanted, one, replica_group(one.layout, one.node, nodes))


def bound_of(wanted: Any, one: Any, nodes: int = 1) -> float:
    group = replica_group(one.layout, one.node, nodes)
    return group_lower_bound(wanted, one, group)


def groups(wanted: Any, one: Any, nodes: int = 1) -> int:
    found = sized(wanted, one, nodes)
    assert isinstance(found, FleetSizing)
    assert found.nodes == found.total_groups * nodes
    assert found.duration_hours == 0
    return found.peak_groups


@pytest.mark.parametrize("slack", [1.0, 1.7, 30.0, 1e6])
def test_the_fewest_groups_carry_the_rate_however_loose_the_bound(
    slack: float,
) -> None:
    """Four replicas of two accelerators a node; 0.5 requests a second each."""
    for rate in (0.1, 1.9, 2.0, 2.1, 4.0, 13.0, 99.9, 100.0, 100.1):
        one = Steady(0.5, 0.5 * slack)
        assert groups(need(rate=rate), one) == math.ceil(rate / 2)
        # Two nodes hold one replica.
        assert groups(need(rate=rate), one, 2) == math.ceil(rate * 2)


def test_the_service_is_that_of_one_replica_of_the_fewest_groups() -> None:
    for slack in (1.0, 30.0):
        found = sized(need(rate=9.0), Steady(0.5, 0.5 * slack), 1)
        assert isinstance(found, FleetSizing)
        assert (found.peak_groups, found.replicas_per_group) == (5, 4)
        assert found.service.count == 20  # type: ignore[attr-defined]
        assert found.service.rate == pytest.approx(9 / 20)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wanted", "bound", "found"),
    [
        # Doubling from one group ends at 4,096 of them.
        (4096, 1e9, 4096),
        (4097, 1e9, None),
        # From a bound of 5,000 it ends at eight times that.
        (40_000, 8.0, 40_000),
        (40_001, 8.0002, None),
    ],
)
def test_doubling_ends_and_says_what_it_misses(
    wanted: int, bound: float, found: int | None
) -> None:
    one = Steady(1.0, bound)
    one.layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=8)
    answer = sized(need(rate=float(wanted)), one, 1)
    if found is None:
        assert answer == LayoutRejection(
            layout=one.layout,
            constraint="tpot_p95",
            reached=math.inf,
            limit=0.08,
        )
        free = sized(need(rate=float(wanted), limits=()), one, 1)
        assert isinstance(free, LayoutRejection)
        assert (free.constraint, free.limit) == ("rate", wanted)
    else:
        assert isinstance(answer, FleetSizing)
        assert answer.peak_groups == found


def test_users_of_a_closed_loop_share_the_slots() -> None:
    """Four replicas of ten slots hold 40 users a node; six each keep the pace."""
    assert bound_of(need("closed", users=100), Steady(6, 1), 1) == 2.5
    assert bound_of(need("closed", users=100), Steady(6, 1), 2) == 10
    for users in (1, 24, 25, 48, 49, 480, 481):
        wanted = need("closed", users=users)
        assert groups(wanted, Steady(6, 1)) == math.ceil(users / 24)
        assert groups(wanted, Steady(99, 1)) == math.ceil(users / 40)
    full = predict_service(need("closed", users=20), Steady(99, 1), 2)  # type: ignore[arg-type]
    assert full.users == 10  # type: ignore[union-attr]
    assert predict_service(need("closed", users=21), Steady(99, 1), 2) is None  # type: ignore[arg-type]


def test_the_bound_of_a_rate_is_that_at_the_tightest_pace() -> None:
    slow = SimpleNamespace(**vars(LIMIT) | {"seconds": Decimal("0.5")})
    other = SimpleNamespace(
        **vars(LIMIT) | {"seconds": Decimal("0.01"), "metric": "ttft"}
    )
    one = Steady(0.5, 0.75)
    wanted = need(rate=6.0, limits=(slow, LIMIT, other))
    assert bound_of(wanted, one, 1) == 2
    assert bound_of(wanted, one, 3) == 8
    # What the simulation may still allow.
    assert one.asked == pytest.approx([0.08 * SCREEN_FACTOR] * 2)
    assert bound_of(wanted, Steady(0.5, 0), 1) == math.inf
    free = Steady(0.5, 0.75)
    bound_of(need(rate=6.0, limits=()), free, 1)
    assert free.asked == [math.inf]


def test_what_does_not_fit_or_is_late_when_idle_is_told_before_any_search() -> (
    None
):
    late = Steady(1, 1)
    late.idle = 0.081
    assert sized(need(), late, 1) == LayoutRejection(
        layout=late.layout, constraint="tpot_p95", reached=0.081, limit=0.08
    )
    late.idle = 0.08
    assert groups(need(), late) == 1
    small = Steady(1, 1, batch=0)
    found = sized(need(), small, 1)
    assert isinstance(found, LayoutRejection)
    cache = memory.kv_bytes(small.llm, small.layout, 4096) / 2**30
    assert (found.constraint, found.limit) == ("memory", 80)
    assert found.reached == pytest.approx(80 + 12 + cache)


def test_chips_that_run_compiled_programs_start_later() -> None:
    """By the 20 to 30 minutes that vLLM's documentation names for its first start on a TPU."""
    one, chips = Steady(1, 1), Steady(1, 1)
    chips.node = node(chip="tpu-v6e")
    later_s = startup_time_s(chips) - startup_time_s(one)  # type: ignore[arg-type]
    assert 1200 <= later_s <= 1800


def test_a_batch_run_has_the_time_that_start_up_leaves() -> None:
    """8 requests a second of four replicas at 10 slots and 5 s; 7,200 s after start-up."""
    one = Steady(1, 1)
    boot = startup_time_s(one)  # type: ignore[arg-type]
    whole = memory.weight_bytes(one.llm, one.layout) * 2
    assert boot == pytest.approx(420 + whole / 1e9)

    def run(requests: float, nodes: int = 1, left: float = 7200.0) -> Any:
        wanted = need(
            "batch", request_count=Decimal(requests), deadline_s=boot + left
        )
        bound = bound_of(wanted, one, nodes)
        found = sized(wanted, one, nodes)
        if isinstance(found, FleetSizing):
            rate = 8 if nodes == 1 else 2
            assert bound == pytest.approx(requests / (boot + left) / rate)
            assert found.peak_groups >= bound
            assert found.total_groups == found.peak_groups
            assert found.service.users == 10  # type: ignore[attr-defined]
            assert found.duration_hours * 3600 == pytest.approx(
                requests / rate / found.peak_groups + boot
            )
            assert found.duration_hours * 3600 <= (boot + left) * (1 + 1e-9)
        return found

    # A node answers 57,600 requests in two hours.
    for requests, nodes in (
        (1, 1),
        (57_600, 1),
        (57_601, 2),
        (115_200, 2),
        (576_000, 10),
    ):
        assert run(requests).peak_groups == nodes
    assert run(57_600, 2).peak_groups == 4
    # Three groups' work is that of three groups, although floats make it a little more.
    tenths = [n / 10 for n in range(1, 400)]
    excess = [
        left
        for left in tenths
        if 3 < 24 * left / 8 / (boot + left - boot) < 3 + 1e-9
    ]
    assert excess
    for left in excess:
        assert run(24 * left, left=left).peak_groups == 3
    for left in (0.0, -1.0):
        assert run(1, left=left) == LayoutRejection(
            layout=one.layout,
            constraint="deadline",
            reached=boot,
            limit=boot + left,
        )


def pairs(model: str, count: int, nodes: int = 1) -> list[tuple[int, int, int]]:
    wanted = SimpleNamespace(
        precisions=("bf16",),
        kv_precisions=("bf16",),
        layout=None,
        load=SimpleNamespace(engine="vllm"),
        has_draft=False,
    )
    found = serving_layouts(find_model(model), wanted, node(count), nodes)  # type: ignore[arg-type]
    return [(x.tp, x.pp, x.ep) for x in found]


def test_layouts_are_all_that_fit_in_the_order_of_ties() -> None:
    assert pairs("llama-3.1-70b", 4) == [
        (1, 1, 1),
        (2, 1, 1),
        (4, 1, 1),
    ]
    # 28 heads are not divided by eight: two stages of four then.
    assert pairs("qwen2.5-7b", 8) == [
        (1, 1, 1),
        (2, 1, 1),
        (4, 1, 1),
        (4, 2, 1),
    ]
    # Eight experts: whole on each of two accelerators, or slices of them.
    assert pairs("mixtral-8x22b", 2) == [
        (1, 1, 1),
        (2, 1, 2),
        (2, 1, 1),
    ]
    # Over machines the largest group of one, and stages over all the others.
    assert pairs("llama-3.1-405b", 8, 3) == [(8, 3, 1)]
    assert pairs("qwen2.5-7b", 8, 2) == [(4, 4, 1)]


def test_a_layout_has_a_precision_that_its_accelerator_computes() -> None:
    wanted = SimpleNamespace(
        precisions=("fp8", "bf16"),
        kv_precisions=("fp8",),
        layout=None,
        load=SimpleNamespace(engine="vllm"),
        has_draft=False,
    )
    for chip, found in (
        ("h100-sxm", ["fp8", "bf16"]),
        ("a100-80gb-sxm", ["bf16"]),
    ):
        layouts = serving_layouts(
            find_model("llama-3.1-8b"),
            wanted,  # type: ignore[arg-type]
            node(1, chip),
            1,
        )
        assert [(x.precision, x.kv_precision) for x in layouts] == [
            (precision, "fp8") for precision in found
        ]


@pytest.mark.parametrize(
    ("chip", "found"),
    [
        ("h100-sxm", ["bf16", "fp8"]),
        ("a100-80gb-sxm", ["bf16"]),
        ("t4", ["fp16"]),
    ],
)
def test_auto_is_fp16_where_there_is_no_bf16(
    chip: str, found: list[str]
) -> None:
    model = find_model("llama-3.1-8b")
    asked = spec_of(chat()).model  # type: ignore[union-attr]
    wanted = SimpleNamespace(
        precisions=resolve_precisions(asked, model),
        kv_precisions=("bf16",),
        layout=None,
        load=SimpleNamespace(engine="vllm"),
        has_draft=False,
    )
    layouts = serving_layouts(model, wanted, node(1, chip), 1)  # type: ignore[arg-type]
    assert [layout.precision for layout in layouts] == found


def test_fp32_weights_come_with_a_cache_of_fp32_unless_it_is_quantized() -> (
    None
):
    for kv_precision, found in (("bf16", "fp32"), ("fp8", "fp8")):
        wanted = SimpleNamespace(
            precisions=("fp32",),
            kv_precisions=(kv_precision,),
            layout=None,
            load=SimpleNamespace(engine="vllm"),
            has_draft=False,
        )
        [layout] = serving_layouts(
            find_model("llama-3.1-8b"),
            wanted,  # type: ignore[arg-type]
            node(1),
            1,
        )
        assert layout.kv_precision == found


def fleet(**words: object) -> Any:
    base = {
        "layout": ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1),
        "nodes": 6,
        "peak_groups": 2,
        "total_groups": 3,
        "spares": SpareGroups(1),
        "nodes_per_group": 2,
        "replicas_per_group": 4,
        "duration_hours": 2.5,
        "beside": (),
        "replica": SimpleNamespace(
            llm=find_model("llama-3.1-8b"),
            node=node(),
            layout=ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1),
            predicted=SimpleNamespace(
                max_batch=9,
                closed_service=lambda _: SimpleNamespace(rate_per_s=0.5),
            ),
        ),
    }
    return SimpleNamespace(**base | words)


def billed(mode: str, **words: object) -> Any:
    base = {
        "llm": find_model("llama-3.1-8b"),
        "load": SimpleNamespace(
            engine="vllm",
            routing="random",
            concurrency=8,
            prompt_lengths=SimpleNamespace(mean_tokens=900),
            answer_lengths=SimpleNamespace(mean_tokens=200),
        ),
        "requests_per_month": Decimal(1_000_000),
        "runs_daily": False,
        "role": "batch" if mode == "batch" else "serve",
        "traffic_share": 1.0,
        "part": "",
        "weights": "bucket",
        "has_own_network": True,
        "has_addresses": False,
        "endpoint_needs": frozenset(),
        "is_public": False,
        "survives": None,
        "elastic": None,
        "availability": None,
        "shutdown": ShutdownRule(idle=Decimal(3600)),
        "period": "run" if mode == "batch" else "month",
        "week": weekly_load("business-hours", None),
        "traffic_week": weekly_load("business-hours", None),
    }
    return SimpleNamespace(**base | {"mode": mode} | words)


def paid_hours(mode: str, purchase: str) -> Decimal:
    offer: Any = SimpleNamespace(
        purchase=purchase,
        mix=None,
        usd_hour=Decimal(1),
        found_usd_hour=None,
        source="",
        as_of="",
        form="",
    )
    (part,) = bought_parts(billed(mode), fleet(), offer)
    return part.node_hours


def test_paid_hours_are_committed_run_or_follow_the_load() -> None:
    for purchase in ("reserved_1y", "reserved_3y"):
        assert paid_hours("batch", purchase) == 6 * 730
    # A run of 2.5 h with its boot, and the minute in which its machines hear that it is done.
    assert paid_hours("batch", "spot") == pytest.approx(
        6 * (Decimal("2.5") + Decimal(1) / 60)
    )
    # Two groups and a spare in 50 hours of a week, one and a spare in 118. On five days the
    # second one starts before these hours.
    start_h = Decimal(math.ceil(startup_time_s(fleet().replica) / 60)) / 60
    assert start_h > 0
    assert paid_hours("open", "on_demand") == pytest.approx(
        2 * (50 * 3 + 118 * 2 + 5 * start_h) * 730 / 168
    )


@pytest.mark.parametrize(
    ("mode", "sent", "received"),
    [
        # A million answers of 200 tokens of 200 bytes, and prompts of 900 of 5.
        ("open", 40.0, 4.5),
        # 8 replicas at half a request a second, at 68.8 / 168 of the peak.
        ("closed", 40 * 10.512 * 68.8 / 168, 4.5 * 10.512 * 68.8 / 168),
        ("batch", None, None),
    ],
)
def test_a_bill_counts_what_its_period_of_requests_sends(
    catalog: Any, mode: str, sent: float | None, received: float
) -> None:
    offer = next(
        o
        for o in catalog.offers
        if o.purchase == "on_demand" and not o.instance.nvme_gb
    )
    found = serving_bill(billed(mode), fleet(), offer, PriceBook({}))
    lines = {x.kind: x for x in found.lines[1:]}
    hours = paid_hours(mode, "on_demand")
    machines = found.lines[0]
    assert machines.quantity == pytest.approx(hours)
    assert machines.name.startswith("6 x ")
    assert machines.pool == ("batch" if mode == "batch" else "serve")
    assert found.period == ("run" if mode == "batch" else "month")
    months = 1 if mode != "batch" else (2.5 + 1 / 60) / 730
    assert found.usd_hour == 6 * offer.usd_hour
    assert found.total == machines.usd
    # 16-bit weights of 8.03 billion parameters, and a fifth more of disk.
    weights = float(lines["object_storage"].quantity)
    assert weights == pytest.approx(16.06 * months, abs=0.01)
    cache = next(x for x in found.lines if x.name == "model and data disks")
    assert cache.quantity == pytest.approx(
        20 * hours / 730, abs=Decimal("0.0001")
    )
    # The endpoint is private: nothing goes to the internet.
    assert "egress" not in lines
    if sent is None:
        assert "load_balancer" not in lines
    else:
        assert float(lines["load_balancer_data"].quantity) == pytest.approx(
            sent + received, abs=1e-4
        )


@pytest.mark.parametrize(
    ("model", "chip", "caches"),
    [
        (
            "llama-3.1-8b",
            "h100-sxm",
            [("fp8", "bf16"), ("fp8", "fp8"), ("bf16", "bf16")],
        ),
        ("llama-3.1-8b", "a100-80gb-sxm", [("bf16", "bf16")]),
        ("gpt-oss-20b", "h100-sxm", [("fp8", "bf16"), ("bf16", "bf16")]),
    ],
)
def test_a_cache_of_8_bits_is_a_choice_beside_quantized_weights(
    model: str, chip: str, caches: list[tuple[str, str]]
) -> None:
    wanted = SimpleNamespace(
        precisions=("fp8", "bf16"),
        kv_precisions=("bf16", "fp8"),
        layout=None,
        load=SimpleNamespace(engine="vllm"),
        has_draft=False,
    )
    layouts = serving_layouts(find_model(model), wanted, node(1, chip), 1)  # type: ignore[arg-type]
    assert [(x.precision, x.kv_precision) for x in layouts] == caches


def test_a_spec_of_16_bit_weights_keeps_a_16_bit_cache() -> None:
    wanted = SimpleNamespace(
        precisions=("bf16",),
        kv_precisions=("bf16", "fp8"),
        layout=None,
        load=SimpleNamespace(engine="vllm"),
        has_draft=False,
    )
    layouts = serving_layouts(find_model("llama-3.1-8b"), wanted, node(8), 1)  # type: ignore[arg-type]
    assert {x.kv_precision for x in layouts} == {"bf16"}
