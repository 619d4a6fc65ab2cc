"""Each field of a spec is changed under a standing stack: what is told happens, and no data go."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from planner.market.offer import Catalog
from planner.plan.types import Plan
from providers.simulated import world
from stacks.engine.keep import held_data
from stacks.engine.protocol import ResourceStep, RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import present
from tests.stacks.engine.test_simulated import PLACES, objects, plan_of, quiet

CLOUDS = ("aws", "gcp", "azure")
SHARED = {
    "labels": {"team": "search", "cost-center": "4711"},
    "notify": ["mailto:owner@example.com"],
    "protect": True,
    "network.peer_cidrs": ["10.20.0.0/16", "192.168.7.0/24"],
    "network.range": "10.50.0.0/16",
    "network.public_addresses": True,
    "shutdown.idle": "2h",
    "shutdown.ttl": "20d",
    "shutdown.schedule": "weekdays 07:00-20:00 Europe/Berlin",
    "buy.commit": ["none", "1y"],
    "buy.horizon": "90d",
    "buy.fallback": "50%",
    "where.accelerators": {"deny": ["b200", "h200"]},
}
MODEL = {
    "model.precision": "bf16",
    "model.kv_precision": "fp8",
    "model.context": "16k",
    "model.weights": "hf:owner/name@v2",
    "model.name": "llama-3.2-3b",
}
# A valid spec of each kind, and other values of its fields.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "inference": (
        {
            "kind": "Inference",
            "model": {"name": "llama-3.1-8b"},
            "traffic": {
                "peak_rps": 2,
                "input_tokens": {"mean": 1200, "p95": 4000},
                "output_tokens": {"mean": 220, "p95": 600},
            },
            "sla": {"ttft_p95": "1.5s", "tpot_p95": "80ms"},
            "shutdown": {"idle": "30m"},
        },
        {
            **SHARED,
            **MODEL,
            "traffic.peak_rps": 30,
            "traffic.profile": "business-hours",
            "traffic.input_tokens": {"mean": 600, "p95": 2000},
            "traffic.output_tokens": {"mean": 300, "p95": 900},
            "traffic.burstiness": 4,
            "traffic.routing": "least-loaded",
            "traffic.prefix_hit": "50%",
            "sla.availability": "99.9%",
            "sla.ttft_p95": "700ms",
            "sla.tpot_p95": "40ms",
            "sla.survives": "node",
            "serving.token_budget": 4096,
            "serving": {"speculation": "ngram", "acceptance": "40%"},
            "endpoint.api_key": "secret://NAME",
        },
    ),
    "batch": (
        {
            "kind": "Batch",
            "model": {"name": "llama-3.1-8b"},
            "traffic": {
                "requests_per_day": 200_000,
                "input_tokens": {"mean": 1200, "p95": 4000},
                "output_tokens": {"mean": 220, "p95": 600},
            },
        },
        {
            **{
                key: value
                for key, value in SHARED.items()
                if key != "shutdown.schedule"
            },
            **MODEL,
            "traffic.requests_per_day": 900_000,
            "deadline": "3h",
            "buy.spot": "never",
        },
    ),
    "training": (
        {
            "kind": "Training",
            "model": {"name": "llama-3.1-8b"},
            "data": {"tokens": "2B", "location": "", "storage": "object"},
            "train": {
                "method": "pretrain",
                "sequence": "4k",
                "global_batch": 256,
                "deadline": "7d",
            },
            "protect": False,
        },
        {
            **{
                key: value
                for key, value in SHARED.items()
                if key not in ("shutdown.schedule", "buy.fallback")
            },
            "data.tokens": "8B",
            "data.storage": "parallel",
            "data.size": "1TB",
            "train.sequence": "8k",
            "train.global_batch": 512,
            "train.deadline": "2d",
            "train.optimizer": "adam8bit",
            "train.precision": "bf16",
            "train.prefer": "time",
            "train.checkpoint": "20m",
            "train.evaluation": "5%",
            "train.keep_last": 5,
            "train.keep_every": "1d",
            "buy.spot": "never",
        },
    ),
    "workspace": (
        {
            "kind": "Workspace",
            "users": 2,
            "accelerator": {"memory": "20GiB"},
            "disk": "100GiB",
        },
        {
            **{
                key: value
                for key, value in SHARED.items()
                if key not in ("buy.fallback", "buy.horizon")
            },
            # Of two disks one has nobody then.
            "users": 1,
            "accelerator.memory": "40GiB",
            "disk": "300GiB",
        },
    ),
}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a document with another value at a path."""
    head, _, rest = path.partition(".")
    inner = document.get(head, {})
    return {
        **document,
        head: changed(inner, rest, value) if rest else value,
    }


def cases() -> Iterator[Any]:
    """Each field on each cloud."""
    for kind, (_, values) in KINDS.items():
        for path in values:
            for cloud in CLOUDS:
                yield pytest.param(
                    kind, path, cloud, id=f"{kind}-{path}-{cloud}"
                )


def text_of(document: dict[str, Any], kind: str, cloud: str) -> str:
    base = {
        "apiVersion": "tonnage/v1",
        "name": "chat",
        **document,
        "where": {**document.get("where", {}), "clouds": [cloud]},
    }
    if kind == "training":
        base["data"] = {
            **base["data"],
            "location": f"{PLACES[cloud]}/tokens",
        }
    secret = "vault/clients" if cloud == "azure" else "clients"
    return yaml.safe_dump(base, sort_keys=False).replace("NAME", secret)


Standing: TypeAlias = "Callable[[str, str], tuple[Plan, Path]]"


@pytest.fixture(scope="module")
def standing(
    catalog: Catalog, tmp_path_factory: pytest.TempPathFactory
) -> Standing:
    """The stack of a kind on a cloud: its plan, and the folder of the clouds that have it."""

    @cache
    def stand(kind: str, cloud: str) -> tuple[Plan, Path]:
        plan = plan_of(catalog, text_of(KINDS[kind][0], kind, cloud))
        assert plan.is_feasible
        folder = tmp_path_factory.mktemp("standing") / "clouds"
        SimulatedEngine(world.default_world(), folder).apply(plan, quiet)
        return plan, folder

    return stand


@pytest.mark.parametrize(("kind", "path", "cloud"), list(cases()))
def test_what_is_told_happens_and_no_data_go(
    here: Path,
    catalog: Catalog,
    standing: Standing,
    kind: str,
    path: str,
    cloud: str,
) -> None:
    document, values = KINDS[kind]
    before_plan, clouds = standing(kind, cloud)
    shutil.copytree(clouds, here / "clouds")
    after_plan = plan_of(
        catalog, text_of(changed(document, path, values[path]), kind, cloud)
    )
    assert after_plan.is_feasible
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    before = objects(engine)
    steps = {step.name: step for step in engine.preview(after_plan)}
    engine.apply(after_plan, quiet, RunControl(allow=frozenset({"outage"})))
    after = objects(engine)

    held_ids = {i for i, found in before.items() if held_data(found["type"])}
    assert held_ids <= after.keys()
    if before_plan.graph.region == after_plan.graph.region:
        assert (
            id_of(after, "models" if cloud != "azure" else "store") in held_ids
        )
    for name, step in steps.items():
        check_step(step, name, before, after)
    assert {
        found["name"] for found in after.values() if found["name"] not in steps
    } == set()
    assert engine.apply(after_plan, quiet).steps == ()
    assert present(engine.stack_status("chat")).complete


def check_step(
    step: ResourceStep, name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """What was told of a resource is what has happened to its object."""
    ids_before, ids_after = (
        {i for i, found in world_objects.items() if found["name"] == name}
        for world_objects in (before, after)
    )
    match step.action:
        case "same":
            [object_id] = ids_before
            assert ids_after == ids_before
            assert before[object_id]["inputs"] == after[object_id]["inputs"]
        case "update":
            assert ids_before == ids_after
        case "create":
            assert not ids_before
            assert ids_after
        case "replace":
            assert ids_after - ids_before
        case "delete":
            assert not ids_after
        case "keep":
            assert ids_before == ids_after


def id_of(world_objects: dict[str, Any], name: str) -> str:
    [object_id] = [
        i for i, found in world_objects.items() if found["name"] == name
    ]
    return object_id
