"""How sure a plan is that nothing cheaper would do, on every page, and how long that took."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.planner.cli.conftest import Command

TOOK = re.compile(r"^planned in [\d.,]+ (ms|s)$", re.MULTILINE)


# One that is proved, one whose simulation is undecided, and one that is not simulated.
@pytest.mark.parametrize("name", ["lora-8b", "chat-70b", "workspace-one-gpu"])
def test_every_page_says_what_the_document_says(
    tonnage: Command, name: str
) -> None:
    path = str(ROOT / "blueprints" / f"{name}.yaml")
    solution = json.loads(tonnage("plan", path, "-f", "json")[1])["solution"]
    gap = solution["gap"]
    words, sentence = (
        ("feasible: nothing cheaper passes", "no gap is proved")
        if gap is None
        else (f"optimal: proved, gap {gap}", f"(gap {gap})")
    )
    for flags in ((), ("-f", "markdown"), ("-f", "html")):
        _, page, said = tonnage("plan", path, *flags)
        assert words in page
        assert "planned in" not in page
        assert len(TOOK.findall(said)) == 1
    full = tonnage("plan", path, "--full", "-f", "markdown")[1]
    reasons = tonnage("explain", path, "-f", "markdown")[1]
    for page in (full, reasons):
        assert sentence in " ".join(page.split())


def test_several_specs_say_once_how_long_they_took(
    tonnage: Command, here: Path
) -> None:
    for name in ("a", "b"):
        text = (ROOT / "blueprints" / "workspace-one-gpu.yaml").read_text()
        (here / f"{name}.yaml").write_text(
            re.sub(r"^name: .*", f"name: {name}", text, flags=re.MULTILINE)
        )
    _, page, said = tonnage("plan", "a.yaml", "b.yaml")
    assert len(TOOK.findall(said)) == 1
    assert page.count("gap 0") == 2
