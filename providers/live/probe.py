"""What is asked of real clouds, as rows: by which function, how often, and with which rights."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Iterable

# The one that changes an account: it is called when somebody has confirmed it.
CHANGING_FUNCTION = "request_quota"
ANY = "*"
MODULES = (
    "account",
    "market",
    "commitment",
    "running",
    "profile",
    "term_price",
)


class Probe(Struct, frozen=True, kw_only=True):
    """A question to a cloud.

    `module`, `function`  of `providers.<cloud>`, which asks it
    `what`    it is about, in words
    `rights`  that it takes; none where everybody may ask
    `asked`   how often, in words
    """

    cloud: str
    module: str
    function: str
    what: str
    rights: tuple[str, ...]
    asked: str

    @property
    def changes(self) -> bool:
        """Whether it changes the account."""
        return self.function == CHANGING_FUNCTION


@cache
def probes() -> tuple[Probe, ...]:
    """Return all questions to all clouds."""
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "module": table.one_of(*MODULES),
        "function": table.nonempty_text,
        "what": table.nonempty_text,
        "right": lambda cell: tuple(cell.split()),
        "asked": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        Probe(
            cloud=row["cloud"],
            module=row["module"],
            function=row["function"],
            what=row["what"],
            rights=row["right"],
            asked=row["asked"],
        )
        for row in table.load_rows("providers", "probes.csv", columns)
    )


def rights_by_resource(rights: Iterable[str]) -> dict[str, list[str]]:
    """Return rights by what they are granted on: most on all that there is, which is *."""
    grouped: dict[str, list[str]] = {}
    for right in rights:
        grouped.setdefault(_resources().get(right, ANY), []).append(right)
    return grouped


@cache
def _resources() -> dict[str, str]:
    columns: table.Columns = {
        "right": table.nonempty_text,
        "resource": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["right"]: row["resource"]
        for row in table.load_rows("providers", "right_resources.csv", columns)
    }


def reading_rights(asked: Iterable[Probe]) -> tuple[str, ...]:
    """Return the rights of questions that change nothing, sorted, each once."""
    return tuple(
        sorted(
            {
                right
                for probe in asked
                if not probe.changes
                for right in probe.rights
            }
        )
    )
