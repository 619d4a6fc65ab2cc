"""The process that judges rules: it is ended in time, and what it leaves unsaid is no pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.cli.policy_process import judge_in_process
from planner.errors import UsageError
from planner.plan.policy.verdict import RuleQuestion
from tests.conftest import TODAY

NUMBERS = [float(number) for number in range(400)]
# 400³ additions.
ENDLESS = "plan.all(x, plan.all(y, plan.all(z, x + y + z >= 0.0)))"


def question(*rules: str) -> RuleQuestion:
    return RuleQuestion(
        today=TODAY,
        documents=({"plan": NUMBERS}, {"plan": NUMBERS[:2]}),
        rules=tuple((rule, None) for rule in rules),
    )


def test_a_rule_that_takes_too_long_is_ended_and_nothing_after_it_passes() -> (
    None
):
    pytest.importorskip("cel", reason="the policy extra is not installed")
    answers = judge_in_process(question("1 > 2", ENDLESS, "1 > 2"), 2)
    assert len(answers) == 6
    # On a busy machine the first one may not be through either.
    assert "it took longer than 2 s" in {answer.fault for answer in answers[:2]}
    assert all(answer.fault for answer in answers[1:])
    assert {(answer.document, answer.rule) for answer in answers} == {
        (document, rule) for document in range(2) for rule in range(3)
    }


def test_answers_are_for_every_rule_over_every_document() -> None:
    pytest.importorskip("cel", reason="the policy extra is not installed")
    answers = judge_in_process(question("size(plan) > 2", "plan.x == 1"))
    assert [answer.is_broken for answer in answers] == [
        True,
        False,
        False,
        False,
    ]
    assert [bool(answer.fault) for answer in answers] == [
        False,
        True,
        False,
        True,
    ]


def test_without_the_package_nothing_is_judged_and_nothing_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cel.py").write_text("raise ImportError('not here')\n")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with pytest.raises(UsageError) as refusal:
        judge_in_process(question("true"))
    assert (
        "pip install 'tonnage[policy]'" in refusal.value.problems[0].next_step
    )


def test_modules_of_the_working_folder_are_not_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cel", reason="the policy extra is not installed")
    for name in ("msgspec", "cel", "json", "planner"):
        (here / f"{name}.py").write_text("open('was-run', 'w')\n")
    assert judge_in_process(question("size(plan) > 2"))[0].is_broken
    assert not (here / "was-run").exists()
