"""The calls of the simulated clouds: create, update, delete and read objects under their rules.

What they check: names that must be unique, references that must exist, deletions that something
still needs, capacity, quota, and the faults of the world.
"""

from __future__ import annotations

import csv
import hashlib
import json
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from providers.simulated import capacity
from providers.simulated.world import matches

if TYPE_CHECKING:
    from providers.simulated.world import Limit, Memory, World

CAPACITY_CODES: Final = {
    "aws": "InsufficientInstanceCapacity",
    "azure": "ZonalAllocationFailed",
    "gcp": "ZONE_RESOURCE_POOL_EXHAUSTED",
}
QUOTA_CODES: Final = {
    "aws": "VcpuLimitExceeded",
    "azure": "QuotaExceeded",
    "gcp": "QUOTA_EXCEEDED",
}
# Objects that live inside others and go with them; they never hold a deletion up.
LOOSE: Final = (
    "authorization",
    "monitor",
    "iam/",
    "projects/",
    "cloudwatch",
    "Association",
    "autoscaling/schedule",
    "autoscaling/policy",
    "scheduler",
    "cloudscheduler",
    "BlobContainer",
    "IAMMember",
    "Rule",
    "ManagementPolicy",
)


class CloudError(Exception):
    """A call that the cloud refused: its code, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Cloud:
    """One cloud of a world in one region, working on what the world remembers."""

    def __init__(self, world: World, memory: Memory, region: str) -> None:
        self.world, self.memory, self.region = world, memory, region

    def create(
        self, kind: str, name: str, inputs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Create an object; returns its id and its outputs. Raises CloudError."""
        self._fault("create", kind, name)
        self._unique(kind, inputs)
        self._room(kind, inputs, None)
        self.memory.serial += 1
        seed = f"{kind}/{name}/{self.memory.serial}"
        token = hashlib.sha256(seed.encode()).hexdigest()[:12]
        fixed = inputs.get(names().get(kind, ""))
        identity = f"{kind.rsplit(':', maxsplit=1)[-1].lower()}-{token}"
        outputs = self._outputs(kind, identity, str(fixed or identity), inputs)
        self.memory.objects[identity] = {
            "type": kind,
            "name": name,
            "inputs": inputs,
            "outputs": outputs,
            "region": self.region,
        }
        return identity, outputs

    def update(self, identity: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Change an object in place; returns its outputs. Raises CloudError."""
        found = self._find(identity)
        self._fault("update", found["type"], found["name"])
        self._room(found["type"], inputs, identity)
        fixed = inputs.get(names().get(found["type"], ""))
        outputs = self._outputs(
            found["type"], identity, str(fixed or identity), inputs
        )
        if "latestVersion" in outputs:
            outputs["latestVersion"] = (
                int(found["outputs"].get("latestVersion", 1)) + 1
            )
        self.memory.objects[identity] = {
            **found,
            "inputs": inputs,
            "outputs": outputs,
        }
        return outputs

    def delete(self, identity: str) -> None:
        """Delete an object; one that is gone is fine. Raises CloudError while it is needed."""
        found = self.memory.objects.get(identity)
        if found is None:
            return
        self._fault("delete", found["type"], found["name"])
        needed = [
            o["name"]
            for key, o in self.memory.objects.items()
            if key != identity
            and _mentions(o["inputs"], identity)
            and not _loose(o["type"])
        ]
        if needed:
            raise CloudError(
                "DependencyViolation",
                f"still used by {', '.join(sorted(needed))}",
            )
        del self.memory.objects[identity]

    def read(self, identity: str) -> dict[str, Any] | None:
        """Return an object, or nothing when it is gone."""
        return self.memory.objects.get(identity)

    def replaces(
        self, kind: str, before: dict[str, Any], after: dict[str, Any]
    ) -> list[str]:
        """Return the changed properties that cannot be changed in place."""
        fixed = _immutable().get(kind, frozenset())
        return [
            key
            for key in sorted({*before, *after})
            if key in fixed and before.get(key) != after.get(key)
        ]

    def _find(self, identity: str) -> dict[str, Any]:
        found = self.memory.objects.get(identity)
        if found is None:
            raise CloudError("NotFound", f"{identity} does not exist")
        return found

    def _fault(self, on: str, kind: str, name: str) -> None:
        for index, fault in enumerate(self.world.faults):
            if fault.on != on or not fnmatchcase(kind, fault.type):
                continue
            if not fnmatchcase(name, fault.name):
                continue
            calls = self.memory.fired.get(str(index), 0)
            self.memory.fired[str(index)] = calls + 1
            if fault.after <= calls < fault.after + fault.times:
                raise CloudError(fault.code, "injected by the world file")

    def _unique(self, kind: str, inputs: dict[str, Any]) -> None:
        key = names().get(kind, "")
        wanted = inputs.get(key)
        if wanted is None:
            return
        for other in self.memory.objects.values():
            if other["type"] == kind and other["inputs"].get(key) == wanted:
                raise CloudError("AlreadyExists", f"{key} {wanted} is taken")

    def _room(
        self, kind: str, inputs: dict[str, Any], itself: str | None
    ) -> None:
        """Check capacity and quota for the nodes that a group asks for."""
        fleet = capacity.fleet(kind, inputs, self.memory.objects, self.region)
        if fleet is None:
            return
        others = [
            found
            for key, o in self.memory.objects.items()
            if key != itself
            and (
                found := capacity.fleet(
                    o["type"], o["inputs"], self.memory.objects, o["region"]
                )
            )
        ]
        for limits, codes, word in (
            (self.world.quota, QUOTA_CODES, "quota"),
            (self.world.capacity, CAPACITY_CODES, "capacity"),
        ):
            for limit in limits:
                self._within(limit, fleet, others, (codes[fleet.key[0]], word))

    def _within(
        self,
        limit: Limit,
        fleet: capacity.Fleet,
        others: list[capacity.Fleet],
        refusal: tuple[str, str],
    ) -> None:
        if not matches(limit, fleet.key):
            return
        used = sum(o.nodes for o in others if matches(limit, o.key))
        if used + fleet.nodes > limit.nodes:
            where = f"{fleet.key[2]} in {fleet.key[1]}"
            message = (
                f"{refusal[1]} for {limit.nodes} nodes of {where}, {used} used"
            )
            raise CloudError(refusal[0], f"{message}, {fleet.nodes} wanted")

    def _outputs(
        self, kind: str, identity: str, name: str, inputs: dict[str, Any]
    ) -> dict[str, Any]:
        """Inputs are outputs too; the rest comes from the templates."""
        found = {**inputs, "name": inputs.get("name", name), "id": identity}
        words = {
            "id": identity,
            "name": name,
            "region": self.region,
            "project": self.world.project,
        }
        for output, template in _templates().get(kind, ()):
            filled = template
            for word, value in words.items():
                filled = filled.replace("{" + word + "}", value)
            found[output] = json.loads(filled)
        return found


def _mentions(value: Any, identity: str) -> bool:
    if isinstance(value, dict):
        return any(_mentions(item, identity) for item in value.values())
    if isinstance(value, list):
        return any(_mentions(item, identity) for item in value)
    return isinstance(value, str) and identity in value


def _loose(kind: str) -> bool:
    return any(word in kind for word in LOOSE)


def _rows(name: str) -> list[dict[str, str]]:
    text = (
        files("providers.simulated")
        .joinpath("data", name)
        .read_text(encoding="utf-8")
    )
    return list(csv.DictReader(text.splitlines()))


@cache
def names() -> dict[str, str]:
    """Return the property that names a resource of each type for good."""
    return {row["type"]: row["property"] for row in _rows("names.csv")}


@cache
def durations() -> dict[str, float]:
    """Return how long the creation of a type takes on the simulated clock; * is the rest."""
    return {
        row["type"]: float(row["seconds"]) for row in _rows("durations.csv")
    }


@cache
def _immutable() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for row in _rows("replace.csv"):
        found.setdefault(row["type"], set()).add(row["property"])
    return {kind: frozenset(keys) for kind, keys in found.items()}


@cache
def _templates() -> dict[str, tuple[tuple[str, str], ...]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for row in _rows("outputs.csv"):
        found.setdefault(row["type"], []).append(
            (row["output"], row["template"])
        )
    return {kind: tuple(pairs) for kind, pairs in found.items()}
