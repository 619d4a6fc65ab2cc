"""The machines of an elastic service ask for others when requests pile up, and give back some.

Each machine writes how many requests it has. The first one that lives, by its name, adds them up
and sets the size of the group. So no machine of its own does this, and none is needed.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stacks.runtime.vm.node.lease import Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

# Machines write once a minute, so one that has missed three is not counted.
LIVES_S = 200.0
# Looks are a minute apart and a little more, so the oldest one is so much younger.
LOOK_S = 90.0
HOURS_OF_WEEK = 168


class LifeSign(NamedTuple):
    """What a machine has said of itself.

    requests  that it ran or queued in the last minute, in the mean
    """

    key: str
    handle: str
    phase: str
    requests: float


class LoadRule(NamedTuple):
    """When machines come and go.

    least      machines that run whatever is asked, in each hour of the week from Monday on
    zone       time zone of these hours
    most       machines that run at most
    target     requests of one machine, above which another one comes
    spare      machines beyond those that the requests take, for those that fail
    startup_s  from the request of a machine until it answers
    linger_s   for which fewer have to be enough before one goes
    """

    least: Sequence[int]
    zone: dt.tzinfo
    most: int
    target: float
    spare: int
    startup_s: float
    linger_s: float

    def least_at(self, moment: dt.datetime) -> int:
        """Return how many machines run whatever is asked: those of now, and of when one comes."""
        local = moment.astimezone(self.zone)
        return max(
            self._least_of(local),
            self._least_of(local + dt.timedelta(seconds=self.startup_s)),
        )

    def _least_of(self, local: dt.datetime) -> int:
        hour = local.weekday() * 24 + local.hour
        return self.least[hour % HOURS_OF_WEEK]

    def wanted(self, requests: float, moment: dt.datetime) -> int:
        """Return how many machines are enough for some requests.

        machines = ceil(requests / target) + spare, from the least of the hour to the most
        """
        # 1e-9 absorbs floating-point error at whole numbers.
        enough = math.ceil(requests / self.target - 1e-9) + self.spare
        return min(self.most, max(enough, self.least_at(moment)))


def read_rule(
    settings: Mapping[str, Any], log: Callable[[str], None]
) -> LoadRule:
    """Return the rule of the settings; in an unknown time zone all hours are the busiest one."""
    try:
        return LoadRule(**{**settings, "zone": ZoneInfo(settings["zone"])})
    except ZoneInfoNotFoundError as error:
        log(f"hours of the week are not known here: {error}")
        busiest = [max(settings["least"])] * HOURS_OF_WEEK
        return LoadRule(
            **{**settings, "zone": dt.timezone.utc, "least": busiest}
        )


class Follower:
    """Follows the load of a scaling group. Settings: those of LoadRule."""

    def __init__(
        self, machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._rule = read_rule(settings, machine.log)
        self._leases = Leases(machine, cloud, LIVES_S)
        # When this machine looked, and how many were enough then; none while others look.
        self._looks: list[tuple[float, int]] = []

    def look(self, folder: str, own_key: str, idle_s: float) -> None:
        """Set the size of the group when this machine is the first that lives.

        `idle_s` is for how long it has had no work.
        """
        versions = self._leases.versions(folder)
        living = [
            key
            for key in sorted(versions)
            if not self._leases.is_free(key, versions)
        ]
        if not living or living[0] != own_key:
            self._looks.clear()
            return
        signs = [sign for key in living if (sign := self._sign(key))]
        self._decide(signs, own_key, idle_s)

    def _sign(self, key: str) -> LifeSign | None:
        stored = self._cloud.read(key)
        if stored is None:
            return None
        record = json.loads(stored.data)
        return LifeSign(
            key,
            record["handle"],
            record["phase"],
            float(record.get("requests", 0)),
        )

    def _decide(
        self, signs: Sequence[LifeSign], own_key: str, idle_s: float
    ) -> None:
        now_s = self._machine.now_s()
        working = [sign for sign in signs if sign.phase == "working"]
        size = self._cloud.size()
        # A group of nothing was closed by the clock or by a person; it opens in the same way.
        if not working or not size:
            self._looks.clear()
            return
        requests = sum(sign.requests for sign in working)
        wanted = self._rule.wanted(requests, self._machine.utc())
        before = self._looks[-1][1] if self._looks else 0
        self._looks.append((now_s, wanted))
        # One look may be a burst of a minute; machines come for what two of them want.
        more = min(before, wanted)
        if more > size:
            self._machine.log(
                f"asks for {more} machines, has {size}: {requests:.0f} requests"
            )
            self._cloud.resize(more)
            return
        self._looks = [
            look
            for look in self._looks
            if now_s - look[0] <= self._rule.linger_s
        ]
        has_looked_s = now_s - self._looks[0][0]
        enough = max(count for _, count in self._looks)
        if enough < size and has_looked_s >= self._rule.linger_s - LOOK_S:
            others = [sign for sign in signs if sign.key != own_key]
            # Few requests may miss every look, so the last one goes by its own work alone.
            if not others and (enough or idle_s < self._rule.linger_s):
                return
            self._leave_one(others or signs, f"{enough} of {size} are enough")

    def _leave_one(self, signs: Sequence[LifeSign], reason: str) -> None:
        """Give a machine back, one that does not work yet before one that does."""
        last = max(signs, key=lambda sign: (sign.phase != "working", sign.key))
        self._machine.log(f"gives {last.handle} back: {reason}")
        self._cloud.give_back(last.handle)
        self._cloud.delete(last.key)
