"""The words for what a cost is for: a month, the run of a job, or the life that a ttl gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.plan.types import Period

# After an amount. A run and a life have a total, not an amount for each time.
SUFFIXES: Final[dict[Period, str]] = {"month": "/mo", "run": "", "life": ""}
# Over a column of amounts.
TITLES: Final[dict[Period, str]] = {
    "month": ">$/mo",
    "run": ">USD",
    "life": ">USD",
}
# After an amount among those of other periods, which are never added to it.
UNITS: Final[dict[Period, str]] = {
    "month": "/mo",
    "run": "/run",
    "life": "/life",
}
# In a sentence after an amount, and over the amounts of a comparison.
RATES: Final[dict[Period, str]] = {"month": " a month", "run": "", "life": ""}
AMOUNTS: Final[dict[Period, str]] = {
    "month": "USD a month",
    "run": "USD of a run",
    "life": "USD of a life",
}
# In a sentence: the cost of ..., kWh in ...
NAMES: Final[dict[Period, str]] = {
    "month": "a month",
    "run": "the run",
    "life": "its life",
}
