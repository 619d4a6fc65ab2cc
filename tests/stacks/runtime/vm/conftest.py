"""Worlds of three clouds for the machines of the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from planner.facts.cloud import clouds
from tests.stacks.runtime.vm.sandbox import World


@pytest.fixture(params=sorted(clouds()))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty cloud; every test that takes it runs on each of them."""
    # Machines write every few seconds for days: into memory, where the system has such a folder.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        made = World(request.param, Path(folder))
        yield made
        made.timeline.close()
