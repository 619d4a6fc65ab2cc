"""Objects of the bucket that belong to the node that keeps writing them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from stacks.runtime.vm.node.cloud import Conflict

if TYPE_CHECKING:
    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

RENEW_S = 60.0
FREE_AFTER_S = 300.0


class Seen(NamedTuple):
    """A version of an object, and when this node saw it first."""

    version: str
    first_s: float


class Leases:
    """What this node has seen of the leases of others. Clocks of other nodes do not matter."""

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        free_after_s: float = FREE_AFTER_S,
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._free_after_s = free_after_s
        self._seen: dict[str, Seen] = {}

    def versions(self, prefix: str) -> dict[str, str]:
        """Return the versions of the objects whose keys begin with a prefix."""
        return {item.key: item.version for item in self._cloud.list(prefix)}

    def is_free(self, key: str, versions: dict[str, str]) -> bool:
        """Whether an object is missing, or nobody has written it for long."""
        version, now_s = versions.get(key, ""), self._machine.now_s()
        if not version:
            return True
        seen = self._seen.get(key)
        if seen is None or seen.version != version:
            self._seen[key] = seen = Seen(version, now_s)
        return now_s - seen.first_s >= self._free_after_s


class Lease:
    """An object that this node writes again and again, so that it stays its own."""

    def __init__(
        self, machine: Host, cloud: CloudApi, key: str, version: str
    ) -> None:
        self.key = key
        self._machine = machine
        self._cloud = cloud
        self._version = version
        self._written_s = 0.0

    def write(self) -> bool:
        """Write the object; False when another node has written it."""
        now_s = self._machine.now_s()
        record = {"node": self._cloud.node_name(), "at": now_s}
        try:
            self._version = self._cloud.write(
                self.key, json.dumps(record).encode(), version=self._version
            )
        except Conflict:
            return False
        self._written_s = now_s
        return True

    def renew(self) -> bool:
        """Write the object again when that is due; False when another node has it."""
        if self._machine.now_s() - self._written_s < RENEW_S:
            return True
        return self.write()
