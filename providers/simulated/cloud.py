"""The calls of the simulated clouds: create, update, delete and read objects.

They check unique names, references that block a deletion, capacity, quota, and the faults of
the world.
"""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.facts import table
from planner.units import SECONDS_PER_MINUTE
from providers.catalog.load import SnapshotPrices
from providers.catalog.metering import node_group
from providers.resource_type import name_properties, name_rules
from providers.simulated.check import input_problems
from providers.simulated.history import ObjectHistory, SizedGroup, stack_of
from providers.simulated.limit import capacity_refusal, limit_refusal
from providers.simulated.relation import blocking_objects, names_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Properties
    from providers.base import NodeGroup
    from providers.simulated.world import ThrottleRule, World, WorldMemory

# The output of a launch template that each change of it changes.
VERSION_OUTPUT: Final = "latestVersion"
# How the clouds call a request that is wrong in itself.
INVALID_CODE: Final = "InvalidParameterValue"


class CloudError(Exception):
    """A call that the cloud refused, with its error code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class SimulatedCloud:
    """A cloud of a world in one region; it works on the state of the world."""

    def __init__(self, world: World, memory: WorldMemory, region: str) -> None:
        self.world = world
        self.memory = memory
        self.region = region

    def create(
        self,
        resource_type: str,
        resource_name: str,
        inputs: Properties,
        origin: str = "",
    ) -> tuple[str, Properties]:
        """Create an object and return its id and outputs. Raises CloudError.

        `origin` identifies the call, so that its object is found when the answer was lost.
        """
        self._refuse_call("create", resource_type, resource_name)
        self._check_inputs(resource_type, inputs, None)
        self._check_lags(resource_type, inputs)
        self._check_unique(resource_type, inputs)
        granted = self._granted_group(resource_type, inputs, None)
        object_id, outputs = self.place(
            resource_type, resource_name, inputs, origin
        )
        if granted is not None:
            self.memory.history[object_id].sizes = [
                SizedGroup(self.memory.seconds, granted)
            ]
        return object_id, outputs

    def place(
        self,
        resource_type: str,
        resource_name: str,
        inputs: Properties,
        origin: str = "",
    ) -> tuple[str, Properties]:
        """Create an object whatever it is; return its id and outputs."""
        self.memory.serial += 1
        # A digest of the history: the same calls give the same ids.
        id_seed = f"{resource_type}/{resource_name}/{self.memory.serial}"
        id_suffix = hashlib.sha256(id_seed.encode()).hexdigest()[:12]
        fixed_name = inputs.get(name_properties().get(resource_type, ""))
        object_id = (
            f"{resource_type.rsplit(':', maxsplit=1)[-1].lower()}-{id_suffix}"
        )
        outputs = self._object_outputs(
            resource_type, object_id, str(fixed_name or object_id), inputs
        )
        self.memory.objects[object_id] = {
            "type": resource_type,
            "name": resource_name,
            "inputs": inputs,
            "outputs": outputs,
            "region": self.region,
            "origin": origin,
        }
        self._begin_history(object_id)
        return object_id, outputs

    def update(self, object_id: str, inputs: Properties) -> Properties:
        """Change an object in place and return its outputs. Raises CloudError."""
        cloud_object = self._find_object(object_id)
        self._refuse_call("update", cloud_object["type"], cloud_object["name"])
        self._check_immutable(cloud_object, inputs)
        self._check_inputs(cloud_object["type"], inputs, object_id)
        self._check_lags(cloud_object["type"], inputs)
        granted = self._granted_group(cloud_object["type"], inputs, object_id)
        fixed_name = inputs.get(name_properties().get(cloud_object["type"], ""))
        outputs = self._object_outputs(
            cloud_object["type"],
            object_id,
            str(fixed_name or object_id),
            inputs,
        )
        # Each change of a launch template makes a new version.
        if VERSION_OUTPUT in outputs:
            outputs[VERSION_OUTPUT] = (
                int(cloud_object["outputs"].get(VERSION_OUTPUT, 1)) + 1
            )
        self.memory.objects[object_id] = {
            **cloud_object,
            "inputs": inputs,
            "outputs": outputs,
        }
        self._resize(object_id, cloud_object["inputs"], granted)
        self.memory.history[object_id].is_silent = self._silences(cloud_object)
        return outputs

    def _silences(self, cloud_object: Properties) -> bool:
        """Whether new machines do not answer after an update of an object."""
        due = [
            self._is_due(f"silence/{number}", rule.after, rule.times)
            for number, rule in enumerate(self.world.silences)
            if rule.applies(cloud_object["type"], cloud_object["name"])
        ]
        return any(due)

    def _is_due(self, key: str, after: int, times: int) -> bool:
        """Count a call of a rule; return whether it is among those that the rule is about."""
        call_count = self.memory.fired.get(key, 0)
        self.memory.fired[key] = call_count + 1
        return after <= call_count < after + times

    def _begin_history(self, object_id: str) -> None:
        """Count the hours of an object from now on."""
        cloud_object = self.memory.objects[object_id]
        group = self._node_group(
            cloud_object["type"], cloud_object["inputs"], self.region
        )
        second = self.memory.seconds
        self.memory.history[object_id] = ObjectHistory(
            type=cloud_object["type"],
            name=cloud_object["name"],
            region=self.region,
            inputs=cloud_object["inputs"],
            stack=stack_of(cloud_object["origin"]),
            second=second,
            sizes=[SizedGroup(second, group)] if group else [],
        )

    def _resize(
        self,
        object_id: str,
        prior_inputs: Properties,
        granted: NodeGroup | None,
    ) -> None:
        """Let a group be what a call got, where it asked for another one.

        Its size stays what rules have made of it, unless the call changes the size.
        """
        cloud_object = self.memory.objects[object_id]
        history = self.memory.history[object_id]
        history.inputs = cloud_object["inputs"]
        prior, group = (
            self._node_group(cloud_object["type"], inputs, self.region)
            for inputs in (prior_inputs, cloud_object["inputs"])
        )
        if granted is None or group is None or group == prior:
            return
        if prior is not None and group.node_count == prior.node_count:
            granted = replace(granted, node_count=history.nodes)
        history.resize(self.memory.seconds, granted)

    def delete(self, object_id: str) -> None:
        """Delete an object; an absent one is no error.

        Raises CloudError while another object refers to it.
        """
        target_object = self.memory.objects.get(object_id)
        if target_object is None:
            return
        self._refuse_call(
            "delete", target_object["type"], target_object["name"]
        )
        blocked = blocking_objects(object_id, self.memory.objects)
        if blocked is not None:
            error_code, dependent_names = blocked
            raise CloudError(
                error_code, f"still used by {', '.join(dependent_names)}"
            )
        del self.memory.objects[object_id]
        self.memory.history[object_id].until = self.memory.seconds

    def read(self, object_id: str) -> Properties | None:
        """Return an object, or `None` when it does not exist."""
        return self.memory.objects.get(object_id)

    def find(self, origin: str) -> dict[str, Properties]:
        """Return the objects that a call created, by id."""
        return {
            object_id: cloud_object
            for object_id, cloud_object in self.memory.objects.items()
            if cloud_object["origin"] == origin
        }

    def _find_object(self, object_id: str) -> Properties:
        cloud_object = self.memory.objects.get(object_id)
        if cloud_object is None:
            raise CloudError("NotFound", f"{object_id} does not exist")
        return cloud_object

    def _refuse_call(
        self, operation: str, resource_type: str, resource_name: str
    ) -> None:
        """Raise what the world file says of a call."""
        for rule in self.world.refuses:
            if rule.applies(operation, resource_type, resource_name):
                raise CloudError(rule.code, "always refused by the world file")
        for fault_index, fault in enumerate(self.world.faults):
            if not fault.applies(operation, resource_type, resource_name):
                continue
            if self._is_due(str(fault_index), fault.after, fault.times):
                raise CloudError(fault.code, "injected by the world file")
        for throttle_index, throttle in enumerate(self.world.throttles):
            if throttle.applies(operation, resource_type, resource_name):
                self._throttle(str(throttle_index), throttle)

    def _throttle(self, key: str, throttle: ThrottleRule) -> None:
        """Raise for a call when as many as are allowed were made in the last minute."""
        now_s = self.memory.seconds
        recent = [
            time_s
            for time_s in self.memory.recent.get(key, ())
            if now_s - time_s < SECONDS_PER_MINUTE
        ]
        self.memory.recent[key] = recent
        if len(recent) >= throttle.per_minute:
            raise CloudError(
                throttle.code, f"more than {throttle.per_minute} a minute"
            )
        recent.append(now_s)

    def _check_inputs(
        self, resource_type: str, inputs: Properties, own_id: str | None
    ) -> None:
        # An object never stands in its own way.
        others = {
            object_id: cloud_object
            for object_id, cloud_object in self.memory.objects.items()
            if object_id != own_id
        }
        problems = input_problems(resource_type, inputs, others, self.region)
        if problems:
            raise CloudError(INVALID_CODE, "; ".join(problems))

    def _check_lags(self, resource_type: str, inputs: Properties) -> None:
        """Refuse what refers to an object that is not known everywhere yet."""
        for rule in self.world.lags:
            for object_id, cloud_object in self.memory.objects.items():
                age_s = (
                    self.memory.seconds - self.memory.history[object_id].second
                )
                if (
                    age_s < rule.seconds
                    and fnmatchcase(cloud_object["type"], rule.type)
                    and names_object(
                        resource_type, inputs, object_id, self.memory.objects
                    )
                ):
                    raise CloudError(
                        rule.code, f"{cloud_object['name']} is not ready yet"
                    )

    def _check_immutable(
        self, cloud_object: Properties, inputs: Properties
    ) -> None:
        changed_names = immutable_changes(
            cloud_object["type"], cloud_object["inputs"], inputs
        )
        if changed_names:
            raise CloudError(
                INVALID_CODE, f"{', '.join(changed_names)} cannot be changed"
            )

    def _check_unique(self, resource_type: str, inputs: Properties) -> None:
        for rule in name_rules().get(resource_type, ()):
            name = inputs.get(rule.property)
            # A name that is its own scope need not be unique.
            if not isinstance(name, str) or rule.property in rule.parent:
                continue
            own_scope = rule.scope_key(inputs, self.region)
            for existing in self.memory.objects.values():
                if (
                    existing["type"] == resource_type
                    and existing["inputs"].get(rule.property) == name
                    and rule.scope_key(existing["inputs"], existing["region"])
                    == own_scope
                ):
                    raise CloudError(
                        "AlreadyExists", f"{rule.property} {name} is taken"
                    )

    def _granted_group(
        self, resource_type: str, inputs: Properties, own_id: str | None
    ) -> NodeGroup | None:
        """Return the nodes that a group gets of those that it asks for; nothing without any.

        All are of one type: its own, or the first of its stand-ins that there are enough of.
        Raises CloudError for what is beyond capacity or quota.
        """
        wanted_group = self._node_group(resource_type, inputs, self.region)
        if wanted_group is None:
            return None
        self._check_machine_type(wanted_group)
        if wanted_group.is_in_reservation:
            return wanted_group
        # A changed group replaces its own earlier request.
        other_groups = self._other_groups(own_id)
        refusals = []
        for group in _with_stand_ins(wanted_group):
            refusal = limit_refusal(self.world, group, other_groups)
            if refusal is None:
                return group
            refusals.append(refusal)
        raise CloudError(*refusals[0])

    def _other_groups(self, own_id: str | None) -> list[NodeGroup]:
        """Return what other groups have now, reservations among them instead of their machines."""
        return [
            history.sizes[-1].group
            for object_id, history in self.memory.history.items()
            if object_id != own_id
            and history.sizes
            and history.until is None
            and not history.sizes[-1].group.is_in_reservation
        ]

    def _node_group(
        self, resource_type: str, inputs: Properties, region: str
    ) -> NodeGroup | None:
        return node_group(resource_type, inputs, self.memory.objects, region)

    def _check_machine_type(self, wanted_group: NodeGroup) -> None:
        """Refuse a machine type that no cloud sells, or that a region does not have."""
        provider, region, instance_type, _ = wanted_group.offer_key
        known_regions = _regions_of_types()
        # What the catalog does not have at all cannot be compared with it.
        if provider not in {cloud for cloud, _ in known_regions}:
            return
        if region not in known_regions.get((provider, instance_type), ()):
            raise CloudError(
                INVALID_CODE, f"there is no {instance_type!r} in {region}"
            )

    def capacity_refusal(self, object_id: str, nodes: int) -> str | None:
        """Say why a group cannot have so many nodes; nothing where it can."""
        history = self.memory.history[object_id]
        group = replace(history.sizes[-1].group, node_count=nodes)
        if nodes <= history.nodes or group.is_in_reservation:
            return None
        refusal = capacity_refusal(
            self.world, group, self._other_groups(object_id)
        )
        return None if refusal is None else ": ".join(refusal)

    def _object_outputs(
        self,
        resource_type: str,
        object_id: str,
        display_name: str,
        inputs: Properties,
    ) -> Properties:
        """Return the inputs as outputs, with those that the templates add."""
        object_outputs = {
            **inputs,
            "name": inputs.get("name", display_name),
            "id": object_id,
        }
        placeholders = {
            "id": object_id,
            "name": display_name,
            "region": self.region,
            "project": self.world.project,
        }
        for output_name, template in _output_templates().get(resource_type, ()):
            filled_text = template
            for placeholder, replacement in placeholders.items():
                filled_text = filled_text.replace(
                    "{" + placeholder + "}", replacement
                )
            # Templates are JSON, so an output may be a list or an object.
            object_outputs[output_name] = json.loads(filled_text)
        return object_outputs


def _with_stand_ins(group: NodeGroup) -> Iterator[NodeGroup]:
    """Yield a group as it is asked for, then with each of its other machine types."""
    yield group
    provider, region, _, purchase = group.offer_key
    for instance_type in group.stand_ins:
        yield replace(
            group, offer_key=(provider, region, instance_type, purchase)
        )


def immutable_changes(
    resource_type: str, prior_inputs: Properties, target_inputs: Properties
) -> list[str]:
    """Return the changed properties that force a replacement."""
    immutable_names = _immutable_names().get(resource_type, frozenset())
    return [
        property_name
        for property_name in sorted({*prior_inputs, *target_inputs})
        if property_name in immutable_names
        and prior_inputs.get(property_name) != target_inputs.get(property_name)
    ]


def computed_outputs(resource_type: str) -> set[str]:
    """Return the outputs of a type that the cloud decides."""
    return {name for name, _ in _output_templates().get(resource_type, ())}


@cache
def _regions_of_types() -> dict[tuple[str, str], frozenset[str]]:
    """Return the regions that each machine type is sold in, by cloud and type."""
    regions: dict[tuple[str, str], set[str]] = {}
    for offer in SnapshotPrices().catalog().offers:
        type_key = (offer.provider, offer.instance.instance_type)
        regions.setdefault(type_key, set()).add(offer.region)
    return {key: frozenset(names) for key, names in regions.items()}


def call_seconds(world: World, resource_type: str) -> float:
    """Return how long a call for a resource of a type takes, simulated seconds."""
    for delay in world.delays:
        if fnmatchcase(resource_type, delay.type):
            return delay.seconds
    known_s = durations_s()
    return known_s.get(resource_type, known_s["*"])


@cache
def durations_s() -> dict[str, float]:
    """Return the time to create a resource on the simulated clock, seconds, by type.

    The type * stands for all other types.
    """
    columns = {
        "type": table.nonempty_text,
        "seconds": table.real_between(0, 100_000),
        "source": table.nonempty_text,
    }
    return {
        table_row["type"]: table_row["seconds"]
        for table_row in table.load_rows(
            "providers.simulated", "durations.csv", columns
        )
    }


@cache
def _immutable_names() -> dict[str, frozenset[str]]:
    properties_by_type: dict[str, set[str]] = {}
    columns = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    for table_row in table.load_rows(
        "providers.simulated", "replace.csv", columns
    ):
        properties_by_type.setdefault(table_row["type"], set()).add(
            table_row["property"]
        )
    return {
        resource_type: frozenset(properties)
        for resource_type, properties in properties_by_type.items()
    }


@cache
def _output_templates() -> dict[str, tuple[tuple[str, str], ...]]:
    templates_by_type: dict[str, list[tuple[str, str]]] = {}
    columns = {
        "type": table.nonempty_text,
        "output": table.nonempty_text,
        "template": table.nonempty_text,
    }
    for table_row in table.load_rows(
        "providers.simulated", "outputs.csv", columns
    ):
        templates_by_type.setdefault(table_row["type"], []).append(
            (table_row["output"], table_row["template"])
        )
    return {
        resource_type: tuple(output_templates)
        for resource_type, output_templates in templates_by_type.items()
    }
