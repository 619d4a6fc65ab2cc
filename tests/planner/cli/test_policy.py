"""Policies of commands: what is found, refused, waived and judged again, with its exit code."""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner import api
from planner.cli import policy_process
from planner.cli.policy import policy_paths
from planner.plan.canonical import dump_plan
from tests.conftest import ROOT, chat
from tests.planner.cli.conftest import Command

SPEC = chat(extra="labels: {team: chat}\nwhere: {clouds: [aws]}")
DENY = """\
rules:
  - id: budget
    message: the team may spend 5 USD a month
    when: plan.cost.total > 5
    about: where.clouds
    help: ask for less
"""
needs_cel = pytest.mark.skipif(
    find_spec("cel") is None,
    reason="the policy extra is not installed",
)


def test_all_policies_up_to_the_repository_count(here: Path) -> None:
    inner = here / "repository" / "team" / "service"
    inner.mkdir(parents=True)
    for folder in (here, here / "repository", inner.parent, inner):
        (folder / "policy.yaml").write_text("rules: []\n")
    spec = str(inner / "chat.yaml")
    # Outside of a repository, others' folders are not searched.
    assert policy_paths(spec) == ["repository/team/service/policy.yaml"]
    (here / "repository" / ".git").mkdir()
    assert policy_paths(spec) == [
        "repository/team/service/policy.yaml",
        "repository/team/policy.yaml",
        "repository/policy.yaml",
    ]
    assert policy_paths("-") == ["policy.yaml"]
    # Neither a link to a spec nor one that leads nowhere is a way around them.
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "chat.yaml").write_text(SPEC)
    (inner / "chat.yaml").symlink_to(here / "elsewhere" / "chat.yaml")
    (inner / "policy.yaml").unlink()
    (inner / "policy.yaml").symlink_to("nowhere.yaml")
    assert len(policy_paths(spec)) == 3
    assert len(policy_paths("repository/team/../team/service/chat.yaml")) == 3


def test_without_a_policy_nothing_of_it_is_imported(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("planner.plan.policy."):
            monkeypatch.delitem(sys.modules, name)
    (here / "chat.yaml").write_text(SPEC)
    assert tonnage("plan", "chat.yaml")[0] == 0
    loaded = {n for n in sys.modules if n.startswith("planner.plan.policy.")}
    assert loaded <= {"planner.plan.policy.judged_plan"}


@needs_cel
def test_plan_shows_saves_and_denies(tonnage: Command, here: Path) -> None:
    (here / "chat.yaml").write_text(SPEC)
    (here / "policy.yaml").write_text(DENY)
    code, out, err = tonnage("plan", "chat.yaml", "-o", "p.json")
    assert code == 5
    assert "a month" in out
    total = Decimal(json.loads((here / "p.json").read_text())["cost"]["total"])
    line = SPEC.splitlines().index("where: {clouds: [aws]}") + 1
    assert (
        f"chat.yaml:{line}:9  error[budget]: the team may spend 5 USD a month"
        in err
    )
    assert f"policy.yaml:2:5: rule budget: plan.cost.total is {total}" in err
    assert "next: ask for less" in err
    assert max(map(len, err.splitlines())) <= 99
    # One that is named is used instead.
    (here / "other.yaml").write_text(DENY.replace("> 5", "> 5000000"))
    code, _, err = tonnage("plan", "chat.yaml", "--policy", "other.yaml")
    assert code == 0
    assert "policy other.yaml: 1 passes" in err


PRIVATE = """\
rules:
  - id: no-public-addresses
    message: machines of this company have no public address
    when: "has(spec.network) && spec.network.public_addresses"
    about: network.public_addresses
    help: remove it
"""


@needs_cel
def test_an_organization_forbids_addresses_that_a_spec_asks_for(
    tonnage: Command, here: Path
) -> None:
    """What a key accepts of the rules of tonnage, it does not of those of others."""
    (here / "policy.yaml").write_text(PRIVATE)
    (here / "chat.yaml").write_text(SPEC)
    assert tonnage("plan", "chat.yaml")[0] == 0
    text = f"{SPEC}network:\n  public_addresses: true\n"
    (here / "chat.yaml").write_text(text)
    line = len(text.splitlines())
    for words in (("plan", "chat.yaml"), ("check", "chat.yaml", "--policies")):
        code, _, err = tonnage(*words)
        assert code == 5
        assert f"chat.yaml:{line}:3  error[no-public-addresses]" in err
    code, _, _ = tonnage("apply", "chat.yaml", "--yes", "--simulate")
    assert code == 5
    assert tonnage("status", "chat", "--simulate")[0] == 6


@pytest.fixture(scope="module")
def plans(catalog) -> dict[str, str]:
    """Saved plans of the same spec, one of them with machines that run for half of the hours."""
    specs = {
        "always": SPEC,
        "days": SPEC + "shutdown: {schedule: 'weekdays 08:00-20:00 UTC'}\n",
    }
    return {
        name: dump_plan(
            api.plan(text.encode(), path="chat.yaml", catalog=catalog)
        )
        for name, text in specs.items()
    }


@pytest.fixture
def files(here: Path, plans: dict[str, str]) -> Path:
    """The spec and both plans."""
    (here / "chat.yaml").write_text(SPEC)
    for name, text in plans.items():
        (here / f"{name}.json").write_text(text)
    return here


@needs_cel
def test_apply_judges_a_plan_that_is_older_than_the_rule(
    tonnage: Command, files: Path
) -> None:
    (files / "policy.yaml").write_text(DENY)
    for words in (("always.json",), ("chat.yaml", "--yes")):
        code, _, err = tonnage("apply", *words, "--simulate")
        assert code == 5
        assert "error[budget]" in err
        assert tonnage("status", "chat", "--simulate")[0] == 6
    waiver = "waivers: [{rule: budget, name: chat, owner: ann, reason: a test, until: DAY}]\n"
    ended = DENY + waiver.replace("DAY", "2026-11-21")
    (files / "policy.yaml").write_text(ended)
    code, _, err = tonnage("apply", "always.json", "--simulate")
    assert code == 5
    assert "the waiver of ann ended on 2026-11-21" in err
    holds = DENY + waiver.replace("DAY", "2026-11-22")
    (files / "policy.yaml").write_text(holds)
    code, _, err = tonnage("apply", "always.json", "--simulate")
    assert code == 0
    assert "budget of chat is waived by ann until 2026-11-22: a test" in err


@needs_cel
def test_a_policy_that_is_wrong_is_told_before_anything_is_planned(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "chat.yaml").write_text(SPEC)
    (here / "policy.yaml").write_text("rule: []\n")
    for words in (
        ("plan", "chat.yaml"),
        ("apply", "chat.yaml", "--simulate"),
        ("check", "chat.yaml", "--policies"),
    ):
        code, out, err = tonnage(*words)
        assert code == 2
        assert "policy.yaml:1:1  error[unknown-key]" in err
        assert "a month" not in out
    (here / "policy.yaml").write_text("rules: []\n")
    monkeypatch.setattr(policy_process, "ENGINE_PACKAGE", "no-such-package")
    code, _, err = tonnage("plan", "chat.yaml")
    assert code == 2
    assert "pip install 'tonnage[policy]'" in err


@needs_cel
def test_a_warning_stops_nothing(tonnage: Command, files: Path) -> None:
    (files / "policy.yaml").write_text(
        DENY.replace("about:", "severity: warn\n    about:")
    )
    code, _, err = tonnage("diff", "always.json", "always.json")
    assert code == 0
    assert "warning[budget]: the team may spend 5 USD a month" in err


@needs_cel
def test_diff_judges_what_is_after_and_what_changes(
    tonnage: Command, files: Path
) -> None:
    (files / "policy.yaml").write_text(
        "rules: [{id: rise, message: too much at once, "
        "when: 'diff.delta != null && diff.delta.usd > 1', about: traffic.peak_rps}]\n"
    )
    code, out, err = tonnage("diff", "days.json", "always.json")
    assert code == 5
    assert "total" in out
    assert "error[rise]: too much at once" in err
    line = SPEC.splitlines().index("  peak_rps: 2") + 1
    assert f"chat.yaml:{line}:3" in err
    # A comment and a log of a code host have what the job says.
    _, body, _ = tonnage("diff", "days.json", "always.json", "-f", "markdown")
    assert "policy policy.yaml: 1 denies" in body
    assert f"**denies** chat.yaml:{line}:3: rise: too much at once" in body
    _, log, _ = tonnage("diff", "days.json", "always.json", "-f", "sarif")
    [result] = json.loads(log)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("rise", "error")
    assert tonnage("diff", "always.json", "days.json")[0] == 0
    # A plan alone has no difference: the rule is not judged, and says so.
    code, _, err = tonnage("apply", "always.json", "--simulate")
    assert code == 0
    assert "policy policy.yaml: 1 not judged" in err


@needs_cel
@pytest.mark.parametrize(
    ("rule", "code", "told"),
    [
        ("when: plan.cost.total >", 2, "error[expression]: rule a: Syntax"),
        ("when: nothing(1)", 2, "no function is named nothing"),
        ("when: plan.cost.totl > 1", 5, "rule a cannot be judged: missing key"),
        ("when: spec.labels.owner == ''", 5, "judged: missing key owner"),
        ("when: plan.cost.total", 5, "neither true nor false"),
        ("when: '(((((((((((((((((((((((((((((((((('", 2, "nested deeper"),
    ],
)
def test_a_rule_that_is_wrong_has_a_place_and_an_exit_code(
    tonnage: Command, files: Path, rule: str, code: int, told: str
) -> None:
    (files / "policy.yaml").write_text(
        f"rules:\n  - id: a\n    message: b\n    {rule}\n"
    )
    found, _, err = tonnage("diff", "always.json", "always.json")
    assert found == code
    assert told in err
    assert re.search(r"policy.yaml:4:\d\d", err)
    assert "Traceback" not in err


@needs_cel
def test_check_lists_the_verdict_of_every_rule(
    tonnage: Command, here: Path
) -> None:
    (here / "chat.yaml").write_text(SPEC)
    rules = "blueprints/policies/guardrails.yaml"
    (here / "policy.yaml").write_text((ROOT / rules).read_text())
    code, out, _ = tonnage("check", "chat.yaml", "--policies")
    assert "rise-of-cost" in out
    assert "not judged" in out
    # A service outside of production has no shutdown of its own.
    assert code == 5
    assert "denies      auto-shutdown" in out
    assert max(map(len, out.splitlines())) <= 100


@needs_cel
def test_sarif_has_what_refuses_a_spec_and_what_denies_a_plan(
    tonnage: Command, here: Path
) -> None:
    sarif_pydantic = pytest.importorskip("sarif_pydantic")
    (here / "chat.yaml").write_text(SPEC)
    (here / "wrong.yaml").write_text(SPEC.replace("peak_rps", "peak_rp"))
    (here / "policy.yaml").write_text(DENY)
    for words, rules, code in (
        (("plan", "chat.yaml"), {"budget"}, 5),
        (("check", "chat.yaml", "--policies"), {"budget"}, 5),
        (("check", "wrong.yaml"), {"unknown-key", "one-of"}, 2),
        (("check", "chat.yaml"), set(), 0),
    ):
        found, out, _ = tonnage(*words, "-f", "sarif")
        assert found == code
        (run,) = sarif_pydantic.Sarif.model_validate_json(out).runs
        errors = {r.rule_id for r in run.results or () if r.level == "error"}
        assert errors == rules
        for entry in run.results or ():
            if entry.level == "error":
                place = entry.locations[0].physical_location
                assert place.artifact_location.uri in words
                assert place.region.start_line >= 1


@needs_cel
def test_a_rule_that_is_about_no_key_is_at_the_first_line(
    tonnage: Command, here: Path
) -> None:
    """Code hosts show no finding without a line."""
    sarif_pydantic = pytest.importorskip("sarif_pydantic")
    (here / "chat.yaml").write_text(SPEC)
    about = "    about: where.clouds\n"
    assert about in DENY
    (here / "policy.yaml").write_text(DENY.replace(about, ""))
    for words in (("plan", "chat.yaml"), ("check", "chat.yaml", "--policies")):
        code, out, _ = tonnage(*words, "-f", "sarif")
        assert code == 5
        (run,) = sarif_pydantic.Sarif.model_validate_json(out).runs
        [place] = [
            entry.locations[0].physical_location
            for entry in run.results
            if entry.rule_id == "budget"
        ]
        assert place.artifact_location.uri == "chat.yaml"
        assert (place.region.start_line, place.region.start_column) == (1, 1)


@needs_cel
def test_a_pass_does_not_say_what_would_be_wrong(
    tonnage: Command, here: Path
) -> None:
    (here / "chat.yaml").write_text(SPEC)
    message = "the team may spend 5 USD a month"
    for limit, code in (("5", 5), ("500000", 0)):
        (here / "policy.yaml").write_text(DENY.replace("> 5", f"> {limit}"))
        found, page, _ = tonnage("check", "chat.yaml", "--policies")
        assert found == code
        assert "budget" in page
        assert (message in page) == bool(code)


def test_init_writes_rules_to_choose_from(tonnage: Command, here: Path) -> None:
    code, _, err = tonnage("init", "--policy")
    assert code == 0
    assert "wrote policy.yaml" in err
    assert (here / "policy.yaml").read_bytes() == (
        ROOT / "blueprints" / "policies" / "guardrails.yaml"
    ).read_bytes()
    assert tonnage("init", "--policy")[0] == 2


def test_the_simulated_engine_reads_no_policy_packs(
    tonnage: Command, here: Path
) -> None:
    (here / "chat.yaml").write_text(SPEC)
    (here / "pack").mkdir()
    code, _, err = tonnage(
        "apply", "chat.yaml", "--simulate", "--yes", "--policy-pack", "pack"
    )
    assert code == 2
    assert "--engine pulumi" in err
