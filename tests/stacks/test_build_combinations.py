"""Every family, kind of work, purchase and network that the rules allow builds what clouds accept.

What is refused says why. One combination of each family is applied on the simulated clouds too,
which check more than the schemas do, and destroyed again.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.rule import broken_rules
from planner.market.offer import Catalog, Offer
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.table import unsupported_reason
from tests.conftest import only, solve, spec_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.test_build import check

TOKENS = "input_tokens: {mean: 900}, output_tokens: {mean: 200}"
KINDS = {
    "service": f"""kind: Inference
model: {{name: llama-3.1-8b}}
sla: {{ttft_p95: 20s}}
traffic: {{peak_rps: 1, {TOKENS}}}
""",
    "batch": f"""kind: Batch
model: {{name: llama-3.1-8b}}
deadline: 1d
traffic: {{total_requests: 1k, {TOKENS}}}
""",
    "training": """kind: Training
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 10M, storage: object}
train: {method: lora, deadline: 30d}
""",
    "workspace": """kind: Workspace
accelerator: {memory: 4GiB}
""",
}
GIVEN = {
    "aws": ("vpc-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60711", "zone"),
    "gcp": ("projects/corp-network/global/networks/corp", "nodes", "region"),
    "azure": (
        "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/net"
        "/providers/Microsoft.Network/virtualNetworks/corp",
        "nodes",
        "region",
    ),
}
PURCHASES = {"on_demand": "never", "spot": "only"}
EVERYTHING = RunControl(allow=frozenset({"delete-data"}))


def machines() -> dict[str, Offer]:
    """The largest machine of each family that may be built, by cloud and family."""
    found: dict[str, Offer] = {}
    for offer in load_catalog().offers:
        instance = offer.instance
        if (
            unsupported_reason(instance) is not None
            # Nothing is predicted for it.
            or not (instance.chip.bandwidth_gb_s and instance.chip.bf16_tflops)
            or offer.purchase not in PURCHASES
        ):
            continue
        key = f"{instance.provider} {instance.family}"
        known = found.get(key)
        if known is None or known.instance.accelerators < instance.accelerators:
            found[key] = offer
    return found


MACHINES = machines()


def spec_text(kind: str, purchase: str, offer: Offer, *, is_given: bool) -> str:
    text = (
        f"apiVersion: tonnage/v1\nname: combined\n{KINDS[kind]}"
        f"where: {{clouds: [{offer.provider}], regions: [{offer.region}]}}\n"
        f"buy: {{spot: {PURCHASES[purchase]}}}\n"
    )
    if not is_given:
        return text
    network_id, subnet, place_kind = GIVEN[offer.provider]
    place = offer.zones[0] if place_kind == "zone" else offer.region
    return (
        f"{text}network: {{id: {network_id}, subnets: [{subnet}@{place}], "
        "range: 10.20.0.0/20}\n"
    )


def outcome(catalog: Catalog, text: str) -> tuple[str, Any]:
    """What becomes of a combination: built, infeasible or refused, each with what tells it."""
    try:
        spec = spec_of(text)
        solution = solve(catalog, text, keep=0)
        if not solution.pools:
            return "infeasible", solution
        return "built", build_stack(spec, solution, spec.name).graph
    except SpecError as error:
        return "refused", error.problems[0]


@pytest.mark.parametrize("family", MACHINES)
def test_what_the_rules_allow_is_what_clouds_accept(
    family: str, here: Path
) -> None:
    offer = MACHINES[family]
    instance_type = offer.instance.instance_type
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == instance_type
    )
    counts: Counter[str] = Counter()
    last_built = ""
    for kind, purchase, is_given in product(KINDS, PURCHASES, (False, True)):
        text = spec_text(kind, purchase, offer, is_given=is_given)
        result, found = outcome(catalog, text)
        counts[result] += 1
        if result == "refused":
            assert found.next_step, text
        elif result == "built":
            last_built = text
            check(found)
            parts = ((r.type, r.name, r.inputs) for r in found.resources)
            broken = broken_rules("graph", offer.provider, parts)
            assert broken == [], text
    assert counts["built"] >= 2, counts
    plan = plan_of(catalog, last_built)
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("combined", quiet, EVERYTHING)
    assert objects(engine) == {}
