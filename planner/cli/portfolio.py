"""plan --share: several services that share commitments and what is owned."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import click
from msgspec.structs import replace

from planner.cli import option, progress
from planner.cli.compose import own_live_catalog, solve_settings
from planner.cli.parallel import results_in_order
from planner.cli.shared_move import (
    MoveSearch,
    SharingSpec,
    moved_together,
)
from planner.cli.shared_quota import (
    QuotaSharing,
    SharedPlan,
    joint_inputs,
    remedy,
    shared_plan,
)
from planner.plan.portfolio import NOT_MOVED, portfolio_document
from planner.solve.settings import Memory
from planner.spec.model import Inference
from planner.units import SECONDS_PER_MINUTE
from planner.workload.one_fleet import ApartService, one_fleets
from planner.workload.portfolio import share
from planner.workload.sharing import own_path
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.cli.option import OptionValues
    from planner.cli.planning import FoundPlan
    from planner.market.offer import Catalog
    from planner.plan.change import LiveInputs
    from planner.plan.portfolio_document import PortfolioDocument
    from planner.plan.types import Plan
    from planner.solve.solution import Solution
    from planner.workload.sharing import MinutesAhead, SharingService
from planner.workload.one_fleet import OneFleet

DAYS_PER_YEAR: Final = 365


def shared_plans(
    spec_files: Sequence[SpecFile],
    searches: Sequence[Callable[[], FoundPlan]],
    catalog: Catalog,
    options: PlanningOptions,
) -> tuple[list[Plan], PortfolioDocument]:
    """Return the plans of several specs, and the document of what they pay together."""
    ahead = partial(minutes_ahead, int(catalog.as_of[:4]))
    with progress.waiting("looking for the cheapest fleets"):
        found = list(
            results_in_order(
                [
                    partial(shared_plan, spec_file, _folder(spec_file), search)
                    for spec_file, search in zip(
                        spec_files, searches, strict=True
                    )
                ]
            )
        )
        quota_sharing = QuotaSharing(
            found,
            partial(
                _plan_again,
                spec_files=spec_files,
                catalog=catalog,
                options=options,
                memory=Memory(),
            ),
        )
        found, chosen = quota_sharing.together(ahead)
    shared_catalog = own_live_catalog(
        catalog, options, joint_inputs(found, quota_sharing.facts)
    )
    moved, moves = dict[str, SharedPlan](), NOT_MOVED
    # Quotas of an account are kept by the fleets that were chosen within them.
    if chosen is None:
        moved, moves = moved_together(
            [
                SharingSpec(
                    spec_file, _folder(spec_file), shared.plan, shared.member
                )
                for spec_file, shared in zip(spec_files, found, strict=True)
                if shared.member is not None
            ],
            MoveSearch(catalog, options),
            partial(_together_usd, shared_catalog, ahead),
        )
    bought = [moved.get(shared.plan.workload.name, shared) for shared in found]
    members = [shared.member for shared in bought if shared.member is not None]
    plans = [shared.plan for shared in bought]
    document = portfolio_document(
        plans,
        share(members, shared_catalog, ahead),
        chosen=chosen,
        remedy=partial(remedy, facts=quota_sharing.facts),
        one_fleets=_one_fleets(
            spec_files, [shared.plan for shared in found], catalog, options
        ),
        moves=moves,
    )
    return plans, document


def _together_usd(
    catalog: Catalog, ahead: MinutesAhead, members: Sequence[SharingService]
) -> Decimal:
    """Return what services pay together, USD a month."""
    bills = share(members, catalog, ahead).bills
    return sum((bill.shared_usd for bill in bills), Decimal(0))


def _one_fleets(
    spec_files: Sequence[SpecFile],
    plans: Sequence[Plan],
    catalog: Catalog,
    options: PlanningOptions,
) -> tuple[OneFleet, ...]:
    """Return which services would cost less on the same accelerators, each billed by the month."""
    services = [
        ApartService(
            spec=spec_file.spec,
            file_bytes=spec_file.file_bytes,
            usd=plan.cost.total,
            busy_accelerators=_busy_accelerators(plan),
            read_file=spec_file.folder_reader(),
        )
        for spec_file, plan in zip(spec_files, plans, strict=True)
        if isinstance(spec_file.spec, Inference)
        # A key that is said elsewhere is not in the file that a host would name.
        and not spec_file.overrides
        # Each bill alone counts on all that is owned.
        and spec_file.spec.buy.owned is None
        and plan.is_feasible
        and plan.cost.period == "month"
        and not plan.is_compared_only
    ]
    memory = Memory()

    def answer(spec: Inference, read_file: Callable[[str], bytes]) -> Solution:
        settings = solve_settings(
            replace(spec_files[0], spec=spec), catalog, options, memory=memory
        )
        return find(
            spec,
            replace(settings, read_file=read_file, alternative_count=0),
        )

    with progress.waiting("looking for services that share accelerators"):
        return tuple(one_fleets(services, answer))


def _busy_accelerators(plan: Plan) -> float:
    """Return how many accelerators a service keeps busy at its peak: a share of all it has."""
    busy = plan.solution.predicted.get("busy_fraction")
    accelerators = sum(
        pool.nodes * pool.accelerators_per_node for pool in plan.solution.pools
    )
    return accelerators * (1.0 if busy is None else busy.value)


def write_portfolio(
    document: PortfolioDocument, option_values: OptionValues
) -> None:
    """Write what services pay together in the format of a command; -o saves the document."""
    output_format, output_path = (
        option_values["format"],
        option_values["output"],
    )
    if output_path or output_format == "json":
        from planner.plan.portfolio_document import dump_portfolio

        option.write_output(dump_portfolio(document), output_path)
    if output_format == "json":
        return
    if output_format == "html":
        from planner.render.html.sharing import sharing_report

        option.write_output(sharing_report(document))
        return
    from planner.render.portfolio import portfolio_page

    option.print_page(
        portfolio_page(document), output_format, option_values["color"]
    )


def _plan_again(
    number: int,
    known: LiveInputs,
    *,
    spec_files: Sequence[SpecFile],
    catalog: Catalog,
    options: PlanningOptions,
    memory: Memory,
) -> SharedPlan:
    """Plan a spec again within what others leave of the quotas of an account."""
    from planner.cli.planning import find_plan

    spec_file = spec_files[number]
    return shared_plan(
        spec_file,
        _folder(spec_file),
        partial(find_plan, spec_file, catalog, options, memory, known=known),
    )


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
