"""The generic Pulumi program: registers a graph through plain custom resources.

Needs only the `pulumi` package. Outputs exist for names that are given as inputs of None, and
numbers come back as doubles, so whole ones are made integers again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pulumi

from stacks.engine.fill import at
from stacks.graph import order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stacks.graph import Graph, Resource

PACKAGES: Final = {"aws": "aws", "azure": "azure-native", "gcp": "gcp"}
# The schema of launch templates counts versions in integers and takes them as text.
AS_TEXT: Final = ("latestVersion",)


class Program:
    """What the Automation API calls. It keeps its event loop, so that it can be closed.

    When an update fails, the engine is gone before the language server has said its last word,
    and the loop would stay open with its sockets.
    """

    def __init__(
        self,
        graph: Graph,
        fill: Callable[[str], str],
        version: str,
        exports: dict[str, Any],
    ) -> None:
        self.graph, self.fill, self.version, self.exports = (
            graph,
            fill,
            version,
            exports,
        )
        self.ordered = order(graph.resources)
        self.wanted = _wanted(graph)
        self.made: dict[str, pulumi.CustomResource] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> None:
        """Register everything in the order of dependencies."""
        self.loop = asyncio.get_running_loop()
        self.made = {}
        package = PACKAGES[self.graph.provider]
        key = "location" if package == "azure-native" else "region"
        cloud = pulumi.ProviderResource(
            package,
            package,
            {key: self.graph.region},
            pulumi.ResourceOptions(version=self.version),
        )
        for item in self.ordered:
            self.made[item.name] = self._register(item, cloud)
        for name, value in {**self.graph.outputs, **self.exports}.items():
            pulumi.export(name, self._resolve(value))

    def _register(self, item: Resource, cloud: Any) -> pulumi.CustomResource:
        inputs = dict.fromkeys(self.wanted.get(item.name, ()))
        inputs.update(
            {key: self._resolve(value) for key, value in item.inputs.items()}
        )
        return pulumi.CustomResource(
            item.type, item.name, inputs, self._options(item, cloud)
        )

    def _options(self, item: Resource, cloud: Any) -> pulumi.ResourceOptions:
        given = item.options
        timeout = given.get("delete_timeout")
        return pulumi.ResourceOptions(
            provider=cloud,
            version=self.version,
            depends_on=[self.made[name] for name in item.depends_on],
            ignore_changes=given.get("ignore_changes"),
            replace_on_changes=given.get("replace_on_changes"),
            delete_before_replace=given.get("delete_before_replace"),
            custom_timeouts=pulumi.CustomTimeouts(delete=timeout)
            if timeout
            else None,
        )

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return self._output(value["$ref"], value["output"])
            return {key: self._resolve(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        return self.fill(value) if isinstance(value, str) else value

    def _output(self, name: str, path: str) -> pulumi.Output[Any]:
        resource, head = self.made[name], _head(path)
        if path == "id":
            return resource.id
        found: pulumi.Output[Any] = vars(resource)[head]
        if head in AS_TEXT:
            return found.apply(lambda value: str(_whole(value)))
        return found.apply(lambda value: _whole(at({head: value}, path)))

    def close(self, patience: float = 2.0) -> None:
        """Wait until the loop rests, then cancel what is left and close it."""
        loop, self.loop = self.loop, None
        ends, resting = time.monotonic() + patience, 0
        while (
            loop
            and not loop.is_closed()
            and resting < 10
            and time.monotonic() < ends
        ):
            resting = 0 if loop.is_running() else resting + 1
            time.sleep(0.02)
        if loop is None or loop.is_closed() or loop.is_running():
            return
        loop.set_exception_handler(lambda *_: None)
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        with suppress(RuntimeError):
            loop.run_until_complete(
                asyncio.gather(*tasks, return_exceptions=True)
            )
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _head(path: str) -> str:
    return path.replace("[", ".").split(".")[0]


def _wanted(graph: Graph) -> dict[str, list[str]]:
    """Outputs that something refers to, by resource; the id is always there."""
    found: dict[str, set[str]] = {}
    for value in (*(r.inputs for r in graph.resources), graph.outputs):
        for name, path in _paths(value):
            if path != "id":
                found.setdefault(name, set()).add(_head(path))
    return {name: sorted(heads) for name, heads in found.items()}


def _paths(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"], value["output"]
        else:
            for item in value.values():
                yield from _paths(item)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value
