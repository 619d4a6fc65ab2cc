"""Finds the room of a cloud in `providers`: one module, `providers.<cloud>.provider`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from providers.base import Provider


@cache
def provider(cloud: str) -> Provider:
    """Return the provider of a cloud that the table of clouds names."""
    cloud_provider: Provider = import_module(
        f"providers.{cloud}.provider"
    ).PROVIDER
    return cloud_provider


def all_providers() -> tuple[Provider, ...]:
    """Return the providers of all clouds."""
    return tuple(provider(cloud) for cloud in clouds())
