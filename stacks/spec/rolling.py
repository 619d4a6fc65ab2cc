"""How a new template reaches running machines: which go at a time, and which come before."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds

# How a spec says that the old machines go first.
RECREATE: Final = "recreate"
# How it says that each new template gets a fleet of its own.
BLUE_GREEN: Final = "blue-green"
# What machines do, as far as a roll minds: a service may not end; those that work together begin
# as one.
Work: TypeAlias = Literal["service", "together", "other"]


class RollingRule(Struct, frozen=True, kw_only=True):
    """How a cloud brings a new template to the machines of a group.

    properties     of a group, which hold its template
    share_at_once  of the machines that are away at a time, rounded down
    nodes_at_once  that are away at least
    surge_nodes    that come before others go
    """

    properties: tuple[str, ...]
    share_at_once: float
    nodes_at_once: int
    surge_nodes: int

    def nodes_away(self, nodes: int) -> int:
        """Return how many machines of a group are away at a time."""
        return min(
            nodes, max(self.nodes_at_once, int(nodes * self.share_at_once))
        )


def work_of(role: str, *, spans_nodes: bool, recreates: bool) -> Work:
    """Return what machines do. Spare machines of a job begin with it."""
    if role == "train" or spans_nodes or recreates:
        return "together"
    return "service" if role == "serve" else "other"


def rolling_rule(cloud: str, work: Work) -> RollingRule | None:
    """Return how a cloud rolls machines; nothing where it makes their group anew instead."""
    return _rolling_rules().get((cloud, work))


@cache
def _rolling_rules() -> dict[tuple[str, str], RollingRule]:
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "work": table.one_of("service", "together", "other"),
        "properties": lambda cell: tuple(cell.split("|")),
        "share_at_once": table.real_between(0, 1),
        "nodes_at_once": table.integer_between(0, 1000),
        "surge_nodes": table.integer_between(0, 1000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        (row["cloud"], row["work"]): RollingRule(
            properties=row["properties"],
            share_at_once=row["share_at_once"],
            nodes_at_once=row["nodes_at_once"],
            surge_nodes=row["surge_nodes"],
        )
        for row in table.load_rows("stacks", "rolling.csv", columns)
    }
