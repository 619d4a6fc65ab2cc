"""A stack in the hands of people: everything that can be done with it, in any order.

Whatever is done, every object in the clouds is known, nothing that holds data is lost without a
permission, and one more apply or destroy puts everything right.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from planner import api
from planner.errors import TonnageError
from planner.plan.types import Plan
from providers.catalog.load import load_catalog
from providers.simulated.clock import advance
from providers.simulated.cloud import CloudError
from providers.simulated.world_file import read_world
from stacks.engine.keep import held_data
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.state_file import StateFile
from tests.conftest import chat
from tests.reliability.crash import (
    EVERYTHING,
    Crash,
    Fuse,
    FusedStore,
    FusedWorld,
)

STACK: Final = "chat"
STEPS_OF_A_LIFE: Final = 50
CALM: Final = "seed: 1"
# What a world refuses while it is so.
WEATHERS: Final = (
    CALM,
    "faults: [{on: create, type: '*Group', code: InsufficientInstanceCapacity}]",
    "faults: [{on: create, name: serve-nodes, code: AccessDenied, times: 3}]",
    "faults: [{on: update, code: Throttling, times: 2}]",
    "faults: [{on: delete, code: ServiceUnavailable, times: 9}]",
    "capacity: [{provider: aws, nodes: 0}]",
    "capacity: [{nodes: 0}]",
    "quota: [{nodes: 1}]",
    "losses: [{per_day: 5}]",
    "refuses: [{on: delete, type: '*ucket*', code: AccessDenied}]",
)
PERMISSIONS: Final = (
    frozenset[str](),
    frozenset({"outage"}),
    frozenset({"delete-data", "outage"}),
)


# Specs of one stack: two sizes, other clouds and regions, fallbacks, a time to live.
SPECS: Final = (
    chat(extra="where: {clouds: [aws]}"),
    chat(traffic="peak_rps: 6", extra="where: {clouds: [aws]}"),
    chat(extra="where: {clouds: [gcp]}\nshutdown: {idle: 30m}"),
    chat(
        extra="where: {clouds: [aws, gcp]}\nbuy: {fallback: 100%}\n"
        "shutdown: {ttl: 3d}"
    ),
    chat(extra="where: {clouds: [azure]}"),
    chat(extra="where: {clouds: [aws], regions: [us-west-2]}"),
)


@cache
def plans() -> tuple[Plan, ...]:
    """The plans of the specs."""
    catalog = load_catalog()
    return tuple(
        api.plan(text.encode(), catalog=catalog, alternatives=0)
        for text in SPECS
    )


class StackModel(RuleBasedStateMachine):
    """What people and clouds do to one stack."""

    def __init__(self) -> None:
        super().__init__()
        shared_memory = Path("/dev/shm")
        self.folder = Path(
            tempfile.mkdtemp(
                dir=shared_memory if shared_memory.is_dir() else None
            )
        )
        # Objects with data that nobody was allowed to delete.
        self.data_ids: set[str] = set()

    def engine(self, weather: str = CALM, cut: int = -1) -> SimulatedEngine:
        """An engine of another process, which may be cut."""
        fuse = Fuse(cut)
        rules = read_world(weather.encode(), "world.yaml")
        engine = SimulatedEngine(
            rules, self.folder, FusedStore(self.folder / "stacks", fuse)
        )
        engine.shared_world = FusedWorld(rules, self.folder, fuse)
        return engine

    def objects(self) -> dict[str, dict]:
        return dict(self.engine().shared_world.view().memory.objects)

    @initialize()
    def begin(self) -> None:
        """Nothing stands."""

    @rule(
        number=st.integers(0, len(SPECS) - 1),
        cut=st.integers(-60, 120),
        allow=st.sampled_from(PERMISSIONS),
        weather=st.sampled_from(WEATHERS),
    )
    def apply(
        self, number: int, cut: int, allow: frozenset, weather: str
    ) -> None:
        plan = plans()[number]
        before = set(self.objects())
        is_whole = False
        with suppress(Crash, TonnageError):
            self.engine(weather, cut).apply(
                plan, _unheard, RunControl(allow=allow)
            )
            is_whole = True
        self.keep_data(before, allow)
        if is_whole:
            self.check_whole(plan)

    @rule(
        cut=st.integers(-60, 120),
        allow=st.sampled_from(PERMISSIONS),
        weather=st.sampled_from(WEATHERS),
    )
    def destroy(self, cut: int, allow: frozenset, weather: str) -> None:
        before = set(self.objects())
        with suppress(Crash, TonnageError):
            self.engine(weather, cut).destroy(
                STACK, _unheard, RunControl(allow=allow)
            )
        self.keep_data(before, allow)

    @rule()
    def recover(self) -> None:
        with suppress(TonnageError):
            self.engine().recover(STACK, _unheard)

    @rule()
    def look(self) -> None:
        """Questions change nothing."""
        before = self.objects()
        engine = self.engine()
        engine.stack_status(STACK)
        engine.preview(plans()[0])
        engine.preflight(plans()[1])
        with suppress(TonnageError):
            engine.drift(STACK)
        assert self.objects() == before

    @rule(hours=st.integers(1, 24 * 9), weather=st.sampled_from(WEATHERS))
    def wait(self, hours: int, weather: str) -> None:
        advance(self.engine(weather).shared_world, hours * 3600)

    @rule(position=st.integers(0, 200))
    def vandalize(self, position: int) -> None:
        """Somebody deletes an object in the console of the cloud."""
        found = sorted(self.objects())
        if not found:
            return
        object_id = found[position % len(found)]
        with (
            suppress(CloudError),
            self.engine().shared_world.call("") as cloud,
        ):
            cloud.delete(object_id)
        self.data_ids &= set(self.objects())

    def keep_data(self, before: set[str], allow: frozenset) -> None:
        """Compare what holds data with what did: it went only by a permission."""
        now = self.objects()
        if "delete-data" in allow:
            self.data_ids &= now.keys()
        lost = self.data_ids - now.keys()
        assert not lost, f"lost data: {lost}"
        self.data_ids |= {
            object_id
            for object_id, found in now.items()
            if held_data(found["type"])
        }
        del before

    def check_whole(self, plan: Plan) -> None:
        """What an apply that ended well leaves: the plan, a fallback of it, and kept data."""
        engine = self.engine()
        status = engine.stack_status(STACK)
        assert status is not None
        assert status.complete
        assert not status.pending
        assert status.facts is not None
        graph = (
            plan.graph
            if status.facts.rung == 0
            else plan.fallbacks[status.facts.rung - 1].graph
        )
        names = sorted((r.type, r.name) for r in graph.resources)
        assert [(r.type, r.name) for r in status.resources] == names
        assert len(self.objects()) == len(names) + len(status.retained)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Every object is in the state, or is what a call that was cut has made."""
        engine = self.engine()
        known = engine.object_ids(STACK)
        cloud = engine.shared_world.view()
        for call in StateFile(engine.store, STACK).state.pending.values():
            known |= cloud.find(call.token).keys()
        forgotten = self.objects().keys() - known
        assert not forgotten, f"forgotten: {forgotten}"

    def teardown(self) -> None:
        """One apply and one destroy put everything right."""
        plan = plans()[0]
        engine = self.engine()
        engine.apply(plan, _unheard, RunControl(allow=frozenset({"outage"})))
        self.check_whole(plan)
        assert engine.apply(plan, _unheard).steps == ()
        engine.destroy(STACK, _unheard, EVERYTHING)
        assert self.objects() == {}
        assert engine.stack_status(STACK) is None
        shutil.rmtree(self.folder, ignore_errors=True)


def _unheard(_event: object) -> None:
    """Listen to nothing."""


def run_model(steps: int, chosen_seed: int = 0) -> None:
    """Take so many steps, in lives of fifty.

    Raises what the shortest life that fails has raised.
    """
    run_state_machine_as_test(
        seed(chosen_seed)(StackModel),
        settings=settings(
            max_examples=max(1, steps // STEPS_OF_A_LIFE),
            stateful_step_count=STEPS_OF_A_LIFE,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
