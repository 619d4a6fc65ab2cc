"""Every reason has a sentence, every sentence a reason, and no sentence stands in the search."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from decimal import Decimal
from string import Formatter

import pytest

from planner import figures
from planner.sentence import FORMATS, SENTENCES, describe
from planner.solve.cause import because
from tests.conftest import ROOT

CALLERS = ("planner/solve", "planner/workload")


def reasons() -> Iterator[tuple[str, int, str, set[str]]]:
    """File, line, code and names of the values of every reason that the search gives."""
    for folder in CALLERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "because"
                    and isinstance(node.args[0], ast.Constant)
                ):
                    code = str(node.args[0].value)
                    names = {str(k.arg) for k in node.keywords}
                    yield path.name, node.lineno, code, names


def wanted_values(code: str) -> set[str]:
    """The values that a sentence needs beside its key."""
    names = {name for _, name, _, _ in Formatter().parse(SENTENCES[code])}
    return {name for name in names if name} - {"key"}


def test_every_reason_has_a_sentence_that_uses_all_of_its_values() -> None:
    found = list(reasons())
    assert len(found) > 40
    for name, line, code, values in found:
        assert code in SENTENCES, f"{name}:{line}"
        assert values == wanted_values(code), f"{name}:{line} {code}"


def test_every_sentence_has_a_reason() -> None:
    told = {code for _, _, code, _ in reasons()}
    assert set(SENTENCES) == told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0042, "4.2 ms"),
        (0.04, "40 ms"),
        (1.44, "1.4 s"),
        (7200, "2.0 h"),
    ],
)
def test_times_are_told_in_one_way(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text
    assert figures.milliseconds(seconds * 1000) == text


@pytest.mark.parametrize("seconds", [0.00421, 0.0123, 1.41, 59.96, 4000.0])
def test_a_limit_that_is_told_is_never_tighter_than_what_is_reached(
    seconds: float,
) -> None:
    number, unit = figures.duration_at_least(seconds).split(" ")
    told = float(number) * {"ms": 1e-3, "s": 1, "h": 3600}[unit]
    assert seconds <= told * (1 + 1e-9)
    assert told < seconds * 1.1


def test_sentences_are_made_of_values() -> None:
    late = because("peak-time", "ttft_p95", reached_s=1.44, limit_s=0.4)
    assert describe(late) == "ttft_p95: 1.4 s > 400 ms at peak"
    budget = because("usd-month-at-least", value_usd=Decimal("99.01"))
    assert describe(budget) == "100/month"
    assert set(FORMATS) >= {"time", "at_least"}
    with pytest.raises(KeyError):
        describe(because("peak-time", "ttft_p95"))
