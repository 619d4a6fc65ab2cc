"""What a reader is told where no measurement of an accelerator is in the fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from planner.facts.accelerator import accelerators
from planner.perf.serving.error_band import rows_apart
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Tonnage = Callable[..., tuple[int, str, str]]

ROWS = f"{rows_apart(accelerators()['tpu-v6e']):,} published measurements"


def spec_of(folder: Path) -> str:
    """A small service that names TPUs, and is planned on them."""
    text = (ROOT / "blueprints" / "chat-8b.yaml").read_text(encoding="utf-8")
    head, _, _ = text.partition("\nwhere:")
    path = folder / "tpu.yaml"
    where = "\nwhere: {clouds: [gcp], accelerators: {allow: [tpu-v6e]}}\n"
    path.write_text(head + where, encoding="utf-8")
    return str(path)


def test_an_estimate_and_a_plan_say_on_what_they_rest(
    tonnage: Tonnage, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path)
    on = ("--on", "ct6e-standard-4t", "--layout", "tp=4,precision=bf16")
    code, page, _ = tonnage("estimate", spec, *on, "--rps", "1")
    assert code == 0
    assert ROWS in " ".join(page.split())
    _, document, _ = tonnage("estimate", spec, *on, "--rps", "1", "-f", "json")
    (note,) = json.loads(document)["notes"]
    assert ROWS in note
    for command in ("plan", "explain"):
        code, page, _ = tonnage(command, spec)
        assert code == 0
        assert ROWS in " ".join(page.split())


def test_an_estimate_on_what_the_fit_knows_has_no_note(
    tonnage: Tonnage,
) -> None:
    spec = str(ROOT / "blueprints" / "chat-70b.yaml")
    _, document, _ = tonnage(
        "estimate", spec, "--on", "p5.48xlarge", "--rps", "1", "-f", "json"
    )
    assert "notes" not in json.loads(document)
