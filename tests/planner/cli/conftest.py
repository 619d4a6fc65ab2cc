"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Runs a command; returns exit code, standard output, standard error.
Command: TypeAlias = Callable[..., tuple[int, str, str]]
