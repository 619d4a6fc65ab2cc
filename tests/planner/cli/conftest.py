"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import BLUEPRINTS
from tests.loopback import cloud

__all__ = ("Command", "cloud")

# Runs a command; returns exit code, standard output, standard error.
Command: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def saved(tonnage: Command, here: Path) -> Path:
    """The saved plan of a stack that is named chat."""
    blueprint = next(path for path in BLUEPRINTS if path.stem == "chat-8b")
    spec = here / "chat.yaml"
    spec.write_text(
        blueprint.read_text().replace("name: chat-8b", "name: chat")
    )
    assert tonnage("plan", "chat.yaml", "-o", "chat.plan.json")[0] == 0
    return here / "chat.plan.json"
