"""What differs between code hosts and is a fact: addresses, limits, and what they show."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import urlsplit

from msgspec import Struct

from planner.facts import table

MOST_CHARACTERS = 10**7
MOST_PAUSE_S = 3600


class ForgeHost(Struct, frozen=True, kw_only=True):
    """A service that has pull requests.

    service          names it alone; `forge` is what a user calls it
    api              address of its API; empty where each organization has its own
    api_end          with which the address of its API ends
    repository_form  how a repository is written, and in words `repository_hint`
    number_mark      between a repository and the number of a request
    characters       a comment has at most, in UTF-16 units
    has_html         whether comments may contain HTML
    quiet_pause_s    to wait when it is asked too often and does not say how long
    """

    service: str
    forge: str
    api: str
    api_end: str
    repository_form: re.Pattern[str]
    repository_hint: str
    number_mark: str
    characters: int
    has_html: bool
    quiet_pause_s: int

    def request_text(self, repository: str, request: int) -> str:
        """Return a request as its code host writes it: OWNER/NAME#12."""
        return f"{repository}{self.number_mark}{request}"


@cache
def forge_hosts() -> tuple[ForgeHost, ...]:
    """Return all services, those of the same forge beside each other."""
    columns: table.Columns = {
        "service": table.nonempty_text,
        "forge": table.nonempty_text,
        "api": table.any_text,
        "api_end": table.any_text,
        "repository_form": pattern_cell,
        "repository_hint": table.nonempty_text,
        "number_mark": table.nonempty_text,
        "characters": table.integer_between(1000, MOST_CHARACTERS),
        "html": table.yes_or_no,
        "quiet_pause_s": table.integer_between(0, MOST_PAUSE_S),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        ForgeHost(
            service=row["service"],
            forge=row["forge"],
            api=row["api"],
            api_end=row["api_end"],
            repository_form=row["repository_form"],
            repository_hint=row["repository_hint"],
            number_mark=row["number_mark"],
            characters=row["characters"],
            has_html=row["html"],
            quiet_pause_s=row["quiet_pause_s"],
        )
        for row in table.load_rows("providers", "forges.csv", columns)
    )


def pattern_cell(cell: str) -> re.Pattern[str]:
    """Return the regular expression of a cell."""
    try:
        return re.compile(cell)
    except re.error as error:
        raise ValueError(f"is no pattern: {error}") from error


def forge_names() -> tuple[str, ...]:
    """Return what users call the code hosts, each once."""
    return tuple(dict.fromkeys(host.forge for host in forge_hosts()))


def host_of(forge: str, api: str) -> ForgeHost:
    """Return the service at an address: of two, the one whose ending it has, else the last."""
    hosts = [host for host in forge_hosts() if host.forge == forge]
    for host in hosts[:-1]:
        if api.rstrip("/").endswith(host.api_end):
            return host
    return hosts[-1]


def default_api(forge: str) -> str:
    """Return the address that most repositories are at; empty where there is none."""
    return next(host.api for host in forge_hosts() if host.forge == forge)


def whole_api(host: ForgeHost, api: str) -> str:
    """Return the address of an API without a slash at its end, complete if it was not.

    An instance may be below a path: https://example.com/gitlab is one of GitLab.
    """
    address = api.rstrip("/")
    path = urlsplit(address).path
    if host.api_end in path or "/api" in path:
        return address
    return address + host.api_end


@cache
def summary_sizes() -> dict[str, int]:
    """Return the variables that name a file which a job shows, with its bytes at most."""
    columns: table.Columns = {
        "variable": table.nonempty_text,
        "bytes": table.integer_between(1000, 2**30),
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("providers", "forge_summaries.csv", columns)
    return {row["variable"]: row["bytes"] for row in rows}
