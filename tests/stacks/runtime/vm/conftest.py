"""Worlds of three clouds for the machines of the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.facts.cloud import clouds
from tests.stacks.runtime.vm.sandbox import World


@pytest.fixture(params=sorted(clouds()))
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """An empty cloud; every test that takes it runs on each of them."""
    # No power is lost here, and machines write every few seconds for days.
    monkeypatch.setattr("os.fsync", lambda _: None)
    made = World(request.param, tmp_path)
    yield made
    made.timeline.close()
