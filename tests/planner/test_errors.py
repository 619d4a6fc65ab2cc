"""Errors of users: whatever way they take, they keep what they say."""

from __future__ import annotations

import pickle

import pytest

from planner.errors import Place, Problem, TonnageError


def every_error(kind: type[TonnageError]) -> list[type[TonnageError]]:
    return [
        kind,
        *(
            found
            for below in kind.__subclasses__()
            for found in every_error(below)
        ),
    ]


@pytest.mark.parametrize("kind", every_error(TonnageError))
def test_an_error_keeps_its_problems_from_process_to_process(
    kind: type[TonnageError],
) -> None:
    problem = Problem(
        code="x", message="y", next_step="z", place=Place("a.yaml", 1, 2)
    )
    error = pickle.loads(pickle.dumps(kind(problem, problem)))
    assert type(error) is kind
    assert error.problems == (problem, problem)
    assert str(error) == "y; y"
