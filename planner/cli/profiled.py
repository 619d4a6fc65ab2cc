"""What Google has measured of a model, as the text of a benchmark file."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING

from planner.cli.progress import waiting
from planner.errors import MissingError, Problem

if TYPE_CHECKING:
    from providers.live.profile import ProfileModule


def asked_profiles(source: str, model: str) -> str:
    """Return the profiles of a model as JSON.

    Raises MissingError for a model without any, and the errors of `cloud_errors`.
    """
    from planner.estimate.quickstart import asked_name
    from providers.live.access import cloud_errors
    from providers.live.profile import profile_clouds

    cloud = profile_clouds()[source]
    with (
        cloud_errors(cloud, f"the profiles of {model} are not known"),
        waiting(f"asking {cloud}"),
    ):
        asked: ProfileModule = import_module(f"providers.{cloud}.profile")
        name = asked_name(model, asked.profiled_models())
        profiles = asked.measured_profiles(name)
    if not profiles:
        raise MissingError(
            Problem(
                code="profile",
                message=f"Google has no profile of {name} with vLLM",
                next_step="measure it yourself: tonnage calibrate --recipe SPEC",
            )
        )
    return json.dumps(profiles, indent=2, sort_keys=True) + "\n"
