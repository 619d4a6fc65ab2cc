"""Linear programs in which each variable is 0 or 1, solved by HiGHS to proven optimality.

One thread and one seed: equal programs have equal answers. Nothing is printed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import highspy
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where the search ends without a proof, in nodes: seconds would differ from machine to machine.
MOST_NODES: Final = 20_000
OPTIONS: Final[dict[str, float | str]] = {
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    # The default takes what is a ten-thousandth dearer for the cheapest.
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
}
ProgramStatus: TypeAlias = highspy.HighsModelStatus
INFEASIBLE: Final = (
    ProgramStatus.kInfeasible,
    # Nothing that is 0 or 1 is unbounded.
    ProgramStatus.kUnboundedOrInfeasible,
)


class ProgramRow(Struct, frozen=True):
    """least <= sum of coefficients * variables <= most; coefficients by the variable."""

    coefficients: Mapping[int, float]
    least: float = -math.inf
    most: float = math.inf


class ProgramAnswer(Struct, frozen=True):
    """What is known of the least cost.

    ones        variables that are 1; None where no solution was found
    bound       no solution costs less; infinite where there is none
    is_optimal  whether the one that was found costs the least
    """

    ones: frozenset[int] | None
    bound: float
    is_optimal: bool


class _SilentHighs(highspy.Highs):
    """HiGHS, which greets on standard output before anybody can ask it not to."""

    def enableCallbacks(self) -> None:  # noqa: N802 - as the library names it
        """Silence it first: the constructor comes here, and here the greeting is written."""
        self.silent()
        super().enableCallbacks()


def minimize(
    costs: Sequence[float],
    rows: Sequence[ProgramRow],
    most_nodes: int = MOST_NODES,
) -> ProgramAnswer:
    """Return the variables that are 1 where all rows hold and the sum of their costs is least.

    The search ends after so many nodes; then it says how low another solution could be.
    """
    highs = _SilentHighs()
    for name, value in OPTIONS.items():
        highs.setOptionValue(name, value)
    highs.setOptionValue("mip_max_nodes", most_nodes)
    highs.passModel(_program(costs, rows))
    highs.run()
    status = highs.getModelStatus()
    if status in INFEASIBLE:
        return ProgramAnswer(None, math.inf, is_optimal=False)
    info = highs.getInfo()
    if info.primal_solution_status != highspy.kSolutionStatusFeasible:
        return ProgramAnswer(None, info.mip_dual_bound, is_optimal=False)
    return ProgramAnswer(
        frozenset(
            number
            for number, part in enumerate(highs.getSolution().col_value)
            if round(part)
        ),
        info.mip_dual_bound,
        is_optimal=status == ProgramStatus.kOptimal,
    )


def _program(
    costs: Sequence[float], rows: Sequence[ProgramRow]
) -> highspy.HighsLp:
    """Return a program as HiGHS takes it: its matrix row by row."""
    program = highspy.HighsLp()
    program.num_col_ = len(costs)
    program.num_row_ = len(rows)
    program.col_cost_ = [*costs]
    program.col_lower_ = [0.0] * len(costs)
    program.col_upper_ = [1.0] * len(costs)
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(costs)
    program.row_lower_ = [row.least for row in rows]
    program.row_upper_ = [row.most for row in rows]
    starts, indices, coefficients = [0], [], []
    for row in rows:
        indices += [*row.coefficients]
        coefficients += [*row.coefficients.values()]
        starts.append(len(indices))
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = starts
    program.a_matrix_.index_ = indices
    program.a_matrix_.value_ = coefficients
    return program
