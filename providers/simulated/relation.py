"""Which objects refer to which: to what does not exist, or to what is to be deleted."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.facts import table
from providers.resource_type import name_properties, strings_in, values_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.types import Properties

# Conditions under which a reference holds a deletion up, of those in the table: "instances" of a
# group always exist here. Others need what is inside an object.
BLOCKING_CONDITIONS: Final = frozenset({"always", "instances", "other-parent"})


class Reference(Struct, frozen=True, kw_only=True):
    """A property of one type that refers to an object of another.

    target   type of the object
    outside  what else it may name: things that the cloud itself or somebody else has
    code     with which its deletion is refused meanwhile; empty when it is not
    """

    target: str
    property: str
    outside: re.Pattern[str]
    code: str


def reference_problems(
    resource_type: str, inputs: Properties, objects: Mapping[str, Properties]
) -> Iterator[str]:
    """Say which properties refer to nothing that exists."""
    references_by_property: dict[str, list[Reference]] = {}
    for reference in _references().get(resource_type, ()):
        references_by_property.setdefault(reference.property, []).append(
            reference
        )
    for property_path, references in references_by_property.items():
        target_types = {reference.target for reference in references}
        known_texts = {
            text
            for object_id, cloud_object in objects.items()
            if cloud_object["type"] in target_types
            for text in _identities(object_id, cloud_object)
        }
        for text in values_at(inputs, property_path):
            if (
                isinstance(text, str)
                and not _names_any(text, known_texts)
                and not any(
                    reference.outside.fullmatch(text)
                    for reference in references
                )
            ):
                type_names = ", ".join(
                    sorted(name.rpartition(":")[2] for name in target_types)
                )
                yield f"{property_path}: {text!r} is no {type_names} that exists"


def names_object(
    resource_type: str,
    inputs: Properties,
    object_id: str,
    objects: Mapping[str, Properties],
) -> bool:
    """Tell whether the inputs of a resource refer to an object."""
    target = objects[object_id]
    target_texts = _identities(object_id, target)
    return any(
        reference.target == target["type"]
        and _refers({"inputs": inputs}, reference, target_texts, objects)
        for reference in _references().get(resource_type, ())
    )


def blocking_objects(
    target_id: str, objects: Mapping[str, Properties]
) -> tuple[str, list[str]] | None:
    """Return why an object cannot be deleted: an error code, and what refers to it."""
    target = objects[target_id]
    target_texts = _identities(target_id, target)
    codes = []
    names = set()
    for object_id, cloud_object in objects.items():
        for reference in _references().get(cloud_object["type"], ()):
            if (
                object_id != target_id
                and reference.code
                and reference.target == target["type"]
                and _refers(cloud_object, reference, target_texts, objects)
            ):
                codes.append(reference.code)
                names.add(cloud_object["name"])
    return (codes[0], sorted(names)) if codes else None


def _refers(
    cloud_object: Properties,
    reference: Reference,
    target_texts: set[str],
    objects: Mapping[str, Properties],
) -> bool:
    """Whether a property names an object, or a template that names it."""
    for text in values_at(cloud_object["inputs"], reference.property):
        if not isinstance(text, str):
            continue
        if _names_any(text, target_texts):
            return True
        template = objects.get(text)
        # One of the same type is another object, which may have the same name elsewhere.
        if (
            template is not None
            and template["type"] != reference.target
            and any(
                _names_any(nested_text, target_texts)
                for nested_text in strings_in(template["inputs"])
            )
        ):
            return True
    return False


def _names_any(text: str, known_texts: set[str]) -> bool:
    """Whether a text names an object, or a part of it by a path below its id."""
    return text in known_texts or any(
        text.startswith(f"{known_text}/") for known_text in known_texts
    )


def _identities(object_id: str, cloud_object: Properties) -> set[str]:
    """Return the texts by which others name an object: those with its id, and its own name."""
    name_property = name_properties().get(cloud_object["type"], "")
    fixed_name = cloud_object["inputs"].get(name_property)
    return {
        text
        for text in strings_in(cloud_object["outputs"])
        if object_id in text or (fixed_name and fixed_name in text)
    }


@cache
def _references() -> dict[str, tuple[Reference, ...]]:
    """Return references by the type that has them."""
    columns: dict[str, Any] = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "refers_to": table.nonempty_text,
        "outside": re.compile,
        "blocks": table.yes_or_no,
        "code": table.any_text,
        "condition": table.any_text,
        "note": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    references: dict[str, list[Reference]] = {}
    for row in table.load_rows(
        "providers.simulated", "references.csv", columns
    ):
        # In parentheses: what is inside an object, and no property of it.
        if row["property"].startswith("("):
            continue
        blocks = row["blocks"] and row["condition"] in BLOCKING_CONDITIONS
        references.setdefault(row["refers_to"], []).append(
            Reference(
                target=row["type"],
                property=row["property"],
                outside=row["outside"],
                code=row["code"] if blocks else "",
            )
        )
    return {
        resource_type: tuple(found)
        for resource_type, found in references.items()
    }
