"""Slices of TPUs: what they are made of and cost, who has them, and what their torus passes."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from planner.facts.accelerator import accelerators
from planner.market.purchase import price_row
from planner.market.slice import slice_offers, slice_shapes
from tests.conftest import ROOT, chat, find, only, present, solve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.solution import Solution

SHAPES = [shape for shapes in slice_shapes().values() for shape in shapes]


def finetuning(accelerator: str) -> str:
    text = (ROOT / "blueprints/finetune-70b.yaml").read_text()
    assert "where:" not in text
    return f"{text}where: {{accelerators: {{allow: [{accelerator}]}}}}\n"


def chosen(solution: Solution) -> str:
    [pool] = solution.pools
    return pool.instance.instance_type


def test_a_shape_is_made_of_whole_machines_and_fits_into_a_pod(catalog) -> None:
    hosts = {
        offer.instance.instance_type: offer.instance for offer in catalog.offers
    }
    for shape in SHAPES:
        assert shape.chips == math.prod(map(int, shape.topology.split("x")))
        host = hosts[shape.host_type]
        assert shape.chips % host.accelerators == 0
        assert shape.chips <= host.chip.link_domain
        assert len(shape.topology.split("x")) == host.chip.torus


def test_a_slice_costs_what_its_machines_do(catalog) -> None:
    by_key = {offer.key: offer for offer in catalog.offers}
    with (ROOT / "providers/catalog/data/prices.csv").open() as lines:
        rows = {
            f"prices.csv: {row['provider']} {row['instance_type']} {row['region']} "
            f"{row['purchase']}"
            for row in csv.DictReader(lines)
        }
    found = list(slice_offers(catalog.offers))
    assert {offer.instance.host_type for offer in found} <= set(slice_shapes())
    assert found
    for offer in found:
        host_key = (
            offer.provider,
            offer.instance.host_type,
            offer.region,
            offer.purchase,
        )
        host = by_key[host_key]
        chips = offer.instance.accelerators
        assert (
            offer.usd_hour / chips == host.usd_hour / host.instance.accelerators
        )
        assert offer.instance.vcpu * host.instance.accelerators == (
            host.instance.vcpu * chips
        )
        assert price_row(offer) in rows


@pytest.mark.parametrize("accelerator", ["tpu-v5e", "tpu-v5p", "tpu-v6e"])
def test_a_training_may_have_a_slice(catalog, accelerator: str) -> None:
    """No machine of them alone has the memory of a model of 70B."""
    solution = find(catalog, finetuning(accelerator), keep=0)
    [pool] = solution.pools
    assert pool.instance.machines > 1
    assert not solution.is_built
    bill = present(solution.bill)
    [machines] = [line for line in bill.lines if line.kind == "accelerators"]
    [disks] = [line for line in bill.lines if line.name == "boot disks"]
    # A boot disk of 128 GB for each machine of the slice.
    assert float(disks.quantity) == pytest.approx(
        128 * float(machines.quantity) * pool.instance.machines / 730, rel=1e-3
    )


def test_a_service_has_single_machines(catalog) -> None:
    text = chat(extra="where: {accelerators: {allow: [tpu-v6e]}}")
    assert "-" + SHAPES[-1].topology not in chosen(solve(catalog, text, keep=0))
    [pool] = find(catalog, text, keep=0).pools
    assert pool.instance.machines == 1


def test_fewer_shapes_never_cost_less(
    catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = finetuning("tpu-v6e")
    usd = present(find(catalog, text, keep=0).bill).total
    best = chosen(solve(catalog, text, keep=0))
    shapes = slice_shapes()["ct6e-standard-4t"]
    for left_out in shapes:
        rest = tuple(shape for shape in shapes if shape != left_out)
        monkeypatch.setattr(
            "planner.market.slice.slice_shapes",
            lambda rest=rest: {"ct6e-standard-4t": rest},
        )
        # Offers that are the same objects are not grouped anew.
        anew = only(catalog, lambda _: True)
        without = present(find(anew, text, keep=0).bill).total
        if best == f"ct6e-standard-4t-{left_out.topology}":
            assert without > usd
        else:
            assert without == usd


def link_loads(side: int, dimensions: int) -> dict[tuple[Any, ...], float]:
    """What crosses each link when all send one message to all, along one side after the other.

    A message that may go either way around goes both, by halves.
    """
    loads: dict[tuple[Any, ...], float] = defaultdict(float)
    places = list(itertools.product(range(side), repeat=dimensions))
    for start, end in itertools.product(places, places):
        at = list(start)
        for axis in range(dimensions):
            for steps, share in _ways(at[axis], end[axis], side):
                moving = list(at)
                for _ in range(abs(steps)):
                    step = 1 if steps > 0 else -1
                    loads[*moving, axis, step] += share
                    moving[axis] = (moving[axis] + step) % side
            at[axis] = end[axis]
    return loads


def _ways(start: int, end: int, side: int) -> Iterator[tuple[int, float]]:
    ahead = (end - start) % side
    if ahead * 2 == side:
        yield from ((ahead, 0.5), (-ahead, 0.5))
    elif ahead * 2 < side:
        yield ahead, 1.0
    else:
        yield ahead - side, 1.0


@pytest.mark.parametrize(
    ("name", "side"),
    [("tpu-v6e", 4), ("tpu-v6e", 8), ("tpu-v5p", 4), ("tpu-v5p", 6)],
)
def test_what_all_send_to_all_is_slowed_as_the_links_of_a_torus_slow_it(
    name: str, side: int
) -> None:
    chip = accelerators()[name]
    dimensions = present(chip.torus)
    loads = link_loads(side, dimensions)
    ranks = side**dimensions
    # With nobody to pass on for, each chip would send its messages on all of its links at once.
    alone = ranks / (2 * dimensions)
    assert chip.all_to_all_share(ranks) == pytest.approx(
        min(1.0, alone / max(loads.values()))
    )


@pytest.mark.parametrize(
    ("name", "bisection_tb_s"), [("tpu-v5e", 1.6), ("tpu-v6e", 3.2)]
)
def test_half_of_all_traffic_crosses_what_google_states_of_a_pod(
    name: str, bisection_tb_s: float
) -> None:
    chip = accelerators()[name]
    one_way_gb_s = chip.link_gb_s / 2
    sent_gb_s = 256 * one_way_gb_s * chip.all_to_all_share(256)
    # Of both halves a quarter of all goes to the other one.
    assert sent_gb_s / 4 == pytest.approx(bisection_tb_s * 1000)


def test_a_switch_slows_nobody() -> None:
    assert accelerators()["h100-sxm"].all_to_all_share(64) == 1.0
