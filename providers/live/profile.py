"""What clouds answer about models that they have measured.

`providers.gcp.profile` is a `ProfileModule`. Other clouds have measured none.
"""

from __future__ import annotations

from typing import Any, Protocol


class ProfileModule(Protocol):
    """Every function raises the errors of `providers.live.access`."""

    def profiled_models(self) -> list[str]:
        """Return the names of models that were measured, as Hugging Face has them."""

    def measured_profiles(self, model: str) -> list[dict[str, Any]]:
        """Return what was measured of a model, as the service writes it.

        `planner.estimate.quickstart` reads it. A model without profiles has an empty list.
        """
