"""Accelerators without software of ours: planned where they are named, and never built."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from planner.facts.software import missing_software
from tests.conftest import ROOT, chat, find, present

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog
    from tests.planner.cli.conftest import Command

# A service, a batch and two trainings, with an accelerator that no stack is built with.
NAMED = [
    ("chat-70b", "mi300x"),
    ("chat-70b", "tpu-v6e"),
    ("summarize-batch", "mi300x"),
    ("lora-8b", "tpu-v6e"),
    ("pretrain-70b", "mi300x"),
]


def naming(blueprint: str, *words: str) -> str:
    path = next(ROOT.glob(f"blueprints/{blueprint}*.yaml"))
    document = yaml.safe_load(path.read_text())
    document["where"] = {"accelerators": {"allow": list(words)}}
    return yaml.safe_dump(document)


def usd(catalog: Catalog, *words: str) -> float:
    return float(present(find(catalog, naming("chat-70b", *words)).bill).total)


@pytest.mark.parametrize(("blueprint", "accelerator"), NAMED)
def test_what_is_named_is_planned_and_nothing_of_it_is_built(
    catalog: Catalog, blueprint: str, accelerator: str
) -> None:
    solution = find(catalog, naming(blueprint, accelerator))
    [pool] = solution.pools
    assert pool.instance.accelerator == accelerator
    assert not solution.is_built
    told = [warning.code for warning in solution.warnings]
    assert "unbuilt-accelerator" in told


@pytest.mark.parametrize(
    ("blueprint", "words", "accelerator"),
    [
        ("chat-70b", "mi300x*", "mi300x"),
        ("chat-70b", "m*", "mi300x"),
        ("lora-8b", "TPU-v*", "tpu"),
    ],
)
def test_a_pattern_of_what_is_not_built_alone_is_a_wish(
    catalog: Catalog, blueprint: str, words: str, accelerator: str
) -> None:
    solution = find(catalog, naming(blueprint, words))
    [pool] = solution.pools
    assert pool.instance.accelerator.startswith(accelerator)
    assert not solution.is_built


# Every pattern means something that is built too.
@pytest.mark.parametrize("words", ["*", "*0*", "*1*"])
def test_a_pattern_of_others_too_is_no_wish_for_what_cannot_be_built(
    catalog: Catalog, words: str
) -> None:
    pools = find(catalog, naming("chat-70b", words)).pools
    assert pools
    for pool in pools:
        missing = missing_software(
            pool.instance.provider, pool.instance.accelerator
        )
        assert missing is None


def test_one_more_accelerator_never_costs_more(catalog: Catalog) -> None:
    both = usd(catalog, "h100", "mi300x")
    assert both <= usd(catalog, "h100")
    assert both <= usd(catalog, "mi300x")


def test_a_ladder_has_no_rung_that_is_not_built(
    tonnage: Command, here: Path
) -> None:
    """Beside machines on spot that are built, those of the other maker are no way out."""
    text = (ROOT / "blueprints/lora-8b.yaml").read_text()
    (here / "t.yaml").write_text(
        f"{text}\nwhere: {{accelerators: {{allow: [l40s, tpu-v6e]}}, clouds: [aws, gcp]}}\n"
    )
    code, page, _ = tonnage("plan", "t.yaml", "-f", "json")
    assert code == 0
    plan = yaml.safe_load(page)
    rungs = [plan, *plan["fallbacks"]] if plan["graph"]["resources"] else []
    for rung in rungs:
        for resource in rung["graph"]["resources"]:
            assert "ct6e" not in str(resource)


def test_a_plan_says_that_programs_are_compiled_first(
    tonnage: Command, here: Path
) -> None:
    """20 to 30 minutes on a TPU, by vLLM's documentation, after boot and download."""
    for chip, minutes in (("tpu-v6e", range(25, 40)), ("l40s", range(0))):
        (here / "s.yaml").write_text(
            chat(extra=f"where: {{accelerators: {{allow: [{chip}]}}}}")
        )
        page = " ".join(tonnage("plan", "s.yaml")[1].split())
        told = re.findall(r"a new machine answers (\d+) min after", page)
        assert [int(text) in minutes for text in told] == [True] * bool(minutes)


def test_apply_refuses_it_by_name_and_touches_nothing(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(
        chat(extra="where: {accelerators: {allow: [mi300x]}}")
    )
    code, page, _ = tonnage("plan", "s.yaml", "-o", "p.json")
    assert code == 0
    assert "nothing is built with mi300x: apply refuses this plan" in page
    before = sorted(here.rglob("*"))
    for argument in ("s.yaml", "p.json"):
        code, _, problem = tonnage("apply", argument, "--simulate", "--yes")
        assert code == 2
        assert "error[unbuilt-accelerator]: nothing is built with mi300x" in (
            problem
        )
        assert "(amd-image)" in problem
    assert tonnage("list", "--simulate", "-f", "json")[1].strip() == "[]"
    assert sorted(here.rglob("*")) == before
