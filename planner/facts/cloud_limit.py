"""What a cloud refuses to build: limits of its services, and time zones that it has no name for.

The search asks before it takes a fleet, and the stack of a cloud checks the same rows.
"""

from __future__ import annotations

from functools import cache

from planner.facts import table


@cache
def _limits() -> dict[tuple[str, str], int]:
    columns = {
        "cloud": table.nonempty_text,
        "limit": table.nonempty_text,
        "value": table.integer_between(0, 1_000_000),
        "unit": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.rows_by_key(
        table.load_rows("planner.facts", "cloud_limits.csv", columns),
        "cloud",
        "limit",
    )
    return {
        (cloud, limit): limit_row["value"]
        for (cloud, limit), limit_row in rows.items()
    }


def cloud_limit(cloud: str, limit: str) -> int | None:
    """Return a limit of data/cloud_limits.csv in the unit of its row, None without such a row."""
    return _limits().get((cloud, limit))


@cache
def _timezones() -> dict[str, dict[str, str]]:
    columns = {
        "cloud": table.nonempty_text,
        "timezone": table.nonempty_text,
        "name": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    names: dict[str, dict[str, str]] = {}
    for zone_row in table.load_rows("planner.facts", "timezones.csv", columns):
        cloud_names = names.setdefault(zone_row["cloud"], {})
        cloud_names[zone_row["timezone"]] = zone_row["name"]
    return names


def timezone_names(cloud: str) -> tuple[str, ...]:
    """Return the time zones that a cloud has names of its own for, by their names of IANA."""
    return tuple(_timezones().get(cloud, ()))


def timezone_name(cloud: str, timezone: str) -> str | None:
    """Return what a cloud calls a time zone, None when it has no name for it.

    A cloud without rows in data/timezones.csv takes the names of IANA.
    """
    cloud_names = _timezones().get(cloud)
    return timezone if cloud_names is None else cloud_names.get(timezone)
