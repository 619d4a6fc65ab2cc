"""Jobs that tokenize or decode while they train: who starves, and what is chosen."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.sentence import describe
from planner.solve.training.feeding import (
    job_loader,
    machine_prepare_s,
    repeated_work,
)
from planner.solve.training.search import NODE_COUNTS, TrainSearch
from providers.catalog.load import load_catalog
from tests.conftest import find, only, present
from tests.planner.solve.test_training import every_cluster, searched

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.solve.training.objective import Objective

CATALOG = load_catalog(None)
SPEC = """apiVersion: tonnage/v1
kind: Training
name: t
model: {name: llama-3.2-1b}
data: {tokens: 2B, location: "s3://bucket/data", FORM}
train: {method: finetune, framework: hf, sequence: 4k, global_batch: 256, deadline: 30d}
buy: {spot: never}
"""
PACKED = "form: tokens"
TEXT = "form: text"
SMALL_IMAGES = "form: images, image_tokens: 576"
LARGE_IMAGES = "form: images, image_tokens: 64, image_pixels: 4M"
TYPES = ("p5.48xlarge", "p4d.24xlarge", "g6e.12xlarge")


def text(form: str) -> str:
    return SPEC.replace("FORM", form)


def offer_of(offers: list[Offer], machine: str) -> Offer:
    return next(o for o in offers if o.instance.instance_type == machine)


def with_vcpus(offer: Offer, vcpu: int) -> Offer:
    return replace(offer, instance=replace(offer.instance, vcpu=vcpu))


@pytest.mark.parametrize("form", [TEXT, SMALL_IMAGES, LARGE_IMAGES])
def test_more_cores_are_never_slower_and_never_dearer(form: str) -> None:
    search, offers = searched(text(form))
    offer = offer_of(offers, "p5.48xlarge")
    whole = present(search.build_cluster(offer, 1))
    clusters = [
        replace(whole, offer=with_vcpus(offer, vcpu))
        for vcpu in (8, 16, 24, 64, 192, 384, 1024)
    ]
    for fewer, more in pairwise(clusters):
        assert more.prepare_s < fewer.prepare_s
        assert more.estimated_end_s <= fewer.estimated_end_s
        assert (
            more.expected_bill(search.price_book).total
            <= fewer.expected_bill(search.price_book).total
        )


def test_packed_tokens_starve_on_no_machine_of_the_catalog() -> None:
    """A model of a billion parameters eats fastest, and still no core is the limit."""
    search, offers = searched(text(PACKED))
    instances = {o.instance.instance_type: o.instance for o in offers}
    assert len(instances) > 30
    for instance in instances.values():
        least_s = search.accelerator_bound_s(instance) / instance.accelerators
        prepare_s = machine_prepare_s(search.requirement, instance)
        assert prepare_s < least_s / 10
    assert search.requirement.data_bytes == 4 * 2e9


def test_a_plan_of_packed_tokens_has_no_loader() -> None:
    catalog = only(CATALOG, lambda o: o.instance.instance_type in TYPES)
    run = present(find(catalog, text(PACKED)).training_run)
    assert run.loader is None


def test_text_is_tokenized_in_time_by_a_few_cores() -> None:
    """The eight accelerators of a machine take less than one of its 88 cores tokenizes."""
    search, offers = searched(text(TEXT))
    offer = offer_of(offers, "p5.48xlarge")
    cluster = present(search.build_cluster(offer, 1))
    assert cluster.prepare_s < cluster.steps_s / 10
    assert not cluster.waits_for_cores
    loader = present(job_loader(cluster))
    assert loader.wanted_s < loader.given_s / loader.cores


def test_a_starving_cluster_is_as_fast_as_its_data() -> None:
    search, offers = searched(text(LARGE_IMAGES))
    cluster = present(search.build_cluster(offer_of(offers, "p5.48xlarge"), 1))
    loader = present(job_loader(cluster))
    assert cluster.waits_for_cores
    assert cluster.progress_s == cluster.prepare_s
    assert cluster.waiting_share == pytest.approx(
        1 - loader.given_s / loader.wanted_s
    )
    # What a machine is given in the run is all that is trained on: 2 billion tokens, 64 an image.
    assert loader.given_s * cluster.progress_s == pytest.approx(2e9 / 64)
    fed = replace(cluster.timed_layout.step_time)
    assert cluster.step_s > fed.total
    assert cluster.reached_tokens_per_s == pytest.approx(
        cluster.accelerator_tokens_per_s * fed.total / cluster.step_s
    )


def test_workers_are_few_where_little_is_needed() -> None:
    for form, workers in ((TEXT, 1), (LARGE_IMAGES, 11)):
        search, offers = searched(text(form))
        offer = offer_of(offers, "p5.48xlarge")
        cluster = present(search.build_cluster(offer, 1))
        assert present(job_loader(cluster)).workers == workers


def test_samples_that_ranks_prepare_again_are_told_where_cores_are_too_few() -> (
    None
):
    made = text("form: images, image_tokens: 64, image_pixels: 2M").replace(
        "llama-3.2-1b", "llama-3.1-70b"
    )
    search, offers = searched(made.replace("hf", "torchtitan"))
    offer = offer_of(offers, "p5.48xlarge")
    cluster = present(search.build_cluster(offer, 16))
    layout = cluster.timed_layout.job.layout
    assert layout.accelerators == layout.dp * layout.tp * layout.pp * layout.cp
    copies = layout.accelerators // layout.dp
    found = repeated_work(cluster)
    needed = copies * cluster.prepare_s / cluster.progress_s
    assert (found is not None) == (copies > 1 and needed > 1)
    once, _ = searched(made)
    alone = present(once.build_cluster(offer, 16))
    assert repeated_work(alone) is None


def test_evaluation_is_prepared_too_and_every_pass() -> None:
    plain, _ = searched(text(SMALL_IMAGES))
    evaluated, _ = searched(
        text(SMALL_IMAGES).replace("sequence", "evaluation: 10%, sequence")
    )
    work = plain.requirement.loader_work
    assert work.samples == pytest.approx(2e9 / 576)
    assert evaluated.requirement.loader_work.units == pytest.approx(
        1.1 * work.units
    )
    again, _ = searched(text(f"{SMALL_IMAGES}, size: 1GB"))
    assert again.requirement.loader_work.units == work.units
    assert again.requirement.data_bytes == 1e9


@pytest.mark.parametrize("objective", ["cost", "time", "knee"])
@pytest.mark.parametrize("form", [SMALL_IMAGES, LARGE_IMAGES])
def test_the_best_cluster_that_is_fed_is_that_of_brute_force(
    form: str, objective: Objective
) -> None:
    catalog = only(CATALOG, lambda o: o.instance.instance_type in TYPES)
    made = text(form).replace("deadline: 30d", "budget: 900")
    search, offers = searched(made, catalog)
    search.objective = objective
    fit = [f for f in every_cluster(search, offers) if f.bill.total <= 900]
    found = search.solve(offers, 1).feasible
    worth = {
        "cost": lambda f: float(f.bill.total),
        "time": lambda f: f.cluster.estimated_end_s,
        "knee": lambda f: float(f.bill.total) * f.cluster.estimated_end_s,
    }[objective]
    assert fit
    assert worth(found[0]) == min(map(worth, fit))


def test_no_cluster_undercuts_the_bounds_of_its_search() -> None:
    draw = random.Random(8)
    for form in (PACKED, TEXT, SMALL_IMAGES, LARGE_IMAGES):
        search, offers = searched(text(form))
        for offer in draw.sample(offers, 4):
            instance = with_vcpus(offer, draw.choice((4, 32, 192))).instance
            nodes = draw.choice(NODE_COUNTS[:6])
            fresh = TrainSearch(search.requirement, search.price_book)
            cluster = fresh.build_cluster(
                replace(offer, instance=instance), nodes
            )
            if cluster is None:
                continue
            progress_s = cluster.progress_s * (1 + 1e-9)
            for refined in (False, True):
                bound_s = fresh.steps_bound_s(instance, nodes, refined=refined)
                assert bound_s <= progress_s
            assert (
                fresh.accelerator_bound_s(instance)
                <= progress_s * nodes * instance.accelerators
            )


def two_machines(machine: str, vcpu: int) -> Catalog:
    """A machine, and one that is a tenth cheaper with fewer cores."""
    catalog = only(CATALOG, lambda o: o.instance.instance_type == machine)
    cheap = tuple(
        replace(
            offer,
            usd_hour=offer.usd_hour * 9 / 10,
            instance=replace(
                offer.instance, instance_type="few.cores", vcpu=vcpu
            ),
        )
        for offer in catalog.offers
    )
    return replace(catalog, offers=(*catalog.offers, *cheap))


@pytest.mark.parametrize(
    ("form", "winner"),
    [
        (PACKED, "few.cores"),
        (TEXT, "few.cores"),
        ("form: images, image_tokens: 96", "p5.48xlarge"),
    ],
)
def test_a_machine_with_few_cores_loses_where_it_starves(
    form: str, winner: str
) -> None:
    catalog = two_machines("p5.48xlarge", 32)
    solution = find(catalog, text(form))
    assert solution.pools[0].instance.instance_type == winner
    if winner == "few.cores":
        return
    [loser] = [
        alternative
        for alternative in solution.alternatives
        if alternative.offer.instance.instance_type == "few.cores"
    ]
    assert describe(loser.rejected_by).startswith("its cores starve it")


def test_a_starved_plan_says_why_and_what_to_do() -> None:
    catalog = only(CATALOG, lambda o: o.instance.instance_type == "p5.48xlarge")
    solution = find(catalog, text(LARGE_IMAGES))
    told = [describe(w.reason) for w in solution.warnings if w.code == "data"]
    assert len(told) == 1
    assert "decoding images is slower than training" in told[0]
    assert "88 cores of a machine" in told[0]
    assert "store smaller images" in told[0]
    step = solution.predictions["step_time_s"]
    assert step.basis == "physics"
    run = present(solution.training_run)
    assert step.value > run.layouts[0].step_time.total
    fed = find(catalog, text(SMALL_IMAGES))
    assert not [w for w in fed.warnings if w.code == "data"]
    assert present(fed.bill).total < present(solution.bill).total


def test_images_say_that_their_encoder_is_not_counted_and_how_large_they_are() -> (
    None
):
    catalog = only(CATALOG, lambda o: o.instance.instance_type == "p5.48xlarge")
    for form, assumed in ((SMALL_IMAGES, 2), (LARGE_IMAGES, 1)):
        told = [
            describe(w.reason)
            for w in find(catalog, text(form)).warnings
            if w.code == "assumed"
        ]
        assert len(told) == assumed
        assert "encoder of images" in told[0]
