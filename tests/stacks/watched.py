"""A service whose machines are watched from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracles.lost_machine import Machine
from tests.stacks.runtime.vm.sandbox import (
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
)

SPEC = """
apiVersion: tonnage/v1
kind: Inference
name: watched
model:
  name: llama-3.1-8b
traffic:
  peak_rps: 3
  input_tokens: {mean: 500, p95: 1500}
  output_tokens: {mean: 150, p95: 400}
sla:
  ttft_p95: 2s
  tpot_p95: 80ms
shutdown:
  idle: 30m
where:
  clouds: [CLOUD]
"""


@dataclass
class WatchedWorld(World):
    """A cloud of the sandbox that is looked at from outside every ten minutes."""

    written_s: dict[str, float] = field(default_factory=dict)

    def put(self, key: str, data: bytes) -> int:
        self.written_s[key] = self.timeline.now_s
        return super().put(key, data)

    def signs(self, machine: SandboxMachine) -> list[str]:
        """Where the agent of a machine writes that it lives."""
        return [
            key
            for key in self.written_s
            if key.startswith("alive/") and key.endswith(machine.name)
        ]

    def seen(self) -> list[Machine]:
        """The machines that run, as they look from outside."""
        return [
            Machine(
                name=machine.name,
                age_s=self._ago(machine.booted_s),
                wrote_s=min(
                    (self._ago(self.written_s[k]) for k in self.signs(machine)),
                    default=None,
                ),
                heard_s=self._told(machine, "Heartbeat"),
                worked_s=self._told(machine, "Busy"),
                refused=frozenset(),
            )
            for machine in self.machines
            if machine.is_up
        ]

    def _told(self, machine: SandboxMachine, metric: str) -> int | None:
        return min(
            (
                self._ago(time_s)
                for time_s, name, values in self.metrics
                if name == machine.name and values.get(metric) == 1
            ),
            default=None,
        )

    def _ago(self, time_s: float) -> int:
        return int(self.timeline.now_s - time_s)


def assert_a_dead_agent_ends_its_machine(
    world: WatchedWorld, look: Callable[[SandboxMachine], list[str]]
) -> None:
    """A machine works alone, then its agent dies. `look` gives the names of who must go."""
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    world.has_traffic = lambda _: True
    machine = world.add("serve")
    world.timeline.at(5 * HOUR, machine.kill_agent)
    for minutes in range(10, 8 * 60, 10):
        world.run(minutes * MINUTE)
        if look(machine):
            break
    # The last sign is at most five minutes old when the agent dies.
    assert 5 * 60 + 25 <= minutes <= 5 * 60 + 45
