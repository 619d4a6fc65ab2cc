"""The resource graph as plain data: Pulumi type token, camelCase inputs, references, options.

Inside inputs, `{"$ref": name, "output": path}` is the output of another resource. In any text,
`${project}` and `${deadline.FORM}` are filled in when the stack is applied: the project is the
caller's, and the deadline counts from the first apply. Forms: rfc3339, at (without zone), cron,
far (rfc3339, ten years later).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One cloud resource. `depends_on` adds to the dependencies that references imply."""

    type: str
    name: str
    inputs: dict[str, Any]
    depends_on: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def needs(self) -> list[str]:
        """Names of all resources that must exist before this one, sorted."""
        return sorted({*self.depends_on, *refs(self.inputs)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All resources of a stack in one region of one cloud, by name."""

    provider: str
    region: str
    resources: tuple[Resource, ...]
    outputs: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the graph as the plan document holds it."""
        return {
            "provider": self.provider,
            "region": self.region,
            "resources": [
                {
                    "type": r.type,
                    "name": r.name,
                    "inputs": r.inputs,
                    "depends_on": list(r.depends_on),
                    "options": r.options,
                }
                for r in sorted(self.resources, key=lambda r: r.name)
            ],
            "outputs": self.outputs,
        }


def restore(document: dict[str, Any]) -> Graph:
    """Read a graph back from a plan document."""
    resources = tuple(
        Resource(
            type=r["type"],
            name=r["name"],
            inputs=r["inputs"],
            depends_on=tuple(r["depends_on"]),
            options=r["options"],
        )
        for r in document["resources"]
    )
    return Graph(
        provider=document["provider"],
        region=document["region"],
        resources=resources,
        outputs=document["outputs"],
    )


def ref(name: str, output: str = "id") -> dict[str, str]:
    """Refer to an output of another resource."""
    return {"$ref": name, "output": output}


def refs(value: Any) -> Iterator[str]:
    """Yield the names that a value refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        else:
            for item in value.values():
                yield from refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


def order(resources: tuple[Resource, ...]) -> list[Resource]:
    """Sort so that every resource comes after what it needs; raises ValueError on a cycle."""
    left = {r.name: r for r in resources}
    done: list[Resource] = []
    placed: set[str] = set()
    while left:
        ready = sorted(
            n for n, r in left.items() if placed.issuperset(r.needs())
        )
        if not ready:
            raise ValueError(
                "resources depend on each other: " + ", ".join(sorted(left))
            )
        done += [left.pop(name) for name in ready]
        placed.update(ready)
    return done
