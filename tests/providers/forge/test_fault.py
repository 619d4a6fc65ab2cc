"""Refusals are rows: each has a meaning, and each meaning an exit code and a next step."""

from __future__ import annotations

import pytest

from providers.forge.fault import (
    ERRORS,
    MESSAGES,
    ForgeRefusal,
    refusal,
    refusal_rows,
)
from providers.forge.host import forge_names

CODES = {
    "login": 3,
    "permission": 3,
    "read-only": 3,
    "closed": 5,
    "missing": 6,
    "moved": 6,
    "rate": 9,
}


def test_every_meaning_has_its_exit_code() -> None:
    assert {name: kind.exit_code for name, kind in ERRORS.items()} == CODES
    assert set(MESSAGES) >= set(CODES)


@pytest.mark.parametrize("forge", forge_names())
@pytest.mark.parametrize("status", [401, 403, 404, 429])
def test_every_forge_knows_the_usual_refusals(forge: str, status: int) -> None:
    found = refusal(forge, status, "", "")
    assert found.meaning != "other"
    assert found.error("acme/infra#12").problems[0].next_step


def test_no_row_is_hidden_behind_an_earlier_one() -> None:
    rows = refusal_rows()
    for position, row in enumerate(rows):
        before = [
            earlier
            for earlier in rows[:position]
            if earlier.status == row.status
            and earlier.forge == row.forge
            and not earlier.pattern.pattern
        ]
        assert before == [], row


def test_what_no_row_knows_is_told_as_it_is() -> None:
    error = ForgeRefusal("other", 418, "I am a teapot").error("acme/infra#12")
    assert error.exit_code == 4
    assert error.problems[0].cause == "418: I am a teapot"
