"""plan --share: several services that share commitments and what is owned."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import click

from planner.cli import progress
from planner.cli.compose import own_catalog, spec_folder_reader
from planner.cli.parallel import results_in_order
from planner.render.portfolio import portfolio_page
from planner.units import SECONDS_PER_MINUTE
from planner.workload.portfolio import (
    SharingService,
    member_of,
    own_path,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.cli.planning import FoundPlan
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.render.page import Page

DAYS_PER_YEAR: Final = 365


def shared_plans(
    spec_files: Sequence[SpecFile],
    searches: Sequence[Callable[[], FoundPlan]],
    catalog: Catalog,
    options: PlanningOptions,
) -> tuple[list[Plan], Page]:
    """Return the plans of several specs, and the page of what they pay together."""
    with progress.waiting("looking for the cheapest fleets"):
        found = list(
            results_in_order(
                [
                    partial(_with_member, spec_file, search)
                    for spec_file, search in zip(
                        spec_files, searches, strict=True
                    )
                ]
            )
        )
    plans = [plan for plan, _ in found]
    members = [member for _, member in found if member is not None]
    portfolio = share(
        members,
        own_catalog(catalog, options.prices),
        partial(minutes_ahead, int(catalog.as_of[:4])),
    )
    left_out = [plan.workload.name for plan, member in found if member is None]
    return plans, portfolio_page(portfolio, left_out)


def warn_of_owned_twice(
    spec_files: Sequence[SpecFile], *, is_shared: bool
) -> None:
    """Say which specs name one file of what is owned: each plan counts on all of it.

    Where they are planned together, only those that allow the same commitments own it together.
    """
    named: defaultdict[str, list[SpecFile]] = defaultdict(list)
    for spec_file in spec_files:
        owned = spec_file.spec.buy.owned
        if owned is not None:
            named[own_path(_folder(spec_file), owned)].append(spec_file)
    for files in named.values():
        commits = {spec_file.spec.buy.commit for spec_file in files}
        if len(files) == 1 or (is_shared and len(commits) == 1):
            continue
        paths = [spec_file.path for spec_file in files]
        next_step = (
            "allow the same commitments in all of them"
            if is_shared
            else f"see what they cost together: tonnage plan --share {' '.join(paths)}"
        )
        click.echo(
            f"warning: {', '.join(paths)} own the same machines, and each plan counts on all of "
            f"them; {next_step}",
            err=True,
        )


@cache
def minutes_ahead(year: int, timezone: str) -> tuple[int, ...]:
    """Return the minutes by which a time zone is ahead of UTC at noon of each day of a year."""
    zone = ZoneInfo(timezone)
    first = datetime(year, 1, 1, 12, tzinfo=UTC)
    offsets = (
        (first + timedelta(days=day)).astimezone(zone).utcoffset()
        for day in range(DAYS_PER_YEAR)
    )
    return tuple(
        int((offset or timedelta()).total_seconds()) // SECONDS_PER_MINUTE
        for offset in offsets
    )


def _folder(spec_file: SpecFile) -> str:
    return str(Path(spec_file.path).resolve().parent)


def _with_member(
    spec_file: SpecFile, search: Callable[[], FoundPlan]
) -> tuple[Plan, SharingService | None]:
    # A solution does not leave its process: what it brings into the portfolio does.
    found = search()
    member = member_of(
        spec_file.spec,
        found.solution,
        spec_folder_reader(spec_file.path),
        _folder(spec_file),
    )
    return found.plan, member
