"""The words on whether limits are met: the same on a plan, in a difference, and in a list.

A plan is chosen because it meets its limits. Where the simulation calls it undecided, each
percentile was measured within its limit, but so near that other requests may not confirm it:
that is a remark, and the limits are met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.sentence import SENTENCES

if TYPE_CHECKING:
    from planner.plan.part import Number

CLOSE: Final = "close to a limit"
# What a plan warns of then, in full.
CLOSE_SENTENCE: Final = SENTENCES["edge"]


def confidence_text(confidence: Number) -> str:
    """Return that limits are met, and with what confidence, a share."""
    return f"meets its limits with {figures.percentage(confidence)} confidence"


def is_close(verdict: str | None) -> bool:
    """Whether a verdict of the simulation leaves the remark that a limit is near."""
    return verdict == "undecided"


def simulation_text(verdict: str) -> str:
    """Return that a simulation met the limits, with the remark where one is near."""
    return f"simulated, {CLOSE}" if is_close(verdict) else "simulated"
