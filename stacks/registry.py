"""Finds clouds and runtimes by name, each in a module of its room."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stacks.cloud import Cloud
    from stacks.runtime.base import Runtime

RUNTIMES: Final = ("vm",)


@cache
def cloud(name: str) -> Cloud:
    """Return a cloud that the table of clouds names."""
    module_cloud: Cloud = import_module(f"stacks.{name}.cloud").CLOUD
    return module_cloud


@cache
def runtime(name: str) -> Runtime:
    """Return a runtime that is registered."""
    module_runtime: Runtime = import_module(
        f"stacks.runtime.{name}.runtime"
    ).RUNTIME
    return module_runtime
