"""Every family, kind of work, purchase and network that the rules allow builds what clouds accept.

On a family every purchase meets every network with the first kind that builds both, and families
take turns with which kind is first; on the richest family of a cloud they meet with every kind.
What is refused says why. Each kind and each purchase is applied on the simulated clouds too, which
check more than the schemas do, and destroyed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.rule import broken_rules
from planner.market.offer import Catalog, Offer
from planner.plan.canonical import parse_plan
from planner.plan.types import Plan
from planner.solve.solution import Solution
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.table import unsupported_reason
from tests.conftest import find, only, spec_of
from tests.stacks.engine.test_simulated import (
    objects,
    quiet,
    written_plan,
)
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
protect: false
""",
    "workspace": """kind: Workspace
accelerator: {memory: 4GiB}
""",
}
# The ids of what a user has already: a network, its subnets, and a reservation.
CORP = (
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/net"
    "/providers/"
)
GIVEN = {
    "aws": ("vpc-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60711"),
    "gcp": ("projects/corp-network/global/networks/corp", "nodes"),
    "azure": (f"{CORP}Microsoft.Network/virtualNetworks/corp", "nodes"),
}
RESERVED = {
    "aws": "cr-0a1b2c3d4e5f60718",
    "gcp": "projects/corp-network/reservations/gpus",
    "azure": f"{CORP}Microsoft.Compute/capacityReservationGroups/gpus",
}
CERTIFICATES = {
    "aws": "arn:aws:acm:REGION:123456789012:certificate/"
    "12345678-1234-1234-1234-123456789012",
    "gcp": "secret://corp-tls",
    "azure": "secret://corp-vault/corp-tls",
}
# Ways to buy, as `buy` of a spec and what else a spec then needs.
PURCHASES = {
    "on_demand": "buy: {spot: never}",
    "spot": "buy: {spot: only}",
    "committed": "buy: {spot: never, commit: 1y}",
    "reserved": "buy: {reservations: ['RESERVED@ZONE:64xTYPE']}",
    "made reservation": "buy: {reserve: true}\nupdate: recreate",
    "block": "buy: {block: {id: RESERVED, zone: ZONE, machines: 8, type: TYPE, "
    "starts: '2026-12-01T11:30Z', ends: '2026-12-08T11:30Z', usd: 50000}}",
    "flex start": "buy: {flex_start: true}",
    "mixed": "buy: {on_demand_base: 50%}",
}
NETWORKS = {
    "own": "",
    "given": "network: {id: NETWORK, subnets: [SUBNET@PLACE], "
    "range: 10.20.0.0/20}",
    "joined": "network: {peer_cidrs: [10.9.0.0/16], private_endpoints: true}",
    "addressed": "network: {public_addresses: true}",
    "public": "endpoint: {public: true, host: llm.example.com, "
    "certificate: 'CERTIFICATE', api_key: 'KEY'}",
}
# What a family of each cloud is built for.
SOLD = {*KINDS, *NETWORKS, *PURCHASES}
RICHEST = {
    "aws p5": SOLD - {"flex start", "addressed"},
    "gcp a2-highgpu": SOLD,
    "azure StandardNCADSA100v4Family": SOLD - {"block", "flex start"},
}
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
            or offer.purchase not in ("on_demand", "spot")
        ):
            continue
        key = f"{instance.provider} {instance.family}"
        known = found.get(key)
        if known is None or known.instance.accelerators < instance.accelerators:
            found[key] = offer
    return found


MACHINES = machines()


def spec_text(kind: str, purchase: str, network: str, offer: Offer) -> str:
    cloud, region = offer.provider, offer.region
    zone = offer.zones[0] if offer.zones else region
    network_id, subnet = GIVEN[cloud]
    text = (
        f"apiVersion: tonnage/v1\nname: combined\n{KINDS[kind]}"
        f"where: {{clouds: [{cloud}], regions: [{region}]}}\n"
        f"{PURCHASES[purchase]}\n{NETWORKS[network]}\n"
    )
    for word, value in {
        "RESERVED": RESERVED[cloud],
        "CERTIFICATE": CERTIFICATES[cloud].replace("REGION", region),
        "KEY": "secret://corp-vault/key"
        if cloud == "azure"
        else "secret://key",
        "ZONE": f"{region}-{zone}" if zone.isdigit() else zone,
        "TYPE": offer.instance.instance_type,
        "NETWORK": network_id,
        "SUBNET": subnet,
        "PLACE": zone if cloud == "aws" else region,
    }.items():
        text = text.replace(word, value)
    return text


def outcome(catalog: Catalog, text: str) -> tuple[str, Any]:
    """What becomes of a combination: built, infeasible or refused, each with what tells it."""
    try:
        solution = find(catalog, text, keep=0)
        if not solution.pools:
            return "infeasible", solution
        spec = spec_of(text)
        return "built", (
            solution,
            build_stack(spec, solution, spec.name).graph,
        )
    except SpecError as error:
        return "refused", error.problems[0]


def kinds_in_turn(family: str) -> Iterator[tuple[str, ...]]:
    """All kinds again and again, from the next one on; families of a cloud take turns."""
    cloud = MACHINES[family].provider
    names = [name for name in MACHINES if name.startswith(cloud)]
    kinds = tuple(KINDS)
    for turn in count(names.index(family)):
        first = turn % len(kinds)
        yield kinds[first:] + kinds[:first]


@pytest.mark.parametrize("family", MACHINES)
def test_what_the_rules_allow_is_what_clouds_accept(
    family: str, here: Path
) -> None:
    offer = MACHINES[family]
    instance_type = offer.instance.instance_type
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == instance_type
    )
    built: set[str] = set()
    solutions: dict[tuple[str, str], tuple[str, Solution]] = {}
    kinds = kinds_in_turn(family)
    for purchase, network in product(PURCHASES, NETWORKS):
        for kind in next(kinds):
            text = spec_text(kind, purchase, network, offer)
            result, found = outcome(catalog, text)
            if result == "refused":
                assert found.next_step, text
            elif result == "built":
                solution, graph = found
                solutions[kind, purchase] = text, solution
                built |= {kind, purchase, network}
                check(graph)
                parts = ((r.type, r.name, r.inputs) for r in graph.resources)
                broken = broken_rules("graph", offer.provider, parts)
                assert broken == [], text
                if family not in RICHEST:
                    break
    assert {"own", "given", "joined"} <= built
    assert RICHEST.get(family, set()) <= built
    applied: set[str] = set()
    # Where both are new, one apply is enough for them.
    for new_words, (words, answer) in product((2, 1), solutions.items()):
        if len({*words} - applied) >= new_words:
            applied |= {*words}
            # Clouds remember all that was ever built there, which makes each step slower.
            engine = SimulatedEngine(
                world.default_world(), here / " ".join(words)
            )
            written = written_plan(catalog, *answer)
            apply_and_destroy(engine, parse_plan(written, "p.json"))
    assert applied == built - {*NETWORKS}


def apply_and_destroy(engine: SimulatedEngine, plan: Plan) -> None:
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("combined", quiet, EVERYTHING)
    assert objects(engine) == {}
