"""Nodes that work together: each has a seat in a group, which is its rank.

A seat is an object of the bucket that one node alone can write: `groups/<pool>/<group>/<rank>`.
Its holder writes it again every minute. A seat that has not changed for some minutes, by the
clock of the node that looks at it, is free: another node takes it, and nobody else moves.

A group runs in epochs: `groups/<pool>/<group>/epoch` names the members. An epoch is over when a
member is another node or could not go on. The node of rank 0 says so, every member leaves it, and
when all have left, a new one begins: so nobody starts together with a node that is gone.

A group may have a base: its lowest ranks, whose machines are not taken back. The base works in
epochs of its own while others are away, and lets them in when what it did is saved.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.cloud import Conflict
from stacks.runtime.vm.node.host import read_document, write_whole
from stacks.runtime.vm.node.lease import RENEW_S, Leases

if TYPE_CHECKING:
    from collections.abc import Callable

    from stacks.runtime.vm.node.cloud import CloudApi, Stored
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

SEAT_PATH = "/var/lib/tonnage/seat.json"
# Before the first epoch a base waits so long for the others, which boot with it.
OTHERS_S = 900.0


class Member(NamedTuple):
    """A node of a group."""

    node: str
    address: str


class Epoch(NamedTuple):
    """A time in which a group works together; its number grows. Members are in order of rank."""

    number: int
    members: tuple[Member, ...]
    is_over: bool = False


class SeatPool:
    """The seats of all groups of a pool: `group_count` groups of `span` nodes.

    The seats of the first `base` ranks are for nodes that are not on spot, the others for those
    that are; 0 is a pool whose seats are for all.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        name: str,
        *,
        group_count: int,
        span: int,
        base: int = 0,
        is_spot: bool = False,
    ) -> None:
        self.machine = machine
        self.cloud = cloud
        self.span = span
        self.base = base
        self.me = Member(cloud.node_name(), cloud.address())
        self._name = name
        self._group_count = group_count
        self._ranks = range(span)
        if base:
            self._ranks = range(base, span) if is_spot else range(base)
        self._leases = Leases(machine, cloud)

    def claim(self) -> Seat | None:
        """Take a seat that is free; nothing when there is none.

        A node that starts again finds its own seat first. The lowest group is filled first, so
        that nodes which come one after the other make whole groups.
        """
        versions = self.versions("")
        own = self._own_seat(versions)
        for group, rank in ([own] if own else []) + self._seat_order():
            key = self.key(group, str(rank))
            if (group, rank) == own or self.is_free(key, versions):
                seat = Seat(self, group, rank, versions.get(key, ""))
                if seat.take():
                    return seat
        return None

    def versions(self, prefix: str) -> dict[str, str]:
        """Return the versions of the objects of the pool whose names begin with a prefix."""
        return self._leases.versions(f"groups/{self._name}/{prefix}")

    def is_free(self, key: str, versions: dict[str, str]) -> bool:
        """Whether nobody has a seat, as far as this node has seen."""
        return self._leases.is_free(key, versions)

    def key(self, group: int, name: str) -> str:
        """Return the key of an object of a group."""
        return f"groups/{self._name}/{group}/{name}"

    def _own_seat(self, versions: dict[str, str]) -> tuple[int, int] | None:
        """Return the seat that this node had before it started again, if it still is its own."""
        place = read_document(self.machine.path(SEAT_PATH))
        if place is None:
            return None
        key = self.key(place[0], str(place[1]))
        stored = self.cloud.read(key) if key in versions else None
        if stored is None or _read_record(stored)["node"] != self.me.node:
            return None
        versions[key] = stored.version
        return place[0], place[1]

    def _seat_order(self) -> list[tuple[int, int]]:
        """Return the seats for such a node, group by group.

        Nodes that come at once begin at different ranks.
        """
        digest = hashlib.sha256(self.me.node.encode()).digest()
        first_rank = int.from_bytes(digest[:4], "big")
        return [
            (group, self._ranks[(first_rank + step) % len(self._ranks)])
            for group in range(self._group_count)
            for step in range(len(self._ranks))
        ]


class Seat:
    """The place of this node in a group."""

    def __init__(
        self, pool: SeatPool, group: int, rank: int, version: str
    ) -> None:
        self.group = group
        self.rank = rank
        self._pool = pool
        self._version = version
        self._renewed_s = 0.0
        # The last epoch that this node has left, or never was part of.
        self._left = 0
        self._claimed_s = pool.machine.now_s()
        # How often the work of this node was seen to advance, and that of all: of rank 0 alone.
        self.moves = 0
        self.moves_of_all = 0
        # Whether others may join the base now: what it did is saved. Of rank 0 alone.
        self.lets_in = False
        # Whether the base works without this node.
        self.stands_by = False

    def take(self) -> bool:
        """Take the seat; False when another node was faster.

        A node that comes, or starts again, is not part of the epoch that runs.
        """
        epoch = self._read_epoch()[0]
        self._left = epoch.number if epoch else 0
        if not self._write():
            return False
        write_whole(
            self._pool.machine.path(SEAT_PATH),
            json.dumps([self.group, self.rank]),
        )
        return True

    def renew(self) -> bool:
        """Say that this node is here; False when another one has taken its seat."""
        if self._pool.machine.now_s() - self._renewed_s < RENEW_S:
            return True
        return self._write()

    def fail(self, epoch: Epoch) -> bool:
        """Say that this node cannot go on in an epoch, so that all begin a new one.

        False when another node has taken its seat.
        """
        self._left = epoch.number
        return self._write()

    def leave(self) -> None:
        """Give the seat up, so that another node need not wait until it is free."""
        stored = self._pool.cloud.read(self._key)
        if stored is not None and self._is_own(stored):
            self._pool.cloud.delete(self._key)

    def epoch(self) -> Epoch | None:
        """Return the epoch that runs; nothing when this node has to be in none.

        The node of rank 0 says when one is over, and begins the next one.
        """
        epoch, version = self._read_epoch()
        if self.rank == 0:
            epoch = self._led(epoch, version)
        if epoch is None:
            return None
        is_part = not epoch.is_over and self._pool.me in epoch.members
        works_alone = len(epoch.members) < self._pool.span
        self.stands_by = works_alone and not epoch.is_over and not is_part
        if is_part and self._left < epoch.number:
            return epoch
        if self._left < epoch.number:
            self.fail(epoch)
        return None

    def _led(self, epoch: Epoch | None, version: str) -> Epoch | None:
        """Return the epoch, or another one if that is due."""
        records = self._records()
        number = epoch.number if epoch else 0
        members = tuple(
            Member(record["node"], record["address"])
            for record in records or ()
        )
        lefts = [record["left"] for record in records or ()]
        self.moves_of_all = sum(record["moves"] for record in records or ())
        if epoch is not None and not epoch.is_over:
            working = len(epoch.members)
            is_whole = epoch.members == members[:working] and (
                working == len(members) or not self.lets_in
            )
            if is_whole and max(lefts[:working]) < number:
                return epoch
            return self._begin(epoch._replace(is_over=True), version)
        if records is None or min(lefts) < number:
            return epoch
        if epoch is None and self._awaits_others(members):
            return None
        return self._begin(Epoch(number + 1, members), version)

    def _awaits_others(self, members: tuple[Member, ...]) -> bool:
        """Whether the first epoch is worth waiting for: nothing is lost by then."""
        waited_s = self._pool.machine.now_s() - self._claimed_s
        return len(members) < self._pool.span and waited_s < OTHERS_S

    def _begin(self, epoch: Epoch, version: str) -> Epoch | None:
        """Write an epoch; nothing when it was written by somebody else meanwhile."""
        try:
            self._pool.cloud.write(
                self._pool.key(self.group, "epoch"),
                json.dumps(epoch).encode(),
                version=version,
            )
        except Conflict:
            return None
        return epoch

    def present(self) -> int:
        """Return how many nodes of the group are here."""
        versions = self._pool.versions(f"{self.group}/")
        return sum(
            not self._pool.is_free(key, versions) for key in self._seat_keys()
        )

    def _records(self) -> list[dict[str, Any]] | None:
        """Return what the members say, by rank; nothing while one is missing.

        Those of the base alone while all of them are there, and one of the others is missing.
        """
        versions = self._pool.versions(f"{self.group}/")
        records: list[dict[str, Any]] = []
        for key in self._seat_keys():
            stored = (
                None
                if self._pool.is_free(key, versions)
                else self._pool.cloud.read(key)
            )
            if stored is None:
                is_base = 0 < self._pool.base <= len(records)
                return records[: self._pool.base] if is_base else None
            records.append(_read_record(stored))
        return records

    def _seat_keys(self) -> list[str]:
        return [
            self._pool.key(self.group, str(rank))
            for rank in range(self._pool.span)
        ]

    @property
    def _key(self) -> str:
        return self._pool.key(self.group, str(self.rank))

    def _is_own(self, stored: Stored) -> bool:
        holder: str = _read_record(stored)["node"]
        return holder == self._pool.me.node

    def _write(self) -> bool:
        """Write the seat, if nobody else wrote it meanwhile."""
        if self._put():
            return True
        # A write of this node may have been done although its answer was lost.
        stored = self._pool.cloud.read(self._key)
        if stored is None or not self._is_own(stored):
            return False
        self._version = stored.version
        return self._put()

    def _put(self) -> bool:
        now_s = self._pool.machine.now_s()
        record = {
            **self._pool.me._asdict(),
            "left": self._left,
            "moves": self.moves,
            # Every write differs, so that others see that it was written.
            "at": now_s,
        }
        try:
            self._version = self._pool.cloud.write(
                self._key, json.dumps(record).encode(), version=self._version
            )
        except Conflict:
            return False
        self._renewed_s = now_s
        return True

    def _read_epoch(self) -> tuple[Epoch | None, str]:
        """Return the epoch of the group with the version of its object."""
        stored = self._pool.cloud.read(self._pool.key(self.group, "epoch"))
        if stored is None:
            return None, ""
        number, members, is_over = json.loads(stored.data)
        epoch = Epoch(
            number, tuple(Member(*member) for member in members), is_over
        )
        return epoch, stored.version


class Membership:
    """The part of this node in a group: its seat, and the epoch in which it works.

    `stop` ends what this node does in an epoch.
    """

    def __init__(
        self, pool: SeatPool, work: Work, stop: Callable[[], None]
    ) -> None:
        self.seat: Seat | None = None
        self.epoch: Epoch | None = None
        self._pool = pool
        self._work = work
        self._stop = stop

    def join(self) -> tuple[Seat, Epoch] | None:
        """Keep the seat of this node, and return it with the epoch; nothing while it waits."""
        if self.seat is not None and not self.seat.renew():
            self._lose_seat()
        if self.seat is None:
            self.seat = self._pool.claim()
        if self.seat is None:
            self._work.tell("spare", "stand by for a node that is lost")
            return None
        epoch = self.seat.epoch()
        if epoch != self.epoch:
            self.leave_epoch()
            self.epoch = epoch
        if epoch is None and self.seat.stands_by:
            self._work.tell("spare", "stand by until the others let it in")
            return None
        if epoch is None:
            present = self.seat.present()
            self._work.tell(
                "waiting", f"{present} of {self._pool.span} nodes are here"
            )
            return None
        return self.seat, epoch

    def leave_epoch(self) -> None:
        """End what this node does in the epoch."""
        if self.epoch is not None:
            self._stop()
        self.epoch = None

    def fail(self) -> None:
        """Say that this node cannot go on, so that all nodes of the group begin a new epoch."""
        epoch = self.epoch
        self.leave_epoch()
        if (
            self.seat is not None
            and epoch is not None
            and not self.seat.fail(epoch)
        ):
            self._lose_seat()

    def leave(self) -> None:
        """Give the seat up."""
        if self.seat is not None:
            self.seat.leave()

    def _lose_seat(self) -> None:
        self.leave_epoch()
        self.seat = None


def _read_record(stored: Stored) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(stored.data)
    return record
