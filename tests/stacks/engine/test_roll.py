"""A roll is watched: it ends when the machines are new, and goes back when they are not well."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.errors import (
    CancelledError,
    ResourceError,
    StaleError,
    UsageError,
)
from planner.market.offer import Catalog
from planner.plan.types import Plan
from providers.simulated import world
from stacks.engine.impact import changes_of
from stacks.engine.kept_plan import KeptPlan, Roll, keep_plan, read_kept
from stacks.engine.protocol import (
    EngineOutcome,
    Lives,
    ProgressEvent,
    RunControl,
)
from stacks.engine.roll import RollWatch, apply_and_watch, begin_roll
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.stop import StopRequest
from stacks.operate.machine import Trouble
from tests.conftest import present
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_handover import service
from tests.stacks.engine.test_simulated import plan_of, quiet

CLOUDS = ("aws", "gcp", "azure")
OLD = {"serve": {"old": "working"}}
BOTH = {"serve": {"old": "working", "new": "starting"}}
NEW = {"serve": {"new": "working"}}


def text_of(cloud: str, idle: str = "30m", update: str = "") -> str:
    return service(cloud, update=update) + f"shutdown: {{idle: {idle}}}\n"


class SteppingStop(StopRequest):
    """Time passes at once while it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


class RealClouds(SimulatedEngine):
    """Clouds that look like real ones: their machines are seen in a bucket alone."""

    def simulated_world(self) -> None:
        return None


class Watching:
    """An engine, the stack that stands on it, and what its bucket says from look to look."""

    def __init__(
        self, here: Path, catalog: Catalog, cloud: str = "gcp", **options: str
    ) -> None:
        self.engine = RealClouds(world.default_world(), here / "clouds")
        self.home = plan_of(catalog, text_of(cloud, **options))
        self.away = plan_of(catalog, text_of(cloud, "40m", **options))
        self.stop = SteppingStop()
        self.events: list[ProgressEvent] = []
        self.looks: list[Any] = [OLD, NEW]
        self.troubles: list[Trouble] = []
        self.control = RunControl(
            stop=self.stop, lives=self._lives, troubles=self._troubles
        )
        self.apply(self.home)

    def _lives(self, _cloud: str, bucket: str, _region: str) -> Lives:
        assert bucket
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look

    def _troubles(self, *_: Any) -> list[Trouble]:
        return self.troubles

    @property
    def standing(self) -> str:
        return present(self.engine.stack_status("chat")).plan

    def begin(self, plan: Plan) -> Roll | None:
        status = self.engine.stack_status("chat")
        changes = (
            changes_of(plan, self.engine.preview(plan), status)
            if status
            else None
        )
        return begin_roll(self.engine, plan, status, changes, self.control)

    def apply(self, plan: Plan) -> EngineOutcome:
        return apply_and_watch(
            self.engine,
            plan,
            self.begin(plan),
            self.events.append,
            self.control,
        )


@pytest.fixture
def watching(here: Path, catalog, monkeypatch: pytest.MonkeyPatch) -> Watching:
    found = Watching(here, catalog)
    monkeypatch.setattr(
        "stacks.engine.roll.time.monotonic", lambda: found.stop.now_s
    )
    return found


def test_it_ends_when_the_new_machines_work(watching) -> None:
    # The first look is that before the apply.
    watching.looks = [OLD, OLD, BOTH, NEW, AssertionError()]
    watching.apply(watching.away)
    assert watching.standing == watching.away.digest
    waits = [event for event in watching.events if event.phase == "awaits"]
    assert [wait.step.name for wait in waits] == ["serve-nodes"]
    assert "0 of 1" in waits[0].detail
    kept = present(read_kept(watching.engine.store, "chat"))
    assert (kept.plan, kept.roll) == (watching.away, None)


def test_a_bucket_that_does_not_answer_for_a_moment_is_asked_again(
    watching,
) -> None:
    watching.looks = [OLD, ResourceError(), NEW]
    watching.apply(watching.away)
    assert watching.standing == watching.away.digest


def test_silent_machines_are_given_up_and_the_plan_before_stands_again(
    watching,
) -> None:
    watching.looks = [BOTH]
    with pytest.raises(ResourceError) as refused:
        watching.apply(watching.away)
    [problem] = refused.value.problems
    assert (problem.code, "not well" in problem.message) == ("roll", True)
    assert watching.home.digest[:12] in problem.cause
    assert watching.standing == watching.home.digest
    assert watching.engine.drift("chat") == ()
    limit_s = watching.stop.now_s
    assert limit_s > float(watching.away.solution.pools[0].startup_s)
    # The same plan may be tried again, and is watched again.
    watching.looks = [OLD, NEW]
    watching.apply(watching.away)
    assert watching.standing == watching.away.digest


def test_time_begins_anew_with_each_machine_that_comes(watching) -> None:
    roll = Roll(
        plan="",
        began=datetime.now(UTC),
        pools=present(watching.begin(watching.away)).pools,
        old={"serve": ("a", "b", "c")},
    )
    limit_s = RollWatch(
        plan=watching.away,
        roll=roll,
        listener=quiet,
        control=watching.control,
    ).limit_s
    every_s = 0.9 * limit_s

    def lives(*_: Any) -> Lives:
        count = int(watching.stop.now_s // every_s)
        came = {f"n{number}": "working" for number in range(count)}
        return {"serve": {"a": "working", **came}}

    watching.control = replace(watching.control, lives=lives)
    apply_and_watch(
        watching.engine, watching.away, roll, quiet, watching.control
    )
    assert watching.stop.now_s >= 3 * every_s > limit_s
    assert watching.standing == watching.away.digest


def test_a_new_machine_in_trouble_ends_the_roll_at_once(watching) -> None:
    watching.troubles = [
        Trouble(group="serve", handle="old", reason="a disk"),
        Trouble(group="other", handle="new", reason="another pool"),
    ]
    watching.looks = [OLD, BOTH, NEW]
    watching.apply(watching.away)
    watching.looks = [NEW, BOTH]
    watching.troubles = [
        Trouble(group="serve", handle="newer", reason="its work fails")
    ]
    began_s = watching.stop.now_s
    with pytest.raises(ResourceError, match="its work fails"):
        watching.apply(watching.home)
    assert watching.stop.now_s == began_s
    assert watching.standing == watching.away.digest


def test_what_another_run_has_applied_meanwhile_stays(
    watching, catalog
) -> None:
    other = plan_of(catalog, text_of("gcp", "50m"))

    class Overtaking(SteppingStop):
        def wait(self, seconds: float) -> None:
            watching.engine.apply(other, quiet)
            watching.stop.now_s += 1e6

    watching.looks = [OLD]
    watching.control = replace(watching.control, stop=Overtaking())
    with pytest.raises(StaleError):
        watching.apply(watching.away)
    assert watching.standing == other.digest


def cut_a_roll(watching: Any) -> None:
    """Begin to roll the machines, and be cut while they are waited for."""

    class Cut(SteppingStop):
        def wait(self, seconds: float) -> None:
            self.is_made = True

    control = watching.control
    watching.looks = [OLD]
    watching.control = replace(control, stop=Cut())
    with pytest.raises(CancelledError):
        watching.apply(watching.away)
    watching.control = control
    watching.looks = [BOTH]


def test_a_run_that_was_cut_is_watched_by_the_next_one(watching) -> None:
    cut_a_roll(watching)
    with pytest.raises(ResourceError, match="no new machine answered"):
        watching.apply(watching.away)
    assert watching.standing == watching.home.digest


def test_the_plan_before_is_the_last_one_with_which_machines_were_well(
    watching, catalog
) -> None:
    """The first roll was cut, so the second one goes back beyond it."""
    cut_a_roll(watching)
    with pytest.raises(ResourceError, match="no new machine answered"):
        watching.apply(plan_of(catalog, text_of("gcp", "50m")))
    assert watching.standing == watching.home.digest


def test_the_plan_that_is_kept_goes_with_its_stack(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("gcp"))
    kept = here / ".tonnage" / "simulated" / "stacks" / "chat.kept"
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    assert kept.exists()
    assert tonnage("rename", "chat", "other", "--simulate")[0] == 0
    assert not kept.exists()
    (here / "s.yaml").write_text(text_of("gcp").replace("chat", "third", 1))
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    assert kept.with_name("third.kept").exists()
    assert tonnage("destroy", "third", "--simulate", "--yes")[0] == 0
    assert not kept.with_name("third.kept").exists()


def test_nothing_is_watched_that_does_not_roll(watching, catalog) -> None:
    assert watching.begin(watching.home) is None
    # With nobody there, or nobody who may see them, nothing can be waited for.
    watching.looks = [{}]
    assert watching.begin(watching.away) is None
    watching.looks = [ResourceError()]
    assert watching.begin(watching.away) is None


def test_without_the_plan_before_nothing_goes_back(watching) -> None:
    other = replace(watching.home, digest="0" * 64)
    keep_plan(watching.engine.store, KeptPlan(plan=other, rung=0))
    watching.looks = [BOTH]
    with pytest.raises(ResourceError, match="not well") as refused:
        watching.apply(watching.away)
    assert "nothing goes back" in refused.value.problems[0].cause
    assert watching.standing == watching.away.digest


def test_a_damaged_file_is_told(watching) -> None:
    watching.engine.store.keep("chat", b"{")
    with pytest.raises(UsageError, match=r"damaged"):
        watching.apply(watching.away)


def test_machines_that_went_by_themselves_are_not_waited_for(
    watching,
) -> None:
    """Agents may have given some back: the load needs fewer of them."""
    [pool] = watching.away.solution.pools
    needed = {f"new-{number}": "working" for number in range(pool.min_nodes)}
    old = {f"old-{number}": "working" for number in range(pool.min_nodes + 1)}
    watching.looks = [
        {"serve": old},
        {"serve": {**needed, "old-0": "working"}},
        {"serve": needed},
        AssertionError(),
    ]
    watching.apply(watching.away)
    assert watching.standing == watching.away.digest
    assert len(watching.looks) == 1


@pytest.mark.parametrize("update", ["", "recreate"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_simulated_machines_that_do_not_answer_bring_the_plan_before_back(
    tonnage: Command, here: Path, cloud: str, update: str
) -> None:
    spec, rules = here / "s.yaml", here / "world.yaml"
    rules.write_text("silences: [{name: serve-nodes}]\n")
    flags = ("--simulate", str(rules), "--yes", "--allow", "outage")
    spec.write_text(text_of(cloud, update=update))
    assert tonnage("apply", "s.yaml", *flags)[0] == 0
    before = state(here)
    spec.write_text(text_of(cloud, "40m", update=update))
    code, _, err = tonnage("apply", "s.yaml", *flags)
    is_rolled = (cloud, update) != ("azure", "recreate")
    assert (code, "stands again" in err) == (
        (4, True) if is_rolled else (0, False)
    )
    assert (state(here) == before) is is_rolled
    # The next template is a good one.
    assert tonnage("apply", "s.yaml", *flags)[0] == 0
    assert state(here) != before


def state(here: Path) -> str:
    folder = here / ".tonnage" / "simulated" / "stacks"
    document = json.loads((folder / "chat.json").read_text())
    return str(document["state"]["plan"])


def test_whoever_does_not_wait_takes_nothing_back(
    tonnage: Command, here: Path
) -> None:
    spec, rules = here / "s.yaml", here / "world.yaml"
    rules.write_text("silences: [{name: serve-nodes}]\n")
    flags = ("--simulate", str(rules), "--yes")
    spec.write_text(text_of("gcp"))
    assert tonnage("apply", "s.yaml", *flags)[0] == 0
    before = state(here)
    spec.write_text(text_of("gcp", "40m"))
    assert tonnage("apply", "s.yaml", *flags, "--no-wait")[0] == 0
    assert state(here) != before


def test_time_passes_while_simulated_machines_roll(
    tonnage: Command, here: Path
) -> None:
    spec = here / "s.yaml"
    spec.write_text(text_of("gcp"))
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    engine = SimulatedEngine(
        world.default_world(), here / ".tonnage" / "simulated"
    )
    began = engine.shared_world.now()
    spec.write_text(text_of("gcp", "40m"))
    code, _, err = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert (code, "until its machines are new" in err) == (0, True)
    status = present(engine.stack_status("chat"))
    startup_s = float(present(status.facts).pools[0].startup_s)
    assert (engine.shared_world.now() - began).total_seconds() >= startup_s
