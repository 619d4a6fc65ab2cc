"""Fixtures: searches that share nothing which their tests do not share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _one_judge() -> None:
    """Leave each search its own judge: what searches share is what is tested here."""
