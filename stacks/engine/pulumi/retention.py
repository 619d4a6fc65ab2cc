"""What Pulumi leaves in the cloud for its data, remembered beside its state.

Pulumi forgets an object that it retains. So each run first writes down all objects that it might
leave, and afterwards those that it did leave; a later apply imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from planner.plan.status import Coming
from providers.resource_type import has_same_name, has_same_parent
from stacks.engine.fill import fill_names
from stacks.engine.keep import (
    LIVES_IN,
    WAITED_FOR,
    data_types,
    kept_keys,
)
from stacks.engine.pulumi.checkpoint import place_of, resource_ids
from stacks.engine.state import ResourceRecord
from stacks.engine.state_file import StateFile
from stacks.graph import Graph, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from planner.plan.status import Operation, StackFacts, StackStatus
    from planner.plan.types import Properties
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.engine.store import StateStore

RETAINED_FLAG: Final = "retainOnDelete"


def retained_names(
    resource_graph: Graph, left: Iterable[ResourceRecord] = ()
) -> set[str]:
    """Return the resources of a graph that are left in the cloud when they go.

    `left` are objects that earlier runs have left: they live in some of these.
    """
    records = {
        resource.name: ResourceRecord(
            type=resource.type,
            id="",
            inputs=resource.inputs,
            outputs={},
            needs=resource.dependencies,
            place=(resource_graph.provider, resource_graph.region),
        )
        for resource in resource_graph.resources
    }
    return kept_keys(
        records,
        records,
        [(str(record.options["name"]), record) for record in left],
    )


class LeftGraph(NamedTuple):
    """Retained objects of one place as resources, and the id of each."""

    graph: Graph
    import_ids: dict[str, str]


class RetainedObjects:
    """The objects of a stack that Pulumi has left, or may leave, by their ids.

    Their file also says where a run that waits for new machines takes uploads.
    """

    def __init__(self, store: StateStore, stack_name: str) -> None:
        self.file = StateFile(store, stack_name)

    @property
    def records(self) -> dict[str, ResourceRecord]:
        """Retained objects by their ids."""
        return self.file.state.retained

    @property
    def coming(self) -> Coming | None:
        """What a run brings the stack to whose new machines are waited for."""
        return self.file.state.coming

    def announce(self, facts: StackFacts, bucket: str) -> None:
        """Write down what a run brings the stack to, so that uploads find its bucket."""
        self.file.state.coming = Coming(facts=facts, bucket=bucket)
        self.file.save()

    def announce_uploads(
        self, facts: StackFacts, standing: StackStatus
    ) -> None:
        """Announce that the bucket of a standing stack takes other uploads than it did."""
        bucket = standing.outputs.get("bucket")
        if bucket and facts.takes_other_uploads(standing.facts):
            self.announce(facts, str(bucket))

    def left(self) -> list[ResourceRecord]:
        """Return what was left for good: not what a run may leave that has not ended."""
        is_settled = self.file.state.operation in ("applied", "destroyed")
        return list(self.records.values()) if is_settled else []

    def kept_names(
        self, resource_graph: Graph, deployment: Properties
    ) -> set[str]:
        """Return the resources of a graph that are left in the cloud when they go.

        What was left before, or goes now, may live in some of them.
        """
        names = {resource.name for resource in resource_graph.resources}
        standing_ids = resource_ids(deployment)
        return retained_names(
            resource_graph,
            [
                record
                for record in self.records.values()
                if record.id not in standing_ids
                or record.options["name"] not in names
            ],
        )

    def left_graphs(self) -> list[LeftGraph]:
        """Return the retained objects as graphs, one for each place.

        Several may come from one resource, so each is named after its resource and a number.
        """
        left_graphs = []
        for place in sorted({record.place for record in self.records.values()}):
            records = [
                record
                for record in self.records.values()
                if record.place == place
            ]
            names = [
                f"{record.options['name']}-{number}"
                for number, record in enumerate(records)
            ]
            graph = Graph(
                provider=place[0],
                region=place[1],
                resources=tuple(
                    Resource(
                        type=record.type,
                        name=name,
                        inputs=record.inputs,
                        # What was needed by name may be left several times.
                        depends_on=tuple(
                            other_name
                            for other_name, other in zip(
                                names, records, strict=True
                            )
                            if other.options["name"] in record.needs
                        ),
                    )
                    for name, record in zip(names, records, strict=True)
                ),
            )
            ids = [record.id for record in records]
            left_graphs.append(
                LeftGraph(graph, dict(zip(names, ids, strict=True)))
            )
        return left_graphs

    def forget(self, object_ids: Iterable[str]) -> None:
        """Forget what was deleted."""
        for object_id in object_ids:
            del self.records[object_id]
        self._write("destroyed")

    def remember(self, deployment: Properties) -> list[str]:
        """Write down every object that the next run may leave, and return their names."""
        for state_record in deployment.get("resources") or ():
            if state_record.get(RETAINED_FLAG) and state_record.get("id"):
                self.records[str(state_record["id"])] = _record(
                    state_record, place_of(deployment, state_record)
                )
        if self.records:
            self.file.state.operation = "destroying"
            self.file.save()
        return [str(record.options["name"]) for record in self.records.values()]

    def take_over(
        self,
        resource: Resource,
        object_id: str,
        place: tuple[str, str],
        fill_text: Callable[[str], str],
    ) -> None:
        """Keep an object for a resource, as if an earlier run had left it."""
        self.records[object_id] = ResourceRecord(
            type=resource.type,
            id=object_id,
            inputs=fill_names(resource.inputs, fill_text),
            outputs={},
            needs=resource.dependencies,
            place=place,
            options={"name": resource.name},
        )
        self._write("applied")

    def rename(self, new_name: str) -> None:
        """Keep what is known under another name of the stack."""
        if not self.file.exists:
            return
        renamed = StateFile(self.file.store, new_name)
        renamed.state = self.file.state
        old_name, renamed.state.stack = renamed.state.stack, new_name
        renamed.save()
        self.file.store.delete(old_name)

    def settle(
        self, deployment: Properties, operation: Operation = "applied"
    ) -> None:
        """Forget what is still in the state of Pulumi: it was not left."""
        for state_record in deployment.get("resources") or ():
            self.records.pop(str(state_record.get("id")), None)
        self.file.state.coming = None
        self._write(operation)

    def _write(self, operation: Operation) -> None:
        self.file.state.operation = operation
        if operation == "applied":
            self.file.state.refusals = {}
        if self.records or self.file.state.refusals:
            self.file.save()
        elif self.file.exists:
            self.file.delete()
            self.file.exists = False
            self.file.version = None

    def import_ids(
        self,
        resource_graph: Graph,
        deployment: Properties,
        fill_text: Callable[[str], str],
    ) -> dict[str, str]:
        """Return the ids of retained objects that a graph has again, by resource.

        What the state has already is not imported; an object of another name is another one.
        `fill_text` fills the names of the graph.
        """
        place = (resource_graph.provider, resource_graph.region)
        standing = standing_records(deployment, place)
        resources = {
            resource.name: resource
            for resource in resource_graph.resources
            if resource.name not in standing
        }
        found_ids = {}
        for object_id, record in self.records.items():
            name = str(record.options["name"])
            resource = resources.get(name)
            if (
                resource is not None
                and record.place == place
                and record.type == resource.type
                and _is_same_object(
                    record, fill_names(resource.inputs, fill_text)
                )
            ):
                found_ids[name] = object_id
        return found_ids


def _is_same_object(record: ResourceRecord, inputs: Properties) -> bool:
    """Whether an object has the name that inputs give, in the same place."""
    return has_same_name(
        record.type, record.inputs, inputs
    ) and has_same_parent(record.type, record.inputs, inputs)


def standing_records(
    deployment: Properties, place: tuple[str, str]
) -> dict[str, ResourceRecord]:
    """Return what stands of a stack in a place, by the names of resources."""
    return {
        _resource_name(state_record["urn"]): _record(state_record, place)
        for state_record in deployment.get("resources") or ()
        if state_record.get("id")
        # What waits for its deletion has a successor.
        and not state_record.get("delete")
        and place_of(deployment, state_record) == place
    }


def clear_flags(
    pulumi_stack: PulumiStack, kept_ids: Collection[str] = frozenset()
) -> None:
    """Let the next run delete what it would leave, but for some objects."""
    deployment = pulumi_stack.deployment
    flagged_records = [
        state_record
        for state_record in deployment.get("resources") or ()
        if state_record.get(RETAINED_FLAG)
        and str(state_record.get("id")) not in kept_ids
    ]
    if not flagged_records:
        return
    for state_record in flagged_records:
        del state_record[RETAINED_FLAG]
    pulumi_stack.write_deployment(deployment)


def _record(state_record: Properties, place: tuple[str, str]) -> ResourceRecord:
    return ResourceRecord(
        type=state_record["type"],
        id=state_record["id"],
        inputs=state_record.get("inputs") or {},
        outputs=state_record.get("outputs") or {},
        needs=tuple(
            _resource_name(urn) for urn in state_record.get("dependencies", ())
        ),
        place=place,
        options={
            "name": _resource_name(state_record["urn"]),
            LIVES_IN: _homes(state_record),
        },
    )


def _homes(state_record: Properties) -> list[str]:
    """Return the names of what an object that holds data cannot exist without."""
    data_type = data_types().get(state_record["type"])
    references = {
        **(state_record.get("propertyDependencies") or {}),
        WAITED_FOR: state_record.get("dependencies"),
    }
    return [
        _resource_name(urn)
        for property_name in (data_type.lives_in if data_type else ())
        for urn in references.get(property_name) or ()
    ]


def _resource_name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]
