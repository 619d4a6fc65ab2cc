"""The in-process engine on the simulated clouds, in simulated time.

Steps run as soon as everything they need is done, ten at a time; each takes the time of its
type on the simulated clock. The state is saved after every step.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from planner.errors import MissingError, Problem
from providers.simulated.cloud import Cloud, CloudError, durations
from providers.simulated.world import recall, remember
from stacks.engine import state as states
from stacks.engine.change import FIRST, elsewhere, steps
from stacks.engine.failure import error
from stacks.engine.fill import at, fill, words
from stacks.engine.protocol import Event, Outcome, Standing, Step
from stacks.graph import Graph, restore

if TYPE_CHECKING:
    from pathlib import Path

    from providers.simulated.world import Memory, World
    from stacks.engine.protocol import Action, Listener

PARALLEL: Final = 10
CHANGING: Final = ("create", "update", "replace")
OLD: Final = "old:"


class SimulatedEngine:
    """Applies plans to the clouds of a world; everything it knows lies in one folder."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.memory_path = folder / "world.json"

    def path(self, stack: str) -> Path:
        """Where the state of a stack lies."""
        return self.folder / "stacks" / f"{stack}.json"

    def standing(self, stack: str) -> Standing | None:
        """Return the stack as the state has it."""
        state = states.load(self.path(stack))
        if state is None:
            return None
        rows = sorted(
            (r["type"], name) for name, r in state["resources"].items()
        )
        return Standing(
            name=stack,
            plan=state["plan"],
            sha256=states.digest(state),
            complete=state["complete"],
            resources=tuple(rows),
            outputs=state["outputs"],
            facts=state["facts"],
        )

    def preview(self, plan: dict[str, Any]) -> tuple[Step, ...]:
        """Return what apply would do."""
        name = plan["stack"]["name"]
        state = states.load(self.path(name)) or states.fresh(name)
        graph = restore(plan["graph"])
        return steps(
            graph,
            state,
            self._cloud(graph.region, recall(self.memory_path)).replaces,
        )

    def apply(self, plan: dict[str, Any], listen: Listener) -> Outcome:
        """Make the stack what the plan says."""
        name = plan["stack"]["name"]
        path = self.path(name)
        with (
            states.locked(self.memory_path, "the simulated clouds"),
            states.locked(path, name),
        ):
            state = states.load(path) or states.fresh(name)
            memory = recall(self.memory_path)
            graph = restore(plan["graph"])
            run = self._run(graph, state, memory, path, listen)
            todo = steps(graph, state, run.cloud.replaces)
            if all(s.action == "same" for s in todo) and state["complete"]:
                return Outcome(steps=(), outputs=state["outputs"])
            if not state["started"]:
                state["started"] = run.now().isoformat()
            state |= {
                "complete": False,
                "plan": plan["digest"],
                "facts": facts(plan),
            }
            run.known = words(
                self.world.project,
                datetime.fromisoformat(state["started"]),
                plan["shutdown"]["ttl"],
            )
            run.work(todo)
            run.finish(plan)
        changed = tuple(s for s in todo if s.action != "same")
        return Outcome(
            steps=changed, outputs=state["outputs"], seconds=run.clock
        )

    def destroy(self, stack: str, listen: Listener) -> Outcome:
        """Delete everything of the stack, dependents first."""
        path = self.path(stack)
        with (
            states.locked(self.memory_path, "the simulated clouds"),
            states.locked(path, stack),
        ):
            state = states.load(path)
            if state is None:
                raise MissingError(
                    Problem(
                        code="stack",
                        message=f"no stack is named {stack}",
                        next_step="run: tonnage status --simulate",
                    )
                )
            memory = recall(self.memory_path)
            region = state["facts"].get("region", "")
            run = self._run(
                Graph(provider="", region=region, resources=()),
                state,
                memory,
                path,
                listen,
            )
            todo = tuple(
                Step("delete", r["type"], name)
                for name, r in sorted(state["resources"].items())
            )
            run.work(todo)
            remember(self.memory_path, memory)
            path.unlink()
        return Outcome(steps=todo, seconds=run.clock)

    def stacks(self) -> list[str]:
        """Return the names of all stacks."""
        return sorted(p.stem for p in (self.folder / "stacks").glob("*.json"))

    def _cloud(self, region: str, memory: Memory) -> Cloud:
        return Cloud(self.world, memory, region)

    def _run(
        self,
        graph: Graph,
        state: dict[str, Any],
        memory: Memory,
        path: Path,
        listen: Listener,
    ) -> _Run:
        def save() -> None:
            state["serial"] += 1
            remember(self.memory_path, memory)
            states.save(path, state)

        return _Run(
            graph, state, self._cloud(graph.region, memory), listen, save
        )


@dataclass
class _Run:
    """One run over a list of steps."""

    graph: Graph
    state: dict[str, Any]
    cloud: Cloud
    listen: Listener
    save: Any
    known: dict[str, str] = field(default_factory=dict)
    clock: float = 0.0
    failed: list[tuple[Step, CloudError]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.cloud.world.clock + timedelta(
            seconds=self.cloud.memory.seconds
        )

    def work(self, todo: tuple[Step, ...]) -> None:
        """First what must go before its replacement comes, then the new, then the old."""
        first = [s for s in todo if s.action == "replace" and s.why == FIRST]
        gone = {s.name for s in first}
        leaving = [s for s in todo if s.action == "delete"]
        held = self.state["resources"]
        early = [s for s in leaving if elsewhere(held[s.name], self.graph)]
        self._phase([_as("delete", s) for s in first] + early, backwards=True)
        coming = [_as("create", s) if s.name in gone else s for s in todo]
        self._phase(
            [s for s in coming if s.action in CHANGING], backwards=False
        )
        late = [s for s in leaving if s not in early]
        self._phase(late + self._leftover(), backwards=True)

    def finish(self, plan: dict[str, Any]) -> None:
        outputs = {
            name: r["outputs"] for name, r in self.state["resources"].items()
        }
        self.state["outputs"] = {
            key: at(outputs[v["$ref"]], v["output"])
            for key, v in plan["graph"]["outputs"].items()
        }
        self.state["complete"] = True
        self.save()

    def _leftover(self) -> list[Step]:
        """Old objects that a replacement left behind: they go when nothing needs them."""
        held = sorted(self.state["resources"].items())
        return [
            Step("delete", r["type"], name)
            for name, r in held
            if name.startswith(OLD)
        ]

    def _phase(self, todo: list[Step], *, backwards: bool) -> None:
        """Run steps in the order of dependencies, as parallel as that allows."""
        waiting = {
            s.name: (s, self._before(s.name, todo, backwards=backwards))
            for s in todo
        }
        running: list[tuple[float, str, Step]] = []
        done: set[str] = set()
        while (waiting and not self.failed) or running:
            ready = sorted(
                n for n, (_, needs) in waiting.items() if needs <= done
            )
            while ready and len(running) < PARALLEL and not self.failed:
                step = waiting.pop(ready.pop(0))[0]
                self.listen(Event(self.clock, step, "begin"))
                takes = durations().get(step.type, durations()["*"])
                heapq.heappush(running, (self.clock + takes, step.name, step))
            if not running:
                break
            finish, name, step = heapq.heappop(running)
            self.cloud.memory.seconds += finish - self.clock
            self.clock = finish
            self._try(step)
            done.add(name)
        if self.failed:
            raise error(
                [(f"{s.action} of {s.name}", str(e)) for s, e in self.failed]
            )

    def _before(
        self, name: str, todo: list[Step], *, backwards: bool
    ) -> set[str]:
        """Names in the same phase that must be done first."""
        names = {s.name for s in todo}
        if not backwards:
            needs = {r.name: set(r.needs()) for r in self.graph.resources}
            return needs.get(name, set()) & names
        held = self.state["resources"]
        wanted = name.rsplit(":", maxsplit=1)[
            -1
        ]  # old:SERIAL:NAME of what a replacement left behind
        return {
            n
            for n in names
            if n != name and wanted in held.get(n, {}).get("needs", ())
        }

    def _try(self, step: Step) -> None:
        try:
            self._do(step)
        except CloudError as error:
            self.failed.append((step, error))
            self.listen(Event(self.clock, step, "failed", str(error)))
        else:
            self.listen(Event(self.clock, step, "done"))
        self.save()

    def _do(self, step: Step) -> None:
        held = self.state["resources"]
        if step.action == "delete":
            self.cloud.delete(held[step.name]["id"])
            del held[step.name]
            return
        resource = next(r for r in self.graph.resources if r.name == step.name)
        outputs = {name: r["outputs"] for name, r in held.items()}
        filled = fill(resource.inputs, self.known, outputs)
        if step.action == "update":
            identity = held[step.name]["id"]
            made = self.cloud.update(identity, filled)
        else:
            identity, made = self.cloud.create(step.type, step.name, filled)
            if step.action == "replace":
                held[f"{OLD}{self.state['serial']}:{step.name}"] = held[
                    step.name
                ]
        held[step.name] = {
            "type": step.type,
            "id": identity,
            "inputs": resource.inputs,
            "outputs": made,
            "needs": resource.needs(),
            "place": [self.graph.provider, self.graph.region],
        }


def _as(action: Action, step: Step) -> Step:
    return Step(action, step.type, step.name, step.why)


def facts(plan: dict[str, Any]) -> dict[str, Any]:
    """What `status` shows of a plan."""
    return {
        "region": plan["graph"]["region"],
        "pools": plan["solution"]["pools"],
        "usd_hour": plan["cost"]["usd_hour"],
        "usd_month": plan["cost"]["usd_month"],
        "workload": plan["workload"],
        "shutdown": plan["shutdown"],
    }
