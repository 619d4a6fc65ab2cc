"""Engines beside that of the stack, on the same accelerators: one starts after the other.

An engine sizes its cache by what it finds free of the accelerator, and takes for its own what
others take while it starts. So none starts before all that were started have answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import activity, container
from stacks.runtime.vm.node.secret import secret_words
from stacks.runtime.vm.node.slices import slice_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacks.runtime.vm.node.activity import EngineCounts
    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.serve import EngineProgram
    from stacks.runtime.vm.node.work import Work

# The journal knows them by these names.
NAME = "tonnage-serve-{number}"
STOP_S = 10


class BesideEngine:
    """One engine beside the first. Settings: name, container, words, port."""

    def __init__(
        self,
        machine: Host,
        work: Work,
        engine: EngineProgram,
        settings: Mapping[str, Any],
        number: int,
    ) -> None:
        self._machine = machine
        self._work = work
        self._engine = engine
        self.settings = settings
        self.number = number
        self.name = NAME.format(number=number)
        self.failures = container.Failures(machine)
        self.was_started = False
        self.was_healthy = False
        self.is_busy = False
        self.requests = 0.0
        self._sick_looks = 0
        self._traffic: EngineCounts | None = None
        self._moved_s = machine.now_s()

    @property
    def is_starting(self) -> bool:
        """Whether it loads: no other engine may start then."""
        return self.was_started and not self.was_healthy

    def started(self) -> None:
        """Remember that its container was started now."""
        self.was_started, self.was_healthy, self._sick_looks = True, False, 0
        self._traffic = None
        self._moved_s = self._machine.now_s()

    def look(self) -> None:
        """Look at an engine that was started, and clear the way where it has failed."""
        exit_ = container.ended(self._machine, self.name)
        if exit_ is not None:
            self.fail(f"ended with {exit_.code}: {exit_.last_lines}")
            return
        port = self.settings["port"]
        traffic = self.traffic()
        if traffic is not None and activity.is_healthy(self._machine, port):
            self._sick_looks, self.was_healthy = 0, True
            self._judge(traffic)
            return
        self._sick_looks += 1
        if self.was_healthy and self._sick_looks >= activity.SICK_LOOKS:
            self.fail("does not answer")

    def traffic(self) -> EngineCounts | None:
        """Return what it counts; nothing when it does not answer."""
        return activity.engine_traffic(
            self._machine,
            "127.0.0.1",
            self.settings["port"],
            self._engine.metrics,
        )

    def fail(self, problem: str) -> None:
        """Count a failure, and remove the container so that it can start again."""
        self.failures.add()
        self._work.fail("serve", f"{self.settings['name']} {problem}")
        container.remove(self._machine, self.name)
        self.was_started = self.was_healthy = self.is_busy = False
        self.requests = 0.0

    def _judge(self, traffic: EngineCounts) -> None:
        """See whether there was work, and end an engine that has some and does none."""
        before, self._traffic = self._traffic, traffic
        has_tokens = before is not None and traffic.tokens != before.tokens
        self.requests = traffic.requests
        self.is_busy = has_tokens or traffic.requests > 0
        if before is None or has_tokens or not traffic.requests:
            self._moved_s = self._machine.now_s()
        if self._machine.now_s() - self._moved_s >= activity.HUNG_S:
            self.fail("has requests and makes no tokens")


class BesideEngines:
    """The engines beside that of the stack, in the order in which they start."""

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        engine: EngineProgram,
        settings: Mapping[str, Any],
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._engine = engine
        self._api_key: str = settings.get("api_key", "")
        self._has_slices = "slices" in settings
        self._engines = [
            BesideEngine(machine, work, engine, each, number)
            for number, each in enumerate(settings["beside"], 1)
        ]

    @property
    def is_starting(self) -> bool:
        """Whether one of them loads: the engine of the stack has to wait."""
        return any(engine.is_starting for engine in self._engines)

    @property
    def are_ready(self) -> bool:
        """Whether all have answered since they were started."""
        return all(engine.was_healthy for engine in self._engines)

    @property
    def have_failed(self) -> bool:
        """Whether one of them fails again and again."""
        return any(engine.failures.are_many for engine in self._engines)

    @property
    def are_busy(self) -> bool:
        """Whether one of them had work at the last look."""
        return any(engine.is_busy for engine in self._engines)

    @property
    def requests(self) -> float:
        """Requests that they run or queue."""
        return sum(engine.requests for engine in self._engines)

    def look(self, *, may_start: bool) -> None:
        """Look at all that were started; start the next one where nobody is starting."""
        for engine in self._engines:
            if engine.was_started:
                engine.look()
        waiting = [engine for engine in self._engines if not engine.was_started]
        if may_start and waiting and not self.is_starting:
            self._start(waiting[0])

    def drain(self, deadline_s: float, look_s: float) -> None:
        """Wait until all have answered what they have begun, or until a time."""
        for engine in self._engines:
            while self._machine.now_s() < deadline_s:
                traffic = engine.traffic()
                if traffic is None or not traffic.requests:
                    break
                self._machine.sleep(look_s)

    def stop(self) -> None:
        """End their containers."""
        for engine in self._engines:
            container.stop(self._machine, engine.name, STOP_S)

    def _start(self, engine: BesideEngine) -> None:
        words: Sequence[str] = engine.settings["words"]
        with secret_words(
            self._machine,
            self._cloud,
            self._api_key,
            self._engine.key_variable,
        ) as key_words:
            container.start(
                self._machine,
                engine.name,
                engine.settings["container"],
                words,
                more_options=key_words,
                devices=slice_device(self._machine, engine.number)
                if self._has_slices
                else container.ALL_DEVICES,
            )
        engine.started()
