"""check --explain and check --security: rules as people read them, findings as they fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.plan.security import Waiver, security_findings
from tests.conftest import chat
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import plan_of

FLOW_LOGS = "sec-gcp-flow-logs until 2027-03-01: they cost by the gigabyte"


def test_a_rule_says_what_helps(tonnage: Command) -> None:
    code, out, _ = tonnage("check", "--explain", "infiniband-group")
    assert code == 0
    for text in ("azure", "above 100", "ask Azure for more", "2026-09"):
        assert text in out


def test_a_rule_that_there_is_not_is_told(tonnage: Command) -> None:
    code, _, err = tonnage("check", "--explain", "infiniband-grup")
    assert (code, "did you mean 'infiniband-group'" in err) == (6, True)


def test_without_a_spec_there_is_nothing_to_check(tonnage: Command) -> None:
    code, _, err = tonnage("check")
    assert (code, "SPEC" in err) == (2, True)


def test_a_range_of_the_machines_is_refused_by_its_rule(
    tonnage: Command, here: Path
) -> None:
    for own_range, code in (("172.17.0.0/16", 2), ("172.16.0.0/16", 0)):
        (here / "s.yaml").write_text(
            chat(
                extra=f"network: {{range: {own_range}}}\n"
                "where: {clouds: [azure]}"
            )
        )
        found, _, err = tonnage("check", "s.yaml")
        assert (found, "error[network-docker]" in err) == (code, code == 2)


def test_low_findings_are_told_and_do_not_fail(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra="where: {clouds: [gcp]}"))
    code, out, _ = tonnage("check", "--security", "s.yaml")
    assert (code, "sec-gcp-flow-logs" in out) == (0, True)


@pytest.mark.parametrize(
    ("until", "code"), [("2027-03-01", 0), ("2026-01-01", 5)]
)
def test_a_waiver_ends(
    tonnage: Command,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: str,
    code: int,
) -> None:
    """Findings of weight fail, unless the spec accepts them and the day is not over."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")  # 2026-09-21
    monkeypatch.setattr("planner.plan.security.GRAVE", ("low",))
    (here / "s.yaml").write_text(
        chat(
            extra="where: {clouds: [gcp]}\nwaivers:\n"
            "  - 'sec-gcp-http until 2099-01-01: nobody listens'\n"
            "  - 'sec-gcp-egress until 2099-01-01: weights come so'\n"
            "  - 'sec-gcp-own-key until 2099-01-01: none is ours'\n"
            f"  - 'sec-gcp-flow-logs until {until}: they cost'"
        )
    )
    found, out, err = tonnage("check", "--security", "s.yaml")
    assert found == code
    if code:
        assert "error[sec-gcp-flow-logs]" in err
        assert f"was accepted until {until}" in out
    else:
        assert f"accepted until {until}: they cost" in out


def test_of_several_waivers_the_longest_holds(catalog) -> None:
    early = FLOW_LOGS.replace("2027", "2025")
    plan = plan_of(
        catalog,
        chat(
            extra=f"where: {{clouds: [gcp]}}\nwaivers: ['{FLOW_LOGS}', '{early}']"
        ),
    )
    [finding] = [
        found
        for found in security_findings(plan)
        if found.rule.id == "sec-gcp-flow-logs"
    ]
    assert finding.waiver == Waiver(
        "sec-gcp-flow-logs", "2027-03-01", "they cost by the gigabyte"
    )
    assert finding.is_accepted("2027-03-01")
    assert not finding.is_accepted("2027-03-02")


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_key_accepts_what_it_asks_for_and_the_plan_says_so(
    tonnage: Command, catalog, here: Path, cloud: str
) -> None:
    text = chat(
        extra="network: {public_addresses: true}\n"
        f"where: {{clouds: [{cloud}]}}"
    )
    (here / "s.yaml").write_text(text)
    code, out, _ = tonnage("check", "--security", "s.yaml")
    assert code == 0
    assert f"high    sec-{cloud}-public-address" in out
    assert "accepted by network.public_addresses" in out
    _, out, _ = tonnage("plan", "s.yaml")
    assert "1 high accepted by network.public_addresses" in out
    # The same addresses without the key are a finding like any other.
    plan = plan_of(catalog, text)
    unasked = replace(
        plan,
        spec=replace(
            plan.spec, normalized={**plan.spec.normalized, "network": {}}
        ),
    )
    [finding] = [
        found
        for found in security_findings(unasked)
        if found.rule.id == f"sec-{cloud}-public-address"
    ]
    assert finding.fails("2026-11-18")


def test_a_waiver_needs_a_day_and_a_reason(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra="waivers: [sec-gcp-flow-logs]"))
    code, _, err = tonnage("check", "s.yaml")
    assert (code, "a last day and a reason" in err) == (2, True)


def test_a_spec_that_no_fleet_meets_passes_no_check(
    tonnage: Command, here: Path
) -> None:
    """Nothing is built, so nothing is found: that is no good news."""
    (here / "s.yaml").write_text(
        chat(extra="where: {clouds: [gcp]}\nbuy: {budget: 1/month}")
    )
    code, _, err = tonnage("check", "--security", "s.yaml")
    assert (code, "nothing can be checked" in err) == (10, True)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("sec-gcp-flow-log", "did you mean 'sec-gcp-flow-logs'?"),
        ("sec-of-nobody-at-all", "tonnage check --security"),
    ],
)
def test_a_waiver_of_no_rule_is_refused(
    tonnage: Command, here: Path, rule: str, told: str
) -> None:
    (here / "s.yaml").write_text(
        chat(extra=f"waivers: ['{rule} until 2027-03-01: it comes']")
    )
    code, out, err = tonnage("check", "s.yaml")
    assert (code, f"no rule is named {rule}" in err + out) == (2, True)
    assert told in err + out
