"""What clouds answer, told apart: 85 messages in the words of three providers."""

from __future__ import annotations

import pytest

from planner.errors import CapacityError, CredentialError, ResourceError
from stacks.engine.failure import (
    MAX_ATTEMPTS,
    NEXT_STEPS,
    RefusedCall,
    classify_error,
    combined_error,
    is_transient,
    retry_delay_s,
)
from tests.conftest import ROOT

MESSAGES = [
    line.rsplit("\t", 1)
    for line in (ROOT / "tests/data/cloud_messages.tsv")
    .read_text()
    .splitlines()
    if "\t" in line
]


@pytest.mark.parametrize(("message", "wanted"), MESSAGES)
def test_answers_are_told_apart(message: str, wanted: str) -> None:
    assert classify_error(message) == wanted


def test_the_messages_have_every_kind_but_what_nobody_knows() -> None:
    assert {wanted for _, wanted in MESSAGES} == {*NEXT_STEPS} - {"resource"}
    assert len(MESSAGES) > 80


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (["InsufficientInstanceCapacity: x"], CapacityError),
        (["QUOTA_EXCEEDED", "ZONE_RESOURCE_POOL_EXHAUSTED"], CapacityError),
        (["AuthorizationFailed: x", "ExpiredToken: x"], CredentialError),
        (["QUOTA_EXCEEDED", "nobody knows this"], ResourceError),
    ],
)
def test_a_run_fails_of_what_all_its_failures_are(
    messages: list[str], error: type[Exception]
) -> None:
    found = combined_error(
        [RefusedCall("a step", message) for message in messages]
    )
    assert type(found) is error
    assert len(found.problems) == len(messages)
    assert all(problem.next_step for problem in found.problems)


def test_pauses_grow_and_differ() -> None:
    assert is_transient("Throttling: Rate exceeded")
    assert not is_transient("InsufficientInstanceCapacity: none")
    busy = ["UnknownYet: try later"]
    pauses = [
        retry_delay_s(n, busy, "chat/nodes") for n in range(1, MAX_ATTEMPTS)
    ]
    assert pauses == [
        retry_delay_s(n, busy, "chat/nodes") for n in range(1, MAX_ATTEMPTS)
    ]
    for attempt, pause in enumerate(pauses, 1):
        assert 2.0 ** (attempt - 1) <= pause <= 3 * 2.0 ** (attempt - 1)
    assert retry_delay_s(1, busy, "a") != retry_delay_s(1, busy, "b")


def test_a_cloud_that_says_when_is_asked_then() -> None:
    """The attempts of a throttled call last longer than the minute in which calls are counted."""
    for message in (
        "Throttling: Rate exceeded",
        "429 Too Many Requests",
    ):
        pauses = [
            retry_delay_s(n, [message], f"seed-{seed}")
            for seed in range(20)
            for n in range(1, MAX_ATTEMPTS)
        ]
        assert min(pauses) >= 2.5
        assert sum(pauses) / 20 > 60
        assert max(pauses) <= 180
