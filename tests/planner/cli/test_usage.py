"""usage: what a stack has cost, from files and without an account."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planner.cli.conftest import Command
from tests.planner.plan.actual.conftest import EXPORTS, export_row, focus_bytes


def usage_of(tonnage: Command, saved: Path, *argv: str):
    return tonnage("usage", saved.name, *argv)


def test_a_page_says_lines_days_rate_and_tokens(
    tonnage: Command, saved: Path
) -> None:
    code, out, _ = usage_of(
        tonnage,
        saved,
        "--from",
        str(EXPORTS / "focus_aws.csv"),
        "--metrics",
        str(EXPORTS / "metrics.txt"),
    )
    assert code == 0
    for text in (
        "chat: $57.57 for 48 h, 2026-10-01 to 2026-10-02",
        "$876 a month at this rate",
        "$28.78 per million tokens out, $7.20 blended",
        "commitments: $15.25 used, $2.50 unused",
        "unknown: Amazon Quantum Ledger",
        "2026-10-02",
    ):
        assert text in out


def test_all_formats_say_the_same(tonnage: Command, saved: Path) -> None:
    path = str(EXPORTS / "azure.csv")
    _, text, _ = usage_of(tonnage, saved, "--from", path)
    _, page, _ = usage_of(tonnage, saved, "--from", path, "-f", "markdown")
    _, document, _ = usage_of(tonnage, saved, "--from", path, "-f", "json")
    spent = json.loads(document)
    assert (spent["schema"], spent["total_usd"]) == (
        "tonnage.usage/1",
        "670.95",
    )
    assert "$670.95" in text
    assert "| $670.95 |" in page


def test_files_follow_each_other_as_a_shell_names_them(
    tonnage: Command, saved: Path, here: Path
) -> None:
    for number in (1, 2):
        (here / f"{number}.csv").write_bytes(
            focus_bytes([export_row(EffectiveCost=str(number))])
        )
    for argv in (
        ("--from", "1.csv", "2.csv"),
        ("--from", "2.csv", "--from", "1.csv"),
    ):
        code, out, _ = usage_of(tonnage, saved, *argv)
        assert (code, "chat: $3.00" in out) == (0, True)


@pytest.mark.parametrize(
    ("argv", "expected_code", "word"),
    [
        (("--from", "absent.csv"), 6, "no such file"),
        (("--from", "chat.yaml"), 2, "error[export-columns]"),
        ((), 2, "--from"),
        (
            ("--from", str(EXPORTS / "azure.csv"), "--metrics", "chat.yaml"),
            2,
            "error[metrics]",
        ),
    ],
)
def test_what_cannot_be_read_is_told(
    tonnage: Command,
    saved: Path,
    argv: tuple[str, ...],
    expected_code: int,
    word: str,
) -> None:
    code, _, err = usage_of(tonnage, saved, *argv)
    assert (code, word in err) == (expected_code, True)


def test_a_stack_that_no_row_names_is_missing(
    tonnage: Command, saved: Path, here: Path
) -> None:
    other = json.dumps({"tonnage-stack": "else"})
    (here / "f.csv").write_bytes(focus_bytes([export_row(Tags=other)]))
    code, _, err = usage_of(tonnage, saved, "--from", "f.csv")
    assert (code, "tonnage-stack=chat" in err) == (6, True)


def test_hostile_names_are_shown_as_text(
    tonnage: Command, saved: Path, here: Path
) -> None:
    (here / "f.csv").write_bytes(
        focus_bytes([export_row(ServiceName="\x1b[31m<b>|::stop\u202e")])
    )
    _, text, _ = usage_of(tonnage, saved, "--from", "f.csv")
    _, page, _ = usage_of(tonnage, saved, "--from", "f.csv", "-f", "markdown")
    assert "\u202e" not in text
    assert "&lt;b>\\|" in page


def test_a_long_time_shows_its_last_days(
    tonnage: Command, saved: Path, here: Path
) -> None:
    (here / "f.csv").write_bytes(
        focus_bytes(
            [
                export_row(),
                export_row(
                    ChargePeriodStart="2026-12-01T00:00:00Z",
                    ChargePeriodEnd="2026-12-02T00:00:00Z",
                ),
            ]
        )
    )
    _, out, _ = usage_of(tonnage, saved, "--from", "f.csv")
    assert "the last 31 of 62 days" in out
    assert "2026-10-01  " not in out
