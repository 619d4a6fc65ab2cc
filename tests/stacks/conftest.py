"""What holds for all machines of the sandbox."""

from __future__ import annotations

import pytest

from stacks.azure import node as azure_node


@pytest.fixture(autouse=True)
def doors_of_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of the sandbox are one process, so their ports are kept and not opened."""
    monkeypatch.setattr(
        azure_node,
        "answer",
        lambda machine, port, tell: machine.doors.update({port: tell}),
    )
