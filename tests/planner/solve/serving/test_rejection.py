"""A batch takes no more machines on spot than are known to be had of their type."""

from __future__ import annotations

from planner.market.capacity import fleet_limit
from planner.market.offer import Catalog
from planner.sentence import describe
from planner.solve.solution import Solution
from tests.conftest import only, solve

BATCH = """
apiVersion: tonnage/v1
kind: Batch
name: b
model: {name: qwen3-8b}
traffic:
  total_requests: REQUESTS
  input_tokens: {mean: 400, p95: 900}
  output_tokens: {mean: 12, p95: 30}
deadline: 3d
buy: {spot: SPOT}
"""


def batch(catalog: Catalog, requests: str, spot: str) -> Solution:
    """The solution of a backlog on machines of eight H100."""
    machines = only(
        catalog, lambda o: o.instance.instance_type == "p5.48xlarge"
    )
    made = BATCH.replace("REQUESTS", requests).replace("SPOT", spot)
    return solve(machines, made)


def test_a_batch_beyond_the_capacity_of_spot_goes_on_demand(
    catalog: Catalog,
) -> None:
    bought = {}
    for requests in ("1B", "3B"):
        [pool] = batch(catalog, requests, "auto").pools
        [part] = pool.purchases
        bought[requests] = part.purchase, part.nodes
    spot = next(
        offer
        for offer in catalog.offers
        if offer.instance.instance_type == "p5.48xlarge"
        and offer.purchase == "spot"
    )
    limit = fleet_limit(spot)
    assert limit is not None
    assert bought["1B"][0] == "spot"
    assert bought["1B"][1] <= limit
    assert bought["3B"][0] == "on_demand"
    assert bought["3B"][1] > limit


def test_a_batch_that_asks_for_spot_beyond_it_is_told_why(
    catalog: Catalog,
) -> None:
    alternatives = batch(catalog, "3B", "auto").alternatives
    told = [
        describe(rival.rejected_by)
        for rival in alternatives
        if rival.offer.purchase == "spot"
    ]
    assert any("at most 5 of them at once" in reason for reason in told)
    assert batch(catalog, "3B", "only").status == "infeasible"
