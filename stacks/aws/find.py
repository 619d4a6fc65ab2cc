"""Finds objects of AWS whose ids the cloud has made up, by their tags and by what they belong to.

A lookup of stacks/data/import_ids.csv is CLIENT.OPERATION|FILTER|PATH. A filter is `tags`, or
`Filter:NAME=input`, or PARAMETER=input, or `listed-tags`, which compares tags here. A path is
LIST.FIELD, where LIST[Field=input,...] leaves out what differs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from providers.aws.client import service
from stacks.operate.orphan import TaggedObject
from stacks.spec.stack import MANAGED_TAG, MANAGER, STACK_TAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Properties

PATH_STEP: Final = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
# What is being deleted stays in lists for a while.
GONE_STATES: Final = frozenset(
    {"cancelled", "deleted", "deleting", "expired", "failed"}
)
STATE_FIELDS: Final = ("State", "Lifecycle", "Status")


def object_ids(lookup: str, inputs: Properties, region: str) -> list[str]:
    """Return the ids of the objects that have the inputs of a resource."""
    call, filter_text, path = lookup.split("|")
    client_name, operation = call.split(".")
    with service(client_name, region) as client:
        arguments = _arguments(client, operation, filter_text, inputs)
        if client.can_paginate(operation):
            pages = client.get_paginator(operation).paginate(**arguments)
        else:
            pages = [getattr(client, operation)(**arguments)]
        return [
            str(object_id)
            for page in pages
            for object_id in _values(
                page, path, inputs, compares_tags=filter_text == "listed-tags"
            )
        ]


def tagged_objects(regions: list[str]) -> list[TaggedObject]:
    """Return everything that tonnage has made, by its tags, one region after the other."""
    tagged = []
    for region in regions:
        with service("resourcegroupstaggingapi", region) as client:
            pages = client.get_paginator("get_resources").paginate(
                TagFilters=[{"Key": MANAGED_TAG, "Values": [MANAGER]}]
            )
            for page in pages:
                for found in page["ResourceTagMappingList"]:
                    tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]}
                    tagged.append(
                        TaggedObject(
                            "aws",
                            region,
                            tags.get(STACK_TAG, ""),
                            found["ResourceARN"],
                        )
                    )
    return tagged


def _arguments(
    client: Any, operation: str, filter_text: str, inputs: Properties
) -> dict[str, Any]:
    """Return the parameters of a request; their forms are those of the service's own model."""
    method = client.meta.method_to_api_mapping[operation]
    members = client.meta.service_model.operation_model(
        method
    ).input_shape.members
    if filter_text == "listed-tags":
        return {}
    filter_name = "Filters" if "Filters" in members else "Filter"
    if filter_text == "tags":
        filters = [
            {"Name": f"tag:{key}", "Values": [value]}
            for key, value in sorted(inputs.get("tags", {}).items())
        ]
        return {filter_name: filters}
    name, input_name = filter_text.removeprefix("Filter:").split("=")
    value = inputs.get(input_name)
    if filter_text.startswith("Filter:"):
        return {filter_name: [{"Name": name, "Values": [value]}]}
    is_list = members[name].type_name == "list"
    return {name: [value] if is_list else value}


def _values(
    page: Any, path: str, inputs: Properties, *, compares_tags: bool
) -> Iterator[Any]:
    """Yield what is at a path of an answer, of objects that are those of the inputs."""
    items = [page]
    *list_steps, field_name = re.split(r"\.(?![^\[]*\])", path)
    for step in list_steps:
        matched_step = PATH_STEP.fullmatch(step)
        if matched_step is None:
            raise ValueError(f"not a path: {path}")
        list_name, conditions = matched_step.groups()
        items = [
            element
            for item in items
            for element in item.get(list_name, ())
            if _meets(element, conditions or "", inputs)
        ]
    wanted_tags = inputs.get("tags", {}).items()
    for item in items:
        found_tags = {
            tag["Key"]: tag["Value"] for tag in item.get("Tags") or ()
        }
        if not compares_tags or wanted_tags <= found_tags.items():
            yield item[field_name]


def _meets(element: Any, conditions: str, inputs: Properties) -> bool:
    """Whether an object still exists, and has the inputs that conditions name."""
    for name in STATE_FIELDS:
        state = element.get(name)
        if isinstance(state, str) and state.lower() in GONE_STATES:
            return False
    for condition in filter(None, conditions.split(",")):
        field_path, wanted = condition.split("=")
        found: Any = element
        for part in field_path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if wanted in ("true", "false"):
            if found is not (wanted == "true"):
                return False
        elif str(found) != str(inputs.get(wanted)):
            return False
    return True
