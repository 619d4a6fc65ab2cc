"""Private endpoints: how machines reach services of their cloud without the internet.

An endpoint with interfaces is paid for by the hour in each zone, and by the gigabyte. One of a
subnet costs nothing, and what a whole network has is there without being asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

EndpointForm: TypeAlias = Literal["interface", "network", "subnet"]
EndpointNeed: TypeAlias = Literal["always", "disks", "files", "logs", "secrets"]
FORMS: Final = get_args(EndpointForm)
NEEDS: Final = get_args(EndpointNeed)
# What machines tell: of all that they send to services of their cloud, a bill counts this.
LOGS: Final[frozenset[EndpointNeed]] = frozenset({"logs"})


def endpoint_services(
    cloud: str, form: EndpointForm, needs: AbstractSet[EndpointNeed]
) -> tuple[str, ...]:
    """Return the services of data/endpoints.csv that machines with some needs reach privately.

    Without a need there are none.
    """
    return tuple(
        row["service"]
        for row in _endpoint_rows().get((cloud, form), ())
        if row["need"] in needs
    )


@cache
def _endpoint_rows() -> dict[tuple[str, str], list[table.TableRow]]:
    """Rows by their cloud and form."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "service": table.nonempty_text,
        "form": table.one_of(*FORMS),
        "need": table.one_of(*NEEDS),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows: dict[tuple[str, str], list[table.TableRow]] = {}
    for row in table.load_rows("planner.facts", "endpoints.csv", columns):
        rows.setdefault((row["cloud"], row["form"]), []).append(row)
    return rows
