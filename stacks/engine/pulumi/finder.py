"""Finds what a creation made whose answer was lost."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld

TEMPLATE_FIELD: Final = re.compile(r"\{(\w+)\}")


class ObjectFinder(Protocol):
    """Finds objects in the clouds."""

    def find(self, resource: Properties, known_ids: set[str]) -> str | None:
        """Return the id of the object of a pending creation; nothing when there is none.

        An object whose id is known belongs to another resource. An id may turn out to be that of
        nothing: whoever reads it then finds out.
        """


class SimulatedFinder(Struct, frozen=True):
    """Finds objects of the simulated clouds by the resource that they were created for."""

    world: SharedWorld

    def find(self, resource: Properties, known_ids: set[str]) -> str | None:
        """Return the id of the object of a pending creation."""
        found_ids = self.world.view().find(resource["urn"])
        return next(
            (found_id for found_id in found_ids if found_id not in known_ids),
            None,
        )


class CloudFinder(Struct, frozen=True):
    """Finds objects of real clouds: by ids that follow from their inputs, or by asking.

    variables  what templates of ids name beside inputs: project, subscription, account, region
    """

    cloud: str
    variables: Mapping[str, str]

    def find(self, resource: Properties, known_ids: set[str]) -> str | None:
        """Return the id of the object of a pending creation."""
        rule = _id_rules().get(resource["type"])
        # What is made again without harm need not be found.
        if rule is None or rule["again"] == "same":
            return None
        inputs = resource.get("inputs", {})
        if rule["lookup"]:
            room = import_module(f"stacks.{self.cloud}.find")
            found_ids = room.object_ids(
                rule["lookup"], inputs, self.variables.get("region", "")
            )
            unknown_ids = [
                object_id
                for object_id in found_ids
                if object_id not in known_ids
            ]
            # Of several nobody can say which it is.
            if len(unknown_ids) != 1:
                return None
            if not rule["template"]:
                return str(unknown_ids[0])
        return self._filled(rule["template"], inputs)

    def _filled(self, template: str, inputs: Properties) -> str | None:
        """Return an id that follows from inputs; nothing where one of them is not known."""
        values = {**self.variables, **inputs}
        names = TEMPLATE_FIELD.findall(template)
        if not template or not all(
            isinstance(values.get(name), str) and values[name] for name in names
        ):
            return None
        return TEMPLATE_FIELD.sub(lambda field: values[field[1]], template)


@cache
def _id_rules() -> dict[str, table.TableRow]:
    columns = {
        "type": table.nonempty_text,
        "template": table.any_text,
        "lookup": table.any_text,
        "again": table.one_of("same", "refused", "double"),
        "note": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["type"]: row
        for row in table.load_rows("stacks", "import_ids.csv", columns)
    }
