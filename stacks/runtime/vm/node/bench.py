"""A benchmark: the engine of this node under one load after the other, and then the end.

    bench/<name>          what the client has measured under a load
    bench/failure.json    {"name", "reason"} of a load that could not be measured
    bench/manifest.json   {"loads": how many were measured}, written last

Nobody is asked for anything meanwhile: the results wait in the bucket, and the machine ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import container
from stacks.runtime.vm.node.serve import ServingNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

NAME = "tonnage-bench"
PREFIX = "bench/"
MANIFEST = f"{PREFIX}manifest.json"
FAILURE = f"{PREFIX}failure.json"
# A client that fails so often under one load fails again.
MOST_TRIES = 2
STOP_S = 5


class BenchNode:
    """Measures the engine that this node serves, or leads.

    Settings: bench (container, folder, and runs, each with a name and words), and those of
    ServingNode.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        self._server = ServingNode(machine, cloud, work, settings)
        self._machine = machine
        self._cloud = cloud
        self._work = work
        self._settings = settings["bench"]
        # The load that the client is under way with, and how often each was begun in vain.
        self._begun = ""
        self._tries: dict[str, int] = {}

    def look(self) -> bool:
        """Measure the next load, or look after the one under way; False once all is measured."""
        self._server.look()
        # Nodes that follow hear of the end from the bucket.
        if self._cloud.read(MANIFEST) is not None:
            self._work.tell("done", "the benchmark is over")
            return False
        if not self._server.leads:
            return True
        if not self._server.is_ready:
            self._drop_client()
            return True
        if self._begun and not self._has_ended():
            self._work.tell("working", f"measure {self._begun}")
            return True
        measured = {item.key for item in self._cloud.list(PREFIX)}
        runs = self._settings["runs"]
        left = [run for run in runs if PREFIX + run["name"] not in measured]
        if not left or FAILURE in measured:
            self._close(len(runs) - len(left))
        else:
            self._begin(left[0])
        return True

    def leave(self) -> None:
        """Stop; what was measured is in the bucket."""
        self._drop_client()
        self._server.leave()

    def _begin(self, run: Mapping[str, Any]) -> None:
        folder = self._machine.path(self._settings["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        # A result of an earlier try is not one of this.
        (folder / run["name"]).unlink(missing_ok=True)
        container.start(
            self._machine, NAME, self._settings["container"], run["words"]
        )
        self._begun = run["name"]
        self._work.tell("working", f"measure {self._begun}")

    def _has_ended(self) -> bool:
        """Whether the client has ended; what it has measured is then in the bucket."""
        exit_ = container.ended(self._machine, NAME)
        if exit_ is None:
            return False
        name = self._begun
        result = self._machine.path(self._settings["folder"]) / name
        if exit_.code == 0 and result.exists():
            self._cloud.write(PREFIX + name, result.read_bytes())
        else:
            self._tries[name] = self._tries.get(name, 0) + 1
            reason = f"the client ended with {exit_.code}: {exit_.last_lines}"
            self._machine.log(f"{name}: {reason}")
            if self._tries[name] >= MOST_TRIES:
                failure = {"name": name, "reason": reason}
                self._cloud.write(FAILURE, json.dumps(failure).encode())
        self._drop_client()
        return True

    def _close(self, load_count: int) -> None:
        manifest = {"loads": load_count}
        self._cloud.write(MANIFEST, json.dumps(manifest).encode())

    def _drop_client(self) -> None:
        """Let no client run; the load that it was under way with is begun anew."""
        if self._begun:
            container.remove(self._machine, NAME)
            self._begun = ""
