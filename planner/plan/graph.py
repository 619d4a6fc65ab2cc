"""The cloud resources of a plan, as Pulumi takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from planner.plan.part import DocumentPart, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator


class PlannedResource(DocumentPart, frozen=True, kw_only=True):
    """One cloud resource as Pulumi takes it.

    Inside inputs, `{"$ref": name, "output": path}` is an output of another resource. In texts,
    `${project}` and `${deadline.at}` (also `.rfc3339`, `.cron`, `.far`) are filled in when the
    plan is applied. The deadline counts from the first apply, so that a plan has no clock in it.
    """

    type: Annotated[str, Meta(description="Pulumi type token")]
    name: Annotated[str, Meta(description="unique in the stack")]
    inputs: Annotated[
        Properties, Meta(description="as the provider spells them")
    ]
    depends_on: Annotated[
        tuple[str, ...],
        Meta(description="resources beside those that are referred to"),
    ] = ()
    options: Annotated[
        Properties,
        Meta(
            description="delete_before_replace, delete_timeout, replace_on_changes"
        ),
    ] = field(default_factory=dict)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Names of the resources that have to be there first, sorted."""
        return tuple(sorted({*self.depends_on, *referenced_names(self.inputs)}))


class PlannedGraph(DocumentPart, frozen=True, kw_only=True):
    """All resources of the stack."""

    provider: Annotated[str, Meta(description="cloud")] = ""
    region: Annotated[str, Meta(description="region of the cloud")] = ""
    resources: Annotated[
        tuple[PlannedResource, ...], Meta(description="by name")
    ] = ()
    outputs: Annotated[
        Properties, Meta(description="what the stack tells once it stands")
    ] = field(default_factory=dict)


def references(pulumi_input: Any) -> Iterator[Properties]:
    """Yield the references of a value, in the order in which they stand."""
    if isinstance(pulumi_input, dict):
        if "$ref" in pulumi_input:
            yield pulumi_input
        else:
            for nested_input in pulumi_input.values():
                yield from references(nested_input)
    elif isinstance(pulumi_input, list):
        for nested_input in pulumi_input:
            yield from references(nested_input)


def referenced_names(pulumi_input: Any) -> Iterator[str]:
    """Yield the names that a value refers to."""
    for reference in references(pulumi_input):
        yield reference["$ref"]
