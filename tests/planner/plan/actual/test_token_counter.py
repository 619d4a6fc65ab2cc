"""Counters of engines, from the text that Prometheus reads."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.errors import UsageError
from planner.plan.actual.token_counter import CountedTokens, read_tokens
from tests.planner.plan.actual.conftest import export


def test_counters_add_up_over_series() -> None:
    (text,) = export("metrics.txt").values()
    tokens = read_tokens(text, "m.txt")
    assert tokens == CountedTokens(Decimal(6_000_000), Decimal(2_000_000))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("vllm:generation_tokens_total NaN", "m.txt:1:30"),
        ('\n vllm:generation_tokens_total{a="b"} -1', "m.txt:2:38"),
        ("vllm:generation_tokens_total x", "m.txt:1:30"),
        ("vllm:generation_tokens_total 1e400", "m.txt:1:30"),
        ("<html>", "m.txt:1:1"),
        ("vllm:prompt_tokens_total 3", "m.txt"),
        ("", "m.txt"),
    ],
)
def test_what_counts_nothing_is_refused(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_tokens(text.encode(), "m.txt")
    assert str(caught.value.problems[0].place) == place
