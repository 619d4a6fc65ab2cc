"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.loopback import cloud

__all__ = ("Command", "cloud")

# Runs a command; returns exit code, standard output, standard error.
Command: TypeAlias = Callable[..., tuple[int, str, str]]
