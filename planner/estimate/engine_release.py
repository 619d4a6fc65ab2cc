"""How old a release of an engine is, and what it runs when its row does not say.

Releases are facts with a date (data/releases.csv). One that is not listed is the nearest earlier
release of its engine: it is no newer than what came before the next one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.perf.common.release import release_key

if TYPE_CHECKING:
    from planner.perf.common.release import ReleaseKey

DATE_PATTERN: Final = re.compile(r"(20\d\d)-(\d\d)-(\d\d)")
MONTHS: Final = 12
DAYS: Final = 365
# The engine builds of TensorRT-LLM are of the same releases.
SAME_RELEASES: Final = {"trtllm-cpp": "trtllm"}


class EngineRelease(Struct, frozen=True, kw_only=True):
    """One release of an engine.

    year     when it was published, in years with fraction
    backend  the runtime that it takes by itself, of engines that have several; else empty
    """

    year: float
    backend: str


def find_release(
    engine_name: str, version: str, dated_year: float | None
) -> EngineRelease | None:
    """Return the release that a version is, or the nearest earlier one that is listed.

    `dated_year` is when the engine ran, if that is stated. It counts where releases say nothing:
    before the first one that is listed, and after the last. None for an engine without releases.
    """
    releases = _releases().get(SAME_RELEASES.get(engine_name, engine_name))
    if releases is None:
        return None
    keys, listed = releases
    place = bisect_right(keys, release_key(version)) - 1
    nearest = listed[max(place, 0)]
    if dated_year is None:
        return nearest
    if place < 0:
        first_year = min(nearest.year, dated_year)
        return EngineRelease(year=first_year, backend=nearest.backend)
    if place == len(keys) - 1 and keys[place] != release_key(version):
        last_year = max(nearest.year, dated_year)
        return EngineRelease(year=last_year, backend=nearest.backend)
    return nearest


@cache
def _releases() -> dict[str, tuple[list[ReleaseKey], list[EngineRelease]]]:
    """Return the releases of each engine with their keys, the earliest version first."""
    column_types = {
        "engine": table.nonempty_text,
        "version": table.nonempty_text,
        "released": _date_year,
        "backend": table.one_of("", "pytorch", "cpp"),
        **table.SOURCE_COLUMNS,
    }
    keyed: dict[str, dict[ReleaseKey, EngineRelease]] = {}
    for release_row in table.load_rows(
        "planner.estimate", "releases.csv", column_types
    ):
        release = EngineRelease(
            year=release_row["released"], backend=release_row["backend"]
        )
        of_engine = keyed.setdefault(release_row["engine"], {})
        of_engine[release_key(release_row["version"])] = release
    return {
        engine_name: (
            sorted(of_engine),
            [of_engine[key] for key in sorted(of_engine)],
        )
        for engine_name, of_engine in keyed.items()
    }


def _date_year(cell: str) -> float:
    """Convert 2026-01-20 to years with a fraction, as dates of rows count them by month."""
    date_match = DATE_PATTERN.fullmatch(cell)
    if not date_match:
        raise ValueError("is no date such as 2026-01-20")
    year, month, day = (int(number) for number in date_match.groups())
    return year + (month - 1) / MONTHS + (day - 1) / DAYS
