"""The agent: gives the node back when its work has ended, never begins, or is not asked for.

It begins before everything else and needs nothing that the work needs. What the work does it reads
from a file; work that says nothing for long is work that does not begin.
"""

from __future__ import annotations

import datetime as dt
import json
from importlib import import_module, invalidate_caches
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.host import (
    CommandError,
    RequestError,
    read_document,
    write_whole,
)
from stacks.runtime.vm.node.journal import Journal
from stacks.runtime.vm.node.lease import Leases
from stacks.runtime.vm.node.work import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.elastic import Follower
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import WorkState

# On the root disk: a reboot resets the clock of the system, and not the life of the node.
LIFE_PATH = "/var/lib/tonnage/life.json"
# In the name of the object whose age says how long a node has lived.
LAUNCH_FORM = "%Y%m%dT%H%M%SZ"
# The cloud is told so often that the agent lives.
TELL_S = 60.0
# Alarms look back five minutes, so trouble is told for longer.
FAILED_S = 600.0
# Machines of a group look after each other so often, and for so long an agent may be silent.
WATCH_S = 300.0
SILENT_AFTER_S = 1800.0
# How clouds say that they do not know a machine.
GONE = (404, 410)
GONE_WORDS = ("not found", "does not exist", "validationerror")
# The cloud ends the machine meanwhile; else it is asked again.
RETRY_S = 300.0
# Azure announces ten minutes before that it moves a machine.
REPLACED_S = 1800.0


class Limits(NamedTuple):
    """When a node is given back, in seconds; 0 without a limit.

    start  of a node that does not begin its work
    wait   of a node that waits for others
    grace  after the boot, in which a node does not count as idle
    idle   of a node that has no work
    ttl    of its whole life
    """

    start: float
    wait: float
    grace: float
    idle: float
    ttl: float


class Release(NamedTuple):
    """Why a node is given back.

    is_replaced  whether another one is to take its place
    is_trouble   whether people want to know: nothing of this sort is planned
    """

    reason: str
    is_replaced: bool = False
    is_trouble: bool = True


def release_of(
    now_s: float, lived_s: float, state: WorkState | None, limits: Limits
) -> Release | None:
    """Return why the node is to be given back; nothing while it is to stay.

    A failed probe is no sign of work: what does not say that it works has a limit.
    """
    return next(_releases(now_s, lived_s, state, limits), None)


def _releases(
    now_s: float, lived_s: float, state: WorkState | None, limits: Limits
) -> Iterator[Release]:
    if limits.ttl and lived_s >= limits.ttl:
        yield Release("its time to live is over", is_trouble=False)
    if state is None:
        if limits.start and now_s >= limits.start:
            yield Release("its work has never begun")
        return
    phase_s, silent_s = now_s - state.since_s, now_s - state.told_s
    problem = f": {state.problem}" if state.problem else ""
    if state.phase == "done":
        yield Release("its work is done", is_trouble=False)
    if state.phase == "failed":
        yield Release(f"its work fails again and again{problem}")
    if state.phase == "unhealthy":
        yield Release(f"it is broken{problem}", is_replaced=True)
    start_s = phase_s if state.phase == "starting" else 0
    if limits.start and max(start_s, silent_s) >= limits.start:
        yield Release(f"it did not get beyond: {state.step}{problem}")
    if state.phase == "waiting" and limits.wait and phase_s >= limits.wait:
        yield Release(f"it waited too long: {state.step}")
    idle_s = now_s - max(state.busy_s, limits.grace)
    if state.phase == "working" and limits.idle and idle_s >= limits.idle:
        yield Release("nobody asked for anything", is_trouble=False)


def _is_idle(now_s: float, state: WorkState | None) -> bool:
    """Whether a node that works has had no work for some minutes.

    What begins or waits has a limit of its own, and may load weights for an hour without a word.
    """
    return (
        state is not None
        and state.phase == "working"
        and now_s - state.busy_s >= 2 * TELL_S
    )


def _has_failed(now_s: float, state: WorkState | None) -> bool:
    """Whether the work has failed in the last minutes."""
    return (
        state is not None
        and state.failed_s is not None
        and now_s - state.failed_s < FAILED_S
    )


class Agent:
    """The agent of this node. Settings: limits, group, and elastic where the load is followed."""

    def __init__(
        self, machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._settings = settings
        self._limits = Limits(**settings["limits"])
        self._told_s = self._kept_s = -TELL_S
        self._follower: Follower | None = None
        # Whoever adds up the requests of all wants them anew each minute.
        self._watch_s = TELL_S if "elastic" in settings else WATCH_S
        self._watched_s = -self._watch_s
        self._requests: list[float] = []
        self._told_phase = ""
        self._leases = Leases(machine, cloud, SILENT_AFTER_S)
        self._journal = Journal(machine, cloud)
        self._disk_problem = ""
        self._is_leaving = False
        # When another machine was given back because its agent was silent.
        self._lost_other_s = -FAILED_S
        life = read_document(machine.path(LIFE_PATH)) or {}
        self._lived_before_s = float(life.get("lived_s", 0))
        self._began_s = machine.now_s()
        # The time before this start of the agent counts once.
        if not self._lived_before_s:
            self._began_s = 0.0
        self._launched = str(life.get("launched") or self._launch_time())

    def look(self) -> None:
        """Look at the work, tell the cloud, and give the node back when that is due."""
        now_s = self._machine.now_s()
        lived_s = self._lived_before_s + now_s - self._began_s
        if now_s - self._kept_s >= TELL_S:
            self._kept_s = now_s
            self._keep_life(lived_s)
        state = read_state(self._machine)
        phase = state.phase if state is not None else ""
        self._cloud.show(phase)
        release = release_of(now_s, lived_s, state, self._limits)
        # Of a node that leaves this is the last word.
        if release is not None or now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._publish(
                {
                    "Heartbeat": True,
                    "Busy": release is None and not _is_idle(now_s, state),
                    "Trouble": release.is_trouble
                    if release is not None
                    else _has_failed(now_s, state)
                    or now_s - self._lost_other_s < FAILED_S,
                    **(state.numbers if state is not None else {}),
                }
            )
        if release is not None:
            self._give_back(release)
            return
        self._journal.ship()
        if state is not None:
            self._requests.append(state.numbers.get("Requests", 0.0))
        # Whoever replaces a service waits for the word that its machines work.
        if (
            now_s - self._watched_s >= self._watch_s
            or phase != self._told_phase
        ):
            self._watched_s = now_s
            self._watch_others(phase)
            self._told_phase = phase
            self._follow_load(0.0 if state is None else now_s - state.busy_s)

    def _follow_load(self, idle_s: float) -> None:
        """Let the group follow the load, where it does, and once the work has brought how."""
        if "elastic" not in self._settings:
            return
        if self._follower is None:
            invalidate_caches()
            try:
                module = import_module("stacks.runtime.vm.node.elastic")
            except ModuleNotFoundError:
                return
            self._follower = module.Follower(
                self._machine, self._cloud, self._settings["elastic"]
            )
        self._follower.look(self._alive_folder(), self._alive_key(), idle_s)

    def _launch_time(self) -> str:
        """Return when the life of the node began, as names of objects say it."""
        lived_s = self._lived_before_s + self._machine.now_s() - self._began_s
        launched = self._machine.utc() - dt.timedelta(seconds=lived_s)
        return launched.strftime(LAUNCH_FORM)

    def _keep_life(self, lived_s: float) -> None:
        """Write how long the node has lived. A full disk is no reason to keep it."""
        try:
            write_whole(
                self._machine.path(LIFE_PATH),
                json.dumps({"lived_s": lived_s, "launched": self._launched}),
            )
        except OSError as error:
            if not self._disk_problem:
                self._machine.log(f"the life of the node is not kept: {error}")
            self._disk_problem = str(error)

    def _publish(self, numbers: Mapping[str, float]) -> None:
        """Tell the cloud what alarms and charts look at; a cloud without an ear is no reason."""
        try:
            self._cloud.publish(
                {name: float(number) for name, number in numbers.items()}
            )
        except RequestError as error:
            self._machine.log(f"metrics are not published: {error}")

    def _give_back(self, release: Release) -> None:
        """End this machine, in vain as often as it takes. A broken one is replaced once."""
        self._machine.log(f"gives the node back: {release.reason}")
        # What led to it is the more worth reading, but no reason to stay.
        if not self._is_leaving:
            self._is_leaving = True
            self._journal.ship(at_once=True)
        is_replaced = release.is_replaced and self._may_be_replaced()
        try:
            self._tell(release)
            if is_replaced:
                self._cloud.replace()
            else:
                self._cloud.give_back(self._cloud.handle())
        except (RequestError, CommandError) as error:
            self._machine.log(f"the cloud did not take the node: {error}")
            is_replaced = False
        self._machine.sleep(REPLACED_S if is_replaced else RETRY_S)

    def _watch_others(self, phase: str) -> None:
        """Say in the bucket that this agent lives, and give back machines whose agents do not."""
        folder = self._alive_folder()
        # A cloud may give the name of a lost machine to the next one, which then writes here.
        own_key = self._alive_key()
        record = {
            "handle": self._cloud.handle(),
            "at": self._machine.now_s(),
            "phase": phase,
            "requests": sum(self._requests) / max(1, len(self._requests)),
        }
        self._requests.clear()
        self._cloud.write(own_key, json.dumps(record).encode())
        # Signs of life go with a machine; for how long it lived is counted when it is gone.
        self._cloud.write(
            f"lived/{self._settings['group']}/{self._launched}_{self._cloud.node_name()}",
            b"",
        )
        versions = self._leases.versions(folder)
        for key in sorted(versions.keys() - {own_key}):
            stored = (
                self._cloud.read(key)
                if self._leases.is_free(key, versions)
                else None
            )
            if stored is not None:
                self._end_silent(key, json.loads(stored.data)["handle"])

    def _alive_key(self) -> str:
        handle = self._cloud.handle().replace("/", "_")
        return f"{self._alive_folder()}{handle}"

    def _alive_folder(self) -> str:
        return f"alive/{self._settings['group']}/"

    def _end_silent(self, key: str, handle: str) -> None:
        """Give back a machine whose agent is silent; it may be gone already."""
        self._machine.log(f"gives {handle} back: its agent is silent")
        self._lost_other_s = self._machine.now_s()
        try:
            self._cloud.give_back(handle)
        except RequestError as error:
            # What the cloud does not know is gone; everything else is tried again.
            if error.status not in GONE and not any(
                word in str(error).lower() for word in GONE_WORDS
            ):
                raise
        self._cloud.delete(key)

    def _may_be_replaced(self) -> bool:
        """Whether no node of the group was replaced yet: the next one may be as broken."""
        try:
            return not self._cloud.list(f"broken/{self._settings['group']}/")
        except RequestError:
            return False

    def _tell(self, release: Release) -> None:
        """Leave the reason in the bucket, where it outlives the node."""
        folder = "broken" if release.is_replaced else "released"
        record = {
            "handle": self._cloud.handle(),
            "reason": release.reason,
            "trouble": release.is_trouble,
            "at": self._machine.utc().isoformat(timespec="seconds"),
        }
        group, name = self._settings["group"], self._cloud.node_name()
        try:
            self._cloud.write(
                f"{folder}/{group}/{name}.json", json.dumps(record).encode()
            )
            self._cloud.delete(self._alive_key())
        except RequestError as error:
            self._machine.log(f"the reason is not written: {error}")
