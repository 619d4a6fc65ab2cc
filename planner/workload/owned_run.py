"""What ends, on machines of one's own: the hours that it takes there, and what they cost. Pure."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.market.offer import QuotaNodes
from planner.units import HOURS_PER_MONTH
from planner.workload.ownership import YEARS, placed_on, same_machine
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.on_premises import DataCenter, OwnMachine
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
    from planner.spec.model import Spec


class OwnedRun(Struct, frozen=True, kw_only=True):
    """A run on one kind of own machines; money in USD.

    machine      the kind, and `nodes` of them that work together
    as_type      machine type of a cloud that has the same accelerators, by which it is sized
    node_hours   of the run, of all nodes together
    run_usd      share of what the nodes cost in a month, by the years of use
    planned_usd  the same over the years that the file says
    energy_usd   electricity of the run alone: what it adds where the machines stand anyway
    even_runs    such runs a month from which the nodes cost no more than the plan does for each;
                 None: more than a month has hours for
    """

    machine: OwnMachine
    nodes: int
    as_type: str
    node_hours: Decimal
    run_usd: dict[int, Decimal]
    planned_usd: Decimal
    energy_usd: Decimal
    even_runs: int | None


def own_run(
    spec: Spec, settings: SolveSettings, center: DataCenter, cloud_usd: Decimal
) -> Iterator[OwnedRun]:
    """Yield each kind of own machines on which a run can be done.

    It is sized as on a machine of a cloud with the same accelerators, on no more machines than
    there are if it can be. `cloud_usd` is what the plan costs. Raises SpecError for a kind that no
    cloud has.
    """
    for machine in center.machines:
        offer = same_machine(machine, settings)
        owned = QuotaNodes(
            purchase=offer.purchase, nodes=machine.nodes, quota=machine.name
        )
        within = replace(offer, quotas=(owned,))
        for tried in (within, offer):
            solution = find(*placed_on(spec, settings, tried))
            if solution.pools:
                as_type = offer.instance.instance_type
                yield _owned_run(center, machine, as_type, solution, cloud_usd)
                break


def _owned_run(
    center: DataCenter,
    machine: OwnMachine,
    as_type: str,
    solution: Solution,
    cloud_usd: Decimal,
) -> OwnedRun:
    """Return the run of a solution on such machines.

    share   = node-hours / 730 * what one machine costs a month
    energy  = node-hours * power * PUE * price of electricity
    runs    = ceil(nodes * a month of one / what the plan costs), at most 730 * nodes / node-hours
    """
    nodes = sum(pool.nodes for pool in solution.pools)
    node_hours = _node_hours(solution)
    months = node_hours / HOURS_PER_MONTH
    month_usd = center.month_usd(machine, center.value_of("years"))
    most_runs = HOURS_PER_MONTH * nodes / node_hours
    even_runs = math.ceil(nodes * month_usd / cloud_usd)
    return OwnedRun(
        machine=machine,
        nodes=nodes,
        as_type=as_type,
        node_hours=node_hours,
        run_usd={
            years: months * center.month_usd(machine, Decimal(years))
            for years in YEARS
        },
        planned_usd=months * month_usd,
        energy_usd=node_hours
        * machine.power
        * center.value_of("pue")
        * center.value_of("electricity"),
        even_runs=even_runs if even_runs <= most_runs else None,
    )


def _node_hours(solution: Solution) -> Decimal:
    """Return the hours of all machines that a bill has."""
    bill = solution.bill
    lines = bill.lines if bill is not None else ()
    return sum(
        (line.quantity for line in lines if line.kind == MACHINE_KIND),
        Decimal(0),
    )
