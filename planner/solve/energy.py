"""The energy of what a solution buys."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.energy import PoweredMachine, machine_energy, sum_energy

if TYPE_CHECKING:
    from planner.cost.energy import Energy
    from planner.solve.solution import Solution


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
        paid_hours = sum(
            bill_line.quantity
            for bill_line in (solution.bill.lines if solution.bill else ())
            if bill_line.pool == pool.name
        )
        pool_energy = machine_energy(
            powered_machine, pool.nodes, Decimal(paid_hours)
        )
        if pool_energy is None:
            return None
        pool_energies.append(pool_energy)
    return sum_energy(pool_energies) if pool_energies else None
