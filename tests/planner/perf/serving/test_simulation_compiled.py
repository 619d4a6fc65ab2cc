"""A compiled simulation gives the times of its source, to the bit."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from planner.perf.serving import simulation
from tests.conftest import ROOT
from tests.planner.perf.serving.test_simulation import machine

if TYPE_CHECKING:
    from types import ModuleType

    from planner.perf.serving.replica_table import ReplicaTable

SOURCE = ROOT / "planner" / "perf" / "serving" / "simulation.py"
COMPILED = Path(simulation.__file__)

pytestmark = pytest.mark.skipif(
    COMPILED == SOURCE, reason="the simulation is not compiled here"
)
TIMES = (
    "prompt_start_s",
    "step_s",
    "busy_s",
    "shared_s",
    "first_token_s",
    "end_s",
    "reserved_tokens",
    "generated_tokens",
)


def interpreted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interpreted", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def times(
    module: ModuleType, kind: str, table: ReplicaTable, seed: int
) -> list[tuple[float, ...]]:
    """The times of 400 random requests on one replica, and the most that was on it."""
    source = random.Random(seed)
    replica = getattr(module, kind)(table)
    requests = []
    now_s = 0.0
    for _ in range(400):
        now_s += source.expovariate(source.choice((2.0, 20.0)))
        requests.append(
            module.Request(
                now_s, source.randint(1, 4000), source.randint(2, 900)
            )
        )
        replica.receive(requests[-1])
        replica.advance(now_s)
    unended = [
        request.ended_by(now_s) for request in requests if not request.end_s
    ]
    ended = [
        tuple(getattr(request, name) for name in TIMES) for request in unended
    ]
    replica.advance(simulation.NEVER)
    return [
        *ended,
        *(
            tuple(getattr(request, name) for name in TIMES)
            for request in requests
        ),
        tuple(replica.crowd),
        (replica.preempted_count,),
    ]


@pytest.mark.parametrize("kind", ["ReplicaSimulation", "AnsweringReplica"])
@pytest.mark.parametrize("pool", [9_000, 60_000, simulation.NEVER])
@pytest.mark.parametrize("seed", range(5))
def test_both_have_the_same_times(kind: str, pool: float, seed: int) -> None:
    table = machine(32, pool, slowed=0.7)
    assert times(simulation, kind, table, seed) == times(
        interpreted(), kind, table, seed
    )


def test_it_was_compiled_after_the_last_change() -> None:
    assert COMPILED.stat().st_mtime >= SOURCE.stat().st_mtime, (
        "simulation.py has changed since it was compiled: make .venv/.base compiles it"
    )
