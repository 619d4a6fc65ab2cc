"""The generic Pulumi program: registers a graph through plain custom resources.

Needs only the `pulumi` package. Outputs exist for names that are given as inputs of None, and
numbers come back as doubles, so whole ones are made integers again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pulumi

from planner.facts.cloud import clouds
from providers.resource_type import exclusive_inputs, name_rules
from stacks.engine.fill import TEXT_OUTPUTS, output_at
from stacks.engine.pulumi.retention import retained_names
from stacks.graph import creation_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from planner.plan.types import Properties
    from stacks.engine.pulumi.gate import Gate
    from stacks.graph import Graph, Resource


class Program:
    """What the Automation API calls. It keeps its event loop, so that it can be closed.

    When an update fails, the engine is gone before the language server has said its last word,
    and the loop would stay open with its sockets.
    """

    def __init__(
        self,
        resource_graph: Graph,
        fill_text: Callable[[str], str],
        version: str,
        exports: Properties,
        import_ids: Mapping[str, str],
        *,
        standing: Mapping[str, Properties] | None = None,
        is_move: bool = False,
        gate: Gate | None = None,
    ) -> None:
        self.resource_graph = resource_graph
        self.gate = gate
        self.answers: dict[str, pulumi.Output[None]] = {}
        self.clients_know: pulumi.Output[None] | None = None
        self.is_move = is_move
        # Inputs of what stands in the same place, by the names of resources.
        self.standing = standing or {}
        self.import_ids = import_ids
        self.retained_names = retained_names(resource_graph)
        self.fill_text = fill_text
        self.version = version
        self.exports = exports
        self.ordered_resources = creation_order(resource_graph)
        self.referenced_outputs = _referenced_outputs(resource_graph)
        self.registered: dict[str, pulumi.CustomResource] = {}
        self.event_loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> None:
        """Register everything in the order of dependencies."""
        self.event_loop = asyncio.get_running_loop()
        self.registered, self.answers = {}, {}
        self.clients_know = None
        cloud = clouds()[self.resource_graph.provider]
        region = self.resource_graph.region
        # Of a move that was cut, Pulumi compares the providers of both regions. With one name
        # it would take what still stands in the old region for a part of the new one.
        cloud_provider = pulumi.ProviderResource(
            cloud.package,
            f"{cloud.package}-{region}",
            {cloud.region_property: region},
            pulumi.ResourceOptions(version=self.version),
        )
        for resource in self.ordered_resources:
            self.registered[resource.name] = self._register(
                resource, cloud_provider
            )
        for output_name, output_value in self.resource_graph.outputs.items():
            pulumi.export(output_name, self._resolve(output_value))
        for output_name, output_value in self.exports.items():
            pulumi.export(output_name, self._at_the_end(output_value))

    def _register(
        self, resource: Resource, cloud_provider: Any
    ) -> pulumi.CustomResource:
        resource_inputs = dict.fromkeys(
            self.referenced_outputs.get(resource.name, ())
        )
        resource_inputs.update(
            {
                property_name: self._resolve(input_value)
                for property_name, input_value in resource.inputs.items()
            }
        )
        return pulumi.CustomResource(
            resource.type,
            resource.name,
            resource_inputs,
            self._options(resource, cloud_provider),
        )

    def _options(
        self, resource: Resource, cloud_provider: Any
    ) -> pulumi.ResourceOptions:
        graph_options = resource.options
        delete_timeout = graph_options.get("delete_timeout")
        return pulumi.ResourceOptions(
            provider=cloud_provider,
            version=self.version,
            depends_on=[
                self.registered[dependency_name]
                for dependency_name in resource.depends_on
            ],
            # What is imported is taken as it is; the next run changes what differs.
            ignore_changes=["*"]
            if resource.name in self.import_ids
            else graph_options.get("ignore_changes"),
            import_=self.import_ids.get(resource.name),
            retain_on_delete=resource.name in self.retained_names,
            replace_on_changes=graph_options.get("replace_on_changes"),
            delete_before_replace=self._goes_first(resource),
            custom_timeouts=pulumi.CustomTimeouts(delete=delete_timeout)
            if delete_timeout
            else None,
        )

    def _goes_first(self, resource: Resource) -> bool:
        """Whether an old object has to go before a new one can be made: it has its name.

        Names are those of a region: in another one, nothing is in the way. What a name refers to
        counts as the same.
        """
        if self.is_move or not resource.options.get("delete_before_replace"):
            return False
        standing = self.standing.get(resource.name, {})
        held = exclusive_inputs(resource.type, standing)
        # In another parent, such as a zone, a name is another one.
        free_names = {
            rule.property
            for rule in name_rules().get(resource.type, ())
            for parent in rule.parent
            if isinstance(place := resource.inputs.get(parent), str)
            and self.fill_text(place) != standing.get(parent, place)
        }
        return any(
            not isinstance(value, str)
            or self.fill_text(value) == held.get(property_name)
            for property_name, value in exclusive_inputs(
                resource.type, resource.inputs
            ).items()
            if property_name not in free_names
        )

    def _resolve(self, input_value: Any) -> Any:
        if isinstance(input_value, dict):
            if "$ref" in input_value:
                return self._resource_output(
                    input_value["$ref"], input_value["output"]
                )
            return {
                property_name: self._resolve(nested_value)
                for property_name, nested_value in input_value.items()
            }
        if isinstance(input_value, list):
            return [self._resolve(nested_value) for nested_value in input_value]
        return (
            self.fill_text(input_value)
            if isinstance(input_value, str)
            else input_value
        )

    def _resource_output(
        self, resource_name: str, output_path: str
    ) -> pulumi.Output[Any]:
        gate = self.gate
        if gate is None or resource_name not in gate.handover.pools:
            return self._plain_output(resource_name, output_path)
        # What follows the machines, such as a balancer that turns to them, waits for them too.
        answer = self.answers.get(resource_name)
        if answer is None:
            resource = self.registered[resource_name]
            bucket = self._resolve(self.resource_graph.outputs["bucket"])
            answer = pulumi.Output.all(resource.id, bucket).apply(
                lambda known: gate.await_answer(
                    resource.pulumi_resource_type, resource_name, *known
                )
            )
            self.answers[resource_name] = answer
        return pulumi.Output.all(
            answer, self._plain_output(resource_name, output_path)
        ).apply(lambda pair: pair[1])

    def _at_the_end(self, exported_value: Any) -> Any:
        """Return what is exported once everything stands, and the old may go."""
        gate = self.gate
        if gate is None:
            return exported_value
        made = pulumi.Output.all(
            *self.answers.values(),
            *(resource.id for resource in self.registered.values()),
        )
        if self.clients_know is None:
            self.clients_know = made.apply(lambda _: gate.await_clients())
        return self.clients_know.apply(lambda _: exported_value)

    def _plain_output(
        self, resource_name: str, output_path: str
    ) -> pulumi.Output[Any]:
        resource = self.registered[resource_name]
        output_name = _path_head(output_path)
        if output_path == "id":
            return resource.id
        pulumi_output: pulumi.Output[Any] = vars(resource)[output_name]
        if output_name in TEXT_OUTPUTS:
            return pulumi_output.apply(
                lambda output_value: str(_whole_numbers(output_value))
            )
        return pulumi_output.apply(
            lambda output_value: _whole_numbers(
                output_at({output_name: output_value}, output_path)
            )
        )

    def close(self, patience_s: float = 2.0) -> None:
        """Wait until the loop rests, then cancel what is left and close it."""
        event_loop = self.event_loop
        self.event_loop = None
        deadline_s = time.monotonic() + patience_s
        idle_checks = 0
        while (
            event_loop
            and not event_loop.is_closed()
            and idle_checks < 10
            and time.monotonic() < deadline_s
        ):
            idle_checks = 0 if event_loop.is_running() else idle_checks + 1
            time.sleep(0.02)
        if (
            event_loop is None
            or event_loop.is_closed()
            or event_loop.is_running()
        ):
            return
        event_loop.set_exception_handler(lambda *_: None)
        pending_tasks = asyncio.all_tasks(event_loop)
        for pending_task in pending_tasks:
            pending_task.cancel()
        with suppress(RuntimeError):
            event_loop.run_until_complete(
                asyncio.gather(*pending_tasks, return_exceptions=True)
            )
            event_loop.run_until_complete(
                event_loop.shutdown_default_executor()
            )
        event_loop.close()


def _path_head(output_path: str) -> str:
    return output_path.replace("[", ".").split(".")[0]


def _referenced_outputs(resource_graph: Graph) -> dict[str, list[str]]:
    """Outputs that something refers to, by resource; the id is always there."""
    outputs_by_name: dict[str, set[str]] = {}
    for referring_value in (
        *(resource.inputs for resource in resource_graph.resources),
        resource_graph.outputs,
    ):
        for resource_name, output_path in _output_paths(referring_value):
            if output_path != "id":
                outputs_by_name.setdefault(resource_name, set()).add(
                    _path_head(output_path)
                )
    return {
        resource_name: sorted(output_names)
        for resource_name, output_names in outputs_by_name.items()
    }


def _output_paths(referring_value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(referring_value, dict):
        if "$ref" in referring_value:
            yield referring_value["$ref"], referring_value["output"]
        else:
            for nested_value in referring_value.values():
                yield from _output_paths(nested_value)
    elif isinstance(referring_value, list):
        for nested_value in referring_value:
            yield from _output_paths(nested_value)


def _whole_numbers(output_value: Any) -> Any:
    if isinstance(output_value, float) and output_value.is_integer():
        return int(output_value)
    if isinstance(output_value, list):
        return [_whole_numbers(nested_value) for nested_value in output_value]
    if isinstance(output_value, dict):
        return {
            property_name: _whole_numbers(nested_value)
            for property_name, nested_value in output_value.items()
        }
    return output_value
