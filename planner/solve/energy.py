"""The energy of what a solution buys."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.energy import PoweredMachine, machine_energy, sum_energy

if TYPE_CHECKING:
    from planner.cost.energy import Energy
    from planner.solve.solution import SizedPool, Solution


def solution_energy(solution: Solution) -> Energy | None:
    """Energy of all pools in the hours that their machines are paid for.

    Nothing when there is no pool, or when the power of one of them is not known.
    """
    pool_energies = []
    for pool in solution.pools:
        instance = pool.instance
        powered_machine = PoweredMachine(
            provider=instance.provider,
            region=pool.region,
            chip=instance.chip,
            board_count=instance.accelerators * instance.fraction,
            role=pool.role,
        )
        pool_energy = machine_energy(
            powered_machine, pool.nodes, _node_hours(solution, pool)
        )
        if pool_energy is None:
            return None
        pool_energies.append(pool_energy)
    return sum_energy(pool_energies) if pool_energies else None


def _node_hours(solution: Solution, pool: SizedPool) -> Decimal:
    """Return the hours that the machines of a pool are paid for.

    A capacity block is one line without hours; its machines work for as long as the run.
    """
    lines = [
        line
        for line in (solution.bill.lines if solution.bill else ())
        if line.pool == pool.name and line.unit == "node-hour"
    ]
    if not lines and solution.training_run is not None:
        run_hours = solution.training_run.hours_p50_p90[0]
        return pool.nodes * Decimal(str(run_hours))
    return sum((line.quantity for line in lines), Decimal(0))
