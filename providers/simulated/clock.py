"""Lets time pass in a simulated world: rules resize groups, machines are lost and come back."""

from __future__ import annotations

import heapq
import math
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.perf.reliability.interruption import run_hazard
from planner.units import SECONDS_PER_DAY
from providers.registry import all_providers
from providers.simulated.history import WorldEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.simulated.cloud import SimulatedCloud
    from providers.simulated.history import EventKind, ObjectHistory
    from providers.simulated.shared import SharedWorld
    from providers.size_rule import SizeRule

# A group that has lost a machine has another one after this time.
RELAUNCH_S: Final = 300.0
# The newest are kept: a world that runs for years must not grow without end.
MOST_EVENTS: Final = 10_000


class Moment(Struct, frozen=True, order=True):
    """Something that is due at a second of the world.

    kind       resize: by a rule; notice: a machine on spot hears that it goes; lose: a machine
               goes; return: it comes back
    object_id  the group
    rule       the rule of a resize
    """

    second: float
    kind: str
    object_id: str
    rule_number: int = -1


def advance(world: SharedWorld, seconds: float) -> list[WorldEvent]:
    """Let time pass, seconds; return what happened meanwhile, in order.

    The same world and the same times give the same events: losses are drawn from its seed.
    """
    with world.call("") as cloud:
        passage = Passage(cloud, cloud.memory.seconds + seconds)
        events = passage.run()
        cloud.memory.seconds += seconds
        cloud.memory.events = [*cloud.memory.events, *events][-MOST_EVENTS:]
    return events


class Passage:
    """A stretch of time in a world, up to the second `end`."""

    def __init__(self, cloud: SimulatedCloud, end: float) -> None:
        self.cloud = cloud
        self.end = end
        self.rules: list[SizeRule] = []
        self.moments: list[Moment] = []
        self.events: list[WorldEvent] = []

    def run(self) -> list[WorldEvent]:
        """Go through all moments in order, and return what happened."""
        self._collect_resizes()
        cloud_s = self.cloud.memory.seconds
        for object_id, history in self._groups():
            if history.next_loss is None:
                self._draw_loss(object_id, history, history.second)
            else:
                self._push_loss(object_id, history, cloud_s)
            for second in history.due_back:
                self._push(second, "return", object_id)
        while self.moments:
            moment = heapq.heappop(self.moments)
            history = self.cloud.memory.history[moment.object_id]
            if moment.kind == "resize":
                self._resize(moment, history)
            elif moment.kind == "notice":
                self._notice(moment, history)
            elif moment.kind == "lose":
                self._lose(moment, history)
            else:
                self._return(moment, history)
        return self.events

    def _groups(self) -> Iterator[tuple[str, ObjectHistory]]:
        for object_id, history in sorted(self.cloud.memory.history.items()):
            if history.sizes and history.until is None:
                yield object_id, history

    def _collect_resizes(self) -> None:
        """Enter every time at which a rule is due."""
        memory = self.cloud.memory
        start = self.cloud.world.clock
        group_ids = {
            name: object_id
            for object_id, history in self._groups()
            for name in (object_id, *_names(history))
        }
        for object_id, cloud_object in sorted(memory.objects.items()):
            created = start + timedelta(
                seconds=memory.history[object_id].second
            )
            for provider in all_providers():
                for rule in provider.size_rules(
                    cloud_object["type"],
                    cloud_object["inputs"],
                    memory.objects,
                    created,
                ):
                    self._enter(rule, group_ids.get(rule.group))

    def _enter(self, rule: SizeRule, group_id: str | None) -> None:
        if group_id is None:
            return
        start = self.cloud.world.clock
        number = len(self.rules)
        self.rules.append(rule)
        for moment in rule.times(
            start + timedelta(seconds=self.cloud.memory.seconds),
            start + timedelta(seconds=self.end),
        ):
            second = (moment - start).total_seconds()
            heapq.heappush(
                self.moments, Moment(second, "resize", group_id, number)
            )

    def _resize(self, moment: Moment, history: ObjectHistory) -> None:
        """Let a group have what a rule allows: minimum <= nodes <= maximum."""
        rule = self.rules[moment.rule_number]
        nodes = min(max(history.nodes, rule.minimum), rule.maximum)
        if nodes == history.nodes:
            return
        self._set_nodes(moment, history, nodes, "resized")

    def _notice(self, moment: Moment, history: ObjectHistory) -> None:
        """Tell a machine on spot that it is going to be taken back."""
        if history.nodes and history.next_loss is not None:
            left_s = history.next_loss - moment.second
            self._tell(moment.second, "notice", history, f"in {left_s:.0f} s")

    def _lose(self, moment: Moment, history: ObjectHistory) -> None:
        """Take a machine back."""
        if history.nodes:
            self._set_nodes(moment, history, history.nodes - 1, "lost")
            back_s = moment.second + RELAUNCH_S
            history.due_back.append(back_s)
            self._push(back_s, "return", moment.object_id)
        self._draw_loss(moment.object_id, history, moment.second)

    def _return(self, moment: Moment, history: ObjectHistory) -> None:
        """Let a group have the machine again that it has lost."""
        history.due_back.remove(min(history.due_back))
        self._set_nodes(moment, history, history.nodes + 1, "back")

    def _push(self, second: float | None, kind: str, object_id: str) -> None:
        """Enter what is due in this stretch of time; what was overdue happens at its begin."""
        if second is not None and second <= self.end:
            due = max(second, self.cloud.memory.seconds)
            heapq.heappush(self.moments, Moment(due, kind, object_id))

    def _set_nodes(
        self,
        moment: Moment,
        history: ObjectHistory,
        nodes: int,
        kind: EventKind,
    ) -> None:
        refusal = self.cloud.capacity_refusal(moment.object_id, nodes)
        if refusal is not None:
            self._tell(moment.second, "refused", history, refusal)
            return
        detail = f"{history.nodes} to {nodes} nodes"
        history.resize(
            moment.second,
            replace(history.sizes[-1].group, node_count=nodes),
        )
        self._tell(moment.second, kind, history, detail)

    def _draw_loss(
        self, object_id: str, history: ObjectHistory, second: float
    ) -> None:
        """Draw when the next machine of a group is lost, and enter it.

        gap ~ exponential, mean = 1 day / (nodes * losses of a node and day)
        """
        offer_key = history.sizes[-1].group.offer_key
        per_day = sum(
            rule.per_day
            for rule in self.cloud.world.losses
            if rule.applies(offer_key)
        )
        rate = float(per_day) * max(1, history.nodes) / SECONDS_PER_DAY
        if not rate:
            history.next_loss = None
            return
        seed = f"{self.cloud.world.seed}/{object_id}/{second:.3f}"
        gap_s = random.Random(seed).expovariate(rate)  # noqa: S311 - a simulation
        history.next_loss = second + gap_s
        self._push_loss(object_id, history, -math.inf)

    def _push_loss(
        self, object_id: str, history: ObjectHistory, told_until: float
    ) -> None:
        """Enter the next loss of a group, and its notice unless that was told before."""
        if history.next_loss is None:
            return
        self._push(history.next_loss, "lose", object_id)
        provider, *_, purchase = history.sizes[-1].group.offer_key
        if purchase != "spot":
            return
        notice_s = run_hazard(1, provider, "", "monthly").notice_s
        told_at = history.next_loss - notice_s
        if told_at > told_until:
            self._push(told_at, "notice", object_id)

    def _tell(
        self,
        second: float,
        kind: EventKind,
        history: ObjectHistory,
        detail: str,
    ) -> None:
        self.events.append(
            WorldEvent(second, kind, history.stack, history.name, detail)
        )


def _names(history: ObjectHistory) -> list[str]:
    """Return what clouds call a group."""
    return [
        str(history.inputs[key])
        for key in ("name", "vmScaleSetName")
        if key in history.inputs
    ]
