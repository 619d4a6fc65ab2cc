"""Listings fit a terminal, also where nobody looks at one, and lose nothing in other formats."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from planner.cli.main import COMMANDS
from planner.cli.offers import SORT_KEYS
from planner.facts.accelerator import accelerators
from planner.market.offer import ORDERABLE_PURCHASES
from planner.render.page import LINE_WIDTH
from tests.planner.cli.conftest import Command

LISTINGS = (
    ("models",),
    ("models", "nvidia"),
    ("offers", "--limit", "1500"),
    *(("offers", "--sort", sort, "--limit", "200") for sort in SORT_KEYS),
    *(("offers", "--purchase", way) for way in ORDERABLE_PURCHASES),
    *(("offers", "--cloud", cloud) for cloud in ("aws", "azure", "gcp")),
    ("catalog", "status"),
    ("catalog", "accelerators"),
    ("catalog", "mig"),
    ("catalog", "unpriced"),
    ("catalog", "list"),
    ("init", "--list"),
)
STACK_LISTINGS = (
    ("list", "--simulate"),
    ("status", "chat", "--simulate"),
    ("history", "chat", "--simulate"),
    ("drift", "chat", "--simulate"),
    ("orphans", "--simulate"),
    ("simulate", "events"),
    ("simulate", "bill"),
)
DATA = (("models",), ("offers",), ("catalog", "accelerators"))


def widest(text: str) -> str:
    return max(text.splitlines(), key=len, default="")


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_no_line_is_longer_than_a_terminal(
    tonnage: Command, words: tuple[str, ...]
) -> None:
    code, out, err = tonnage(*words)
    assert code == 0, err
    assert len(widest(out)) <= LINE_WIDTH, widest(out)


def test_no_line_about_a_stack_is(tonnage: Command, saved: Path) -> None:
    assert tonnage("apply", saved.name, "--simulate")[0] == 0
    for words in STACK_LISTINGS:
        assert words[0] in COMMANDS
        code, out, err = tonnage(*words)
        assert code == 0, (words, err)
        assert len(widest(out)) <= LINE_WIDTH, (words, widest(out))


@pytest.mark.parametrize("accelerator", sorted(accelerators()))
def test_offers_of_each_accelerator_fit_with_their_whole_names(
    tonnage: Command, accelerator: str
) -> None:
    words = ("offers", accelerator, "--limit", "40")
    code, out, _ = tonnage(*words)
    if code:
        # Nobody rents it out.
        return
    assert len(widest(out)) <= LINE_WIDTH
    shown = {word.strip(",") for word in out.split()}
    rows = json.loads(tonnage(*words, "-f", "json")[1])
    for row in rows:
        assert {row["type"], row["region"], row["purchase"]} <= shown


@pytest.mark.parametrize("words", DATA, ids=" ".join)
def test_everything_is_in_the_other_formats(
    tonnage: Command, words: tuple[str, ...]
) -> None:
    rows = json.loads(tonnage(*words, "-f", "json")[1])
    table = tonnage(*words, "-f", "csv")[1]
    assert list(csv.DictReader(io.StringIO(table))) == rows
    full = tonnage(*words, "--full")[1]
    assert sorted(full.split()[: len(rows[0])]) == sorted(rows[0])
    short = tonnage(*words)[1]
    assert len(widest(short)) < len(widest(full))


NOTHING = {
    ("show", "chat-8b.plan.jsn"): "chat-8b.plan.json",
    ("plan", "chat-8b.yml"): "chat-8b.yaml",
    ("status", "chta", "--simulate"): "chat",
    ("destroy", "chta", "--simulate", "--yes"): "chat",
    ("history", "chta", "--simulate"): "chat",
    ("connect", "chta", "1", "--simulate"): "chat",
    ("scale", "chta", "2", "--simulate"): "chat",
    ("explain", "chat-8b.yaml", "p5.48xlrge"): "p5.48xlarge",
    ("quota", "list", "aws", "us-esat-1"): "us-east-1",
    ("catalog", "use", "embeded"): "embedded",
    ("check", "--explain", "amd-imag"): "amd-image",
    ("init", "--blueprint", "chat-7b"): "chat-70b",
    ("init", "--ci", "githb"): "github",
    ("models", "llma-3.1-8b"): "llama-3.1-8b",
    ("models", "qwen2.5-7B-instuct"): "qwen",
    ("offers", "h10O"): "h100",
    ("offers", "h100", "--region", "us-esat-1"): "us-east-1",
    ("offers", "--type", "p5.48xlrge"): "p5.48xlarge",
}


@pytest.mark.parametrize(("words", "close"), NOTHING.items(), ids=str)
def test_what_is_not_found_is_told_with_what_is_close(
    tonnage: Command, here: Path, words: tuple[str, ...], close: str
) -> None:
    assert tonnage("init")[0] == 0
    (here / "chat-8b.plan.json").write_text("{}")
    state = here / ".tonnage" / "simulated" / "stacks" / "chat.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    code, out, err = tonnage(*words)
    assert (code, out) == (6, "")
    assert f"did you mean '{close}" in err


def test_filters_that_exclude_each_other_are_told(tonnage: Command) -> None:
    code, out, err = tonnage("offers", "--cloud", "aws", "--region", "eastus")
    assert (code, out) == (6, "")
    assert "leave out one of --cloud, --region" in err
