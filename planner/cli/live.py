"""plan --live: what an account may have, asked of its clouds or read from a file."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from planner.cli.compose import (
    cache_folder,
    own_live_catalog,
    read_file,
    solve_settings,
)
from planner.errors import Place, Problem, UsageError
from planner.facts.cloud import clouds
from planner.market.block import may_buy_block
from planner.market.live import LiveFacts
from planner.market.live_number import odd_numbers
from planner.units import HOURS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.market.offer import Catalog
    from planner.plan.change import LiveInputs, StandingMachines
    from planner.plan.status import StackStatus
    from planner.solve.solution import Solution
    from providers.live.kept import KeptAnswers
    from providers.live.place import LivePlace

# Clouds have so long to answer, all of them and all rounds together.
DEADLINE_S: Final = 20.0
# A round asks about the regions of the plan, and of so many that come next.
REGIONS_AT_ONCE: Final = 6


def read_facts(path: str) -> LiveFacts:
    """Return the facts of a file that --record wrote. Raises UsageError for another file."""
    file_bytes = read_file(
        path, begin="write one: tonnage plan SPEC --live --record FILE"
    )
    try:
        facts = msgspec.json.decode(file_bytes, type=LiveFacts)
    except msgspec.MsgspecError as error:
        raise _no_record(path, str(error)) from error
    for odd in odd_numbers(facts):
        raise _no_record(path, odd)
    return facts


def _no_record(path: str, cause: str) -> UsageError:
    """Return that a file is no record of answers, and why not."""
    return UsageError(
        Problem(
            code="live",
            message="is no record of what clouds answered",
            place=Place(path),
            cause=cause,
            next_step="write one: tonnage plan SPEC --live --record FILE",
        )
    )


def facts_text(facts: LiveFacts) -> str:
    """Return facts as the text of a file, the same for the same facts."""
    encoded = msgspec.json.format(
        msgspec.json.encode(facts, order="sorted"), indent=2
    )
    return encoded.decode() + "\n"


def asked_facts(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    inputs: LiveInputs,
) -> LiveFacts:
    """Return what the clouds answer about the regions that the plan of a spec depends on.

    A region that nobody has asked about is taken as the catalog has it, which allows at least what
    an account may have. So a plan whose regions are all asked is the cheapest that the account may
    have: those that were cheaper before have been asked, and refused. What an account has
    committed to makes a region cheaper, so those regions are asked first. So are those in which
    spot was cheap when its price was found, for it may be so still. `inputs` has what is known
    before, and the machines of the stack that stand.
    """
    from planner.market.spot_age import with_found_spot
    from planner.workload.fallback import find_fallbacks
    from planner.workload.solver import find, leaves_spot_open
    from providers.live.kept import KeptAnswers
    from providers.live.place import ask_chances, ask_places

    end_s = time.monotonic() + DEADLINE_S
    folder = cache_folder()
    kept = KeptAnswers(folder / "live") if folder is not None else None
    facts = _with_commitments(spec_file, catalog, inputs.facts, end_s, kept)
    takes_found = leaves_spot_open(spec_file.spec)
    while True:
        own = own_live_catalog(catalog, options, replace(inputs, facts=facts))
        settings = solve_settings(
            spec_file, with_found_spot(own) if takes_found else own, options
        )
        solution = find(spec_file.spec, settings)
        is_asked = not _open_regions(solution, facts, with_rivals=False)
        if is_asked and takes_found:
            takes_found = False
            continue
        if is_asked:
            fleets = [solution]
            if spec_file.spec.buy.fallback is not None:
                fleets += [
                    fallback.solution
                    for fallback in find_fallbacks(
                        spec_file.spec, settings, solution
                    )
                ]
            facts = ask_chances(
                _spot_machines(fleets),
                facts,
                max(0.0, end_s - time.monotonic()),
            )
            facts = _with_blocks(spec_file, catalog, solution, facts, end_s)
            # As a record of it is read, so that a replay gives the same bytes.
            return msgspec.json.decode(
                msgspec.json.encode(facts), type=LiveFacts
            )
        places = _places(
            _open_regions(solution, facts, with_rivals=True)[:REGIONS_AT_ONCE],
            catalog,
        )
        facts = ask_places(
            places, facts, max(0.0, end_s - time.monotonic()), kept
        )


def _with_blocks(
    spec_file: SpecFile,
    catalog: Catalog,
    solution: Solution,
    facts: LiveFacts,
    end_s: float,
) -> LiveFacts:
    """Return the facts with the capacity blocks that the run of a plan would fit in.

    They are asked about where the spec may buy one, and the catalog has had a price of one.
    """
    from planner.cost.capacity_block import BLOCK_PURCHASE, block_days
    from providers.live.place import LivePlace, ask_blocks

    run = solution.training_run
    if run is None or not may_buy_block(spec_file.spec):
        return facts
    sold = {
        offer.key[:2]
        for offer in catalog.unlisted
        if offer.purchase == BLOCK_PURCHASE
    }
    _, hours = run.hours_p50_p90
    for pool in solution.pools:
        cloud, machine_type = (
            pool.instance.provider,
            pool.instance.instance_type,
        )
        days = block_days(
            BLOCK_PURCHASE, cloud, pool.nodes, hours * SECONDS_PER_HOUR
        )
        if days is not None and (cloud, machine_type) in sold:
            facts = ask_blocks(
                LivePlace(cloud, pool.region, (machine_type,)),
                pool.nodes,
                days * HOURS_PER_DAY,
                facts,
                max(0.0, end_s - time.monotonic()),
            )
    return facts


def _with_commitments(
    spec_file: SpecFile,
    catalog: Catalog,
    facts: LiveFacts,
    end_s: float,
    kept: KeptAnswers | None,
) -> LiveFacts:
    """Return what clouds answer about the regions in which the account has commitments."""
    from planner.market.owned import counts_commitments
    from providers.live.place import ask_commitment_regions, ask_places

    if not counts_commitments(spec_file.spec):
        return facts
    facts = ask_commitment_regions(
        _allowed_regions(spec_file, catalog),
        facts,
        max(0.0, end_s - time.monotonic()),
    )
    regions = [
        (cloud, region)
        for cloud, answer in facts.commitment_regions.items()
        for region in answer.value or ()
        if facts.place(cloud, region) is None
    ]
    return ask_places(
        _places(regions, catalog),
        facts,
        max(0.0, end_s - time.monotonic()),
        kept,
    )


def _allowed_regions(
    spec_file: SpecFile, catalog: Catalog
) -> dict[str, list[str]]:
    """Return the regions of real clouds that a spec allows, by cloud."""
    where = spec_file.spec.where
    regions: dict[str, set[str]] = {}
    for offer in catalog.offers:
        is_allowed = not where.regions or any(
            fnmatchcase(offer.region, pattern) for pattern in where.regions
        )
        if (
            offer.provider in clouds()
            and offer.provider in where.clouds
            and is_allowed
        ):
            regions.setdefault(offer.provider, set()).add(offer.region)
    return {cloud: sorted(names) for cloud, names in sorted(regions.items())}


def _open_regions(
    solution: Solution, facts: LiveFacts, *, with_rivals: bool
) -> list[tuple[str, str]]:
    """Return the regions of a plan, and of the fleets that come next, that nobody has asked about.

    Small clouds are not asked: nothing is built there.
    """
    regions = [(pool.instance.provider, pool.region) for pool in solution.pools]
    if with_rivals:
        regions += [
            (rival.offer.provider, rival.offer.region)
            for rival in solution.alternatives
        ]
    return [
        (cloud, region)
        for cloud, region in dict.fromkeys(regions)
        if cloud in clouds() and facts.place(cloud, region) is None
    ]


def _spot_machines(
    fleets: Iterable[Solution],
) -> list[tuple[LivePlace, int]]:
    """Return the machines on spot of a plan and its fallbacks, as places with one machine type.

    They are those of all pools of a fleet; the same ones are asked about once.
    """
    from providers.live.place import LivePlace

    wanted = []
    for fleet in fleets:
        for pool in fleet.pools:
            nodes = sum(
                part.nodes for part in pool.purchases if part.purchase == "spot"
            )
            if nodes and pool.instance.provider in clouds():
                types = (pool.instance.instance_type,)
                place = LivePlace(pool.instance.provider, pool.region, types)
                wanted.append((place, nodes))
    return list(dict.fromkeys(wanted))


def _places(
    regions: list[tuple[str, str]], catalog: Catalog
) -> list[LivePlace]:
    """Return regions with the machine types that the catalog has in them."""
    from providers.live.place import LivePlace

    return [
        LivePlace(
            cloud,
            region,
            tuple(
                sorted(
                    {
                        offer.instance.instance_type
                        for offer in catalog.offers
                        if (offer.provider, offer.region) == (cloud, region)
                    }
                )
            ),
        )
        for cloud, region in regions
    ]


def live_inputs(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    status: StackStatus | None,
    known: LiveInputs | None = None,
) -> LiveInputs | None:
    """Return what the account may have, asked or read from a file; None where nobody asks.

    `known` is what was answered before, and what other stacks leave of it.
    """
    from planner.plan.change import LiveInputs

    if not options.replay and not options.is_live:
        return None
    if known is None:
        facts = read_facts(options.replay) if options.replay else LiveFacts()
        known = LiveInputs(facts=facts)
    inputs = replace(known, standing=_standing_machines(status))
    if options.replay:
        return inputs
    return replace(
        inputs,
        facts=asked_facts(spec_file, catalog, options, inputs),
    )


def _standing_machines(
    status: StackStatus | None,
) -> tuple[StandingMachines, ...]:
    """Return the machines of a stack that stands."""
    from planner.plan.change import StandingMachines
    from planner.plan.pool import OfferRef

    if status is None or status.facts is None:
        return ()
    return tuple(
        StandingMachines(
            offer=OfferRef(
                provider=pool.provider,
                region=pool.region,
                instance_type=pool.instance_type,
                purchase=part.purchase,
            ),
            nodes=part.nodes,
        )
        for pool in status.facts.pools
        for part in pool.purchases
    )
