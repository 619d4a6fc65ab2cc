"""What a job of a fork wrote is read with mistrust."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from providers.forge.held import (
    HeldComment,
    dump_held,
    parse_held,
    same_commit,
)

HELD = HeldComment(
    request=12, commit="91c77aa", tag="cost", behavior="update", body="### a"
)


@given(st.text(min_size=1).filter(str.isprintable))
def test_a_comment_comes_out_as_it_went_in(body: str) -> None:
    held = HeldComment(
        request=1, commit="9" * 40, tag="a", behavior="new", body=body
    )
    assert parse_held(dump_held(held).encode(), "held.json") == held


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "tonnage.comment/2"},
        {"request": 0},
        {"request": "12"},
        {"request": "12/../../issues/1"},
        {"commit": "HEAD"},
        {"commit": "91c77aa -->"},
        {"tag": "a --> b"},
        {"behavior": "delete"},
        {"body": None},
        # Where it goes is not for the file to say.
        {"repository": "victim/infra"},
        {"api": "https://evil.example.invalid"},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    document = json.loads(dump_held(HELD)) | change
    with pytest.raises(UsageError) as refused:
        parse_held(json.dumps(document).encode(), "held.json")
    (problem,) = refused.value.problems
    assert str(problem.place) == "held.json"
    assert problem.cause


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError):
        parse_held(content, "held.json")


def test_a_commit_may_be_shortened_but_not_to_nothing() -> None:
    assert same_commit("91c77aa", "91c77aa4be21")
    assert same_commit("91c77aa4be21", "91c77aa4be21")
    assert not same_commit("91c77aa", "91c77ab4be21")
    assert not same_commit("", "91c77aa4be21")
    assert not same_commit("91c7", "91c77aa4be21")
