"""tonnage unlock: the lock of a dead run is freed, and a name of no stack is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.store import HOLDER_SUFFIX, STATE_SUFFIX
from tests.conftest import chat

if TYPE_CHECKING:
    from pathlib import Path

    from tests.planner.cli.conftest import Command


def test_a_name_of_no_stack_is_not_found(tonnage: Command) -> None:
    code, out, err = tonnage("unlock", "chat", "--simulate")
    assert (code, out) == (6, "")
    assert "no stack is named chat" in err
    assert "tonnage list --simulate" in err


def test_what_a_dead_run_has_left_is_freed_with_or_without_a_stack(
    tonnage: Command, here: Path
) -> None:
    """A run that dies before its first change leaves a name, and no state."""
    (here / "s.yaml").write_text(chat())
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    code, out, _ = tonnage("unlock", "chat", "--simulate")
    assert (code, out) == (0, "chat: it was not locked\n")
    [state] = here.rglob(f"chat{STATE_SUFFIX}")
    for name, ends in (("chat", 0), ("other", 6)):
        (state.parent / f"{name}{HOLDER_SUFFIX}").write_text("{}")
        code, out, _ = tonnage("unlock", name, "--simulate")
        assert (code, out) == (0, f"{name}: the lock of a dead run is freed\n")
        assert tonnage("unlock", name, "--simulate")[0] == ends
