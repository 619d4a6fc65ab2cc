"""Where a promise keeps machines off spot, the page says so, and what they would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from planner.solve.serving.cloud_limit import beyond_reach
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import Inference
from tests.conftest import find, only, present, solve, spec_of
from tests.planner.solve.serving.test_spot_promise import promised

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.solution import Solution

# One machine type of each cloud; of AWS alone the reclaims have a published end.
MACHINES: Final = {
    "gcp": ("g4-standard-48", "us-central1"),
    "azure": ("Standard_NC40ads_H100_v5", "eastus2"),
    "aws": ("g6e.xlarge", "us-east-2"),
}
UNPUBLISHED: Final = ("gcp", "azure")


def few(catalog: Catalog, cloud: str) -> Catalog:
    """A catalog of one machine type in one region."""
    return only(
        catalog,
        lambda offer: (
            (offer.instance.instance_type, offer.region) == MACHINES[cloud]
        ),
    )


def said(solution: Solution, code: str) -> str:
    """The code of the cause of a warning; empty where there is none."""
    return next(
        (
            warning.reason.code
            for warning in solution.warnings
            if warning.code == code
        ),
        "",
    )


@pytest.mark.parametrize("cloud", UNPUBLISHED)
def test_a_base_alone_says_why_nothing_is_on_spot(
    catalog: Catalog, cloud: str
) -> None:
    """And what the same spec costs without the promise, where spot is above its base."""
    offers = few(catalog, cloud)
    text = promised("99%", "30%")
    solution = solve(offers, text)
    [pool] = solution.pools
    assert "spot" not in {part.purchase for part in pool.purchases}
    assert said(solution, "spot-unused") == "unknown-reclaims"
    careless = find(offers, text.replace(", availability: 99%", ""))
    assert "spot" in {part.purchase for part in careless.pools[0].purchases}
    [row] = [
        binding
        for binding in solution.bindings
        if binding.constraint == "sla.availability"
    ]
    assert (
        row.usd == present(careless.bill).total < present(solution.bill).total
    )
    assert said(careless, "spot-unused") == ""


def test_a_promise_that_spot_keeps_says_nothing(catalog: Catalog) -> None:
    solution = find(few(catalog, "aws"), promised("99%", "30%"))
    assert "spot" in {part.purchase for part in solution.pools[0].purchases}
    assert said(solution, "spot-unused") == ""


def test_a_base_that_is_the_whole_fleet_says_nothing(catalog: Catalog) -> None:
    """Half of one machine, rounded up, is that machine: no promise is the cause."""
    text = promised("90%", "50%").replace("peak_rps: 30", "peak_rps: 0.1")
    solution = find(few(catalog, "gcp"), text)
    assert solution.pools[0].nodes == 1
    assert said(solution, "spot-unused") == ""


@pytest.mark.parametrize("cloud", UNPUBLISHED)
def test_spot_alone_is_refused_with_its_cause(
    catalog: Catalog, cloud: str
) -> None:
    text = promised("99%").replace("on_demand_base: auto", "spot: only")
    solution = find(few(catalog, cloud), text)
    assert solution.status == "infeasible"
    assert said(solution, "spot-refused") == "refused-spot"
    assert "sla.availability" in {
        binding.constraint for binding in solution.bindings
    }


def spot_of(catalog: Catalog, cloud: str) -> Offer:
    """What a cloud asks for its machine type on spot."""
    [offer] = [
        offer
        for offer in few(catalog, cloud).offers
        if offer.purchase == "spot"
    ]
    return offer


def requirement_of(text: str) -> ServingRequirement:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


@pytest.mark.parametrize("cloud", MACHINES)
@pytest.mark.parametrize("promise", ["50%", "80%", "81%", "95%", "99%"])
def test_what_is_refused_at_once_is_kept_by_no_number_of_machines(
    catalog: Catalog, cloud: str, promise: str
) -> None:
    """The bound refuses nothing that a search finds, and without published rates all it finds."""
    offer = spot_of(catalog, cloud)
    text = promised(promise).replace("on_demand_base: auto", "spot: only")
    requirement = requirement_of(text)
    search = ServingSearch(catalog.price_book)
    refusals = [
        beyond_reach(requirement, offer, option)
        for option in search.layout_options(requirement, offer, (1,))
    ]
    is_refused = all(
        refusal is not None and refusal.constraint == "sla.availability"
        for refusal in refusals
    )
    found = find(few(catalog, cloud), text, keep=0)
    if found.status != "infeasible":
        assert not is_refused
    elif promise != "80%":
        # Just below the bound, a region has too few zones.
        assert is_refused
