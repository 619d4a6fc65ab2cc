"""`init --ci` writes the templates to where their systems look for them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.conftest import ROOT

CI = ROOT / "blueprints" / "ci"
ROWS = list(csv.DictReader((CI / "targets.csv").read_text().splitlines()))
# What a server or a registry reads, and no repository of specs.
NO_REPOSITORY = {"Containerfile", "targets.csv", "atlantis/repos.yaml"}


def test_every_template_has_a_place_of_its_own() -> None:
    files = {
        str(path.relative_to(CI)) for path in CI.rglob("*") if path.is_file()
    }
    assert {row["template"] for row in ROWS} == files - NO_REPOSITORY
    assert len({row["target"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        template = CI / row["template"]
        assert template.parent.name == row["system"]
        # A template says itself where it goes.
        assert row["target"].lstrip(".") in template.read_text() or (
            row["system"] == "jenkins"
        )


@pytest.mark.parametrize("system", sorted({row["system"] for row in ROWS}))
def test_all_files_of_a_system_are_written_and_none_over_others(
    tonnage, here: Path, system: str
) -> None:
    code, _, err = tonnage("init", "--ci", system)
    assert code == 0
    targets = {
        r["target"]: r["template"] for r in ROWS if r["system"] == system
    }
    for target, template in targets.items():
        assert (here / target).read_text() == (CI / template).read_text()
        assert f"wrote {target}" in err
    first, *others = targets
    (here / first).write_text("mine")
    for other in others:
        (here / other).unlink()
    code, _, err = tonnage("init", "--ci", system)
    assert code == 2
    assert first in err
    assert not any((here / other).exists() for other in others)
    assert (here / first).read_text() == "mine"
    assert tonnage("init", "--ci", system, "--force")[0] == 0
    assert (here / first).read_text() != "mine"


def test_an_unknown_system_is_answered_with_the_known_ones(tonnage) -> None:
    code, _, err = tonnage("init", "--ci", "githib")
    assert code == 6
    assert "did you mean 'github'?" in err


def test_one_thing_is_written_at_a_time(tonnage) -> None:
    assert tonnage("init", "--ci", "github", "--policy")[0] == 2
    assert tonnage("init", "--ci", "github", "-o", "x.yaml")[0] == 2
