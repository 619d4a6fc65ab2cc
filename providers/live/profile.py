"""What clouds answer about models that they have measured.

`providers.gcp.profile` is a `ProfileModule`. Other clouds have measured none.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from planner.facts import table
from planner.facts.cloud import clouds


class ProfileModule(Protocol):
    """Every function raises the errors of `providers.live.access`."""

    def profiled_models(self) -> list[str]:
        """Return the names of models that were measured, as Hugging Face has them."""

    def measured_profiles(self, model: str) -> list[dict[str, Any]]:
        """Return what was measured of a model, as the service writes it.

        `planner.estimate.quickstart` reads it. A model without profiles has an empty list.
        """


@cache
def profile_clouds() -> dict[str, str]:
    """Return the clouds that have measured models, by the word of `calibrate --from`."""
    columns: table.Columns = {
        "word": table.nonempty_text,
        "cloud": table.one_of(*clouds()),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["word"]: row["cloud"]
        for row in table.load_rows("providers", "profiles.csv", columns)
    }
