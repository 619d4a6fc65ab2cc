"""Whether clouds are reached from this machine, and how far its clock is from theirs."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final, NamedTuple

import requests

from planner.facts import table
from planner.facts.cloud import clouds

TIMEOUT_S: Final = 10.0


def clock_skew_s(cloud: str) -> float:
    """Return how many seconds this machine's clock is ahead of a cloud's. Raises OSError.

    Every answer has the time, also one that refuses: nobody is signed in. Proxies are those of the
    environment.
    """
    url = _reach()[cloud].url
    answer = requests.head(url, timeout=TIMEOUT_S, allow_redirects=True)
    date_text = answer.headers.get("Date")
    if date_text is None:
        raise OSError(f"{url} does not say what time it is")
    there = parsedate_to_datetime(date_text)
    return (datetime.now(UTC) - there).total_seconds()


def open_region(cloud: str) -> str:
    """Return a region in which every account may ask who it is."""
    return _reach()[cloud].region


def login_text(cloud: str) -> str:
    """Return how somebody signs in to a cloud."""
    return _reach()[cloud].login


def rights_form(cloud: str) -> str:
    """Return how a cloud writes rights down: as a policy, a role, or a definition of a role."""
    return _reach()[cloud].rights_form


class _Reach(NamedTuple):
    """An address that answers everybody, a region that is open to everybody, login and rights."""

    url: str
    region: str
    login: str
    rights_form: str


@cache
def _reach() -> dict[str, _Reach]:
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "url": table.nonempty_text,
        "region": table.nonempty_text,
        "login": table.nonempty_text,
        "rights_form": table.one_of("policy", "role", "definition"),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["cloud"]: _Reach(
            row["url"], row["region"], row["login"], row["rights_form"]
        )
        for row in table.load_rows("providers", "reach.csv", columns)
    }
