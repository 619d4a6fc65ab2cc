"""A stack in the hands of people: a few steps of the model that is run at length elsewhere."""

from __future__ import annotations

from tests.reliability.model import run_model


def test_whatever_is_done_nothing_is_lost_or_forgotten() -> None:
    run_model(steps=150)
