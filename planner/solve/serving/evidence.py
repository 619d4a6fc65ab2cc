"""On what the prediction of a service rests, where nothing of its accelerator is in the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.perf.serving.error_band import measured_scope, rows_apart
from planner.solve.cause import because
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.accelerator import Accelerator


def evidence_warnings(accelerator: Accelerator) -> Iterator[PlanWarning]:
    """Yield how many measurements there are of an accelerator of which no fit has one.

    Of most accelerators the fit has rows of the architecture, so that nothing is to be said.
    """
    rows = rows_apart(accelerator)
    if rows:
        reason = because(
            "rows-apart", accelerator=accelerator.accelerator, rows=rows
        )
        yield PlanWarning(code="measurements", reason=reason)
    elif ("architecture", accelerator.architecture) not in measured_scope():
        reason = because("no-rows", accelerator=accelerator.accelerator)
        yield PlanWarning(code="measurements", reason=reason)
