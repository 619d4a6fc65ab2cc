"""Sliders: each of their places is a spec that can be read, and none is asked by itself."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.errors import UsageError
from planner.spec.load import load_spec
from planner.spec.plain import plain_values
from planner.workload.slider import (
    COMMIT_WORDS,
    Question,
    Slider,
    plain,
    read_question,
    sliders_of,
)
from tests.conftest import BLUEPRINTS, chat, spec_of

CONFIDENCE = 90


def places(slider: Slider) -> list[Decimal]:
    """Every place that a slider of a browser has: the lowest and whole steps from there."""
    count = int((slider.high - slider.low) / slider.step)
    return [slider.low + number * slider.step for number in range(count + 1)]


def asked(text: str, **amounts: str) -> Question:
    return read_question(
        spec_of(text), CONFIDENCE, {key: [amounts[key]] for key in amounts}
    )


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.stem)
def test_every_place_is_a_spec(path) -> None:
    content = path.read_bytes()
    spec = load_spec(content, path.name)
    for slider in sliders_of(spec, CONFIDENCE):
        # The browser shows the written place, and no other one near it.
        assert slider.written in places(slider)
        for amount in (places(slider)[0], places(slider)[-1], slider.written):
            question = read_question(
                spec, CONFIDENCE, {slider.name: [plain(amount)]}
            )
            moved = load_spec(content, path.name, question.overrides)
            is_same = plain_values(moved) == plain_values(spec)
            assert is_same == (amount == slider.written or not slider.key)


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.stem)
def test_what_is_not_asked_is_as_written(path) -> None:
    spec = load_spec(path.read_bytes(), path.name)
    question = read_question(spec, CONFIDENCE, {})
    assert question.overrides == ()
    assert question.confidence == CONFIDENCE
    # A browser sends all fields of a form.
    whole = {
        slider.name: [plain(slider.written)]
        for slider in sliders_of(spec, CONFIDENCE)
    }
    form: dict[str, list[str]] = {
        **whole,
        "spot": [spec.buy.spot],
        "commit": [*spec.buy.commit],
    }
    assert read_question(spec, CONFIDENCE, form) == question


def test_traffic_is_times_what_is_written_and_limits_are_themselves() -> None:
    question = read_question(
        spec_of(chat()),
        CONFIDENCE,
        {
            "traffic": ["1.5"],
            "sla.ttft_p95": ["1500"],
            "confidence": ["95"],
            "spot": ["never"],
            "commit": ["3y", "none", "3y"],
        },
    )
    assert list(map(str, question.overrides)) == [
        "traffic.peak_rps=3",
        "sla.ttft_p95=1500ms",
        "buy.spot=never",
        "buy.commit=[none, 3y]",
    ]
    assert question.confidence == 95


def test_a_whole_number_stays_one() -> None:
    text = chat(traffic="concurrency: 1")
    assert list(map(str, asked(text, traffic="0.25").overrides)) == [
        "traffic.concurrency=1"
    ]
    assert list(map(str, asked(text, traffic="2.75").overrides)) == [
        "traffic.concurrency=3"
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ("800ms", "800 ms"),
        ("9s", "9000 ms"),
        ("20s", "20 s"),
        ("2h", "2 h"),
        ("10000s", "10000 s"),
        ("0.3ms", "0.3 ms"),
    ],
)
def test_limits_are_in_the_unit_that_people_read(
    seconds: str, shown: str
) -> None:
    spec = spec_of(chat(sla=f"e2e_p95: {seconds}"))
    [limit] = [x for x in sliders_of(spec, 90) if x.name == "sla.e2e_p95"]
    assert f"{plain(limit.written)} {limit.unit}" == shown


def test_a_trace_says_its_traffic_itself() -> None:
    spec = spec_of(chat(traffic="trace: trace.csv"))
    names = [slider.name for slider in sliders_of(spec, CONFIDENCE)]
    assert "traffic" not in names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("traffic", "0.2"),
        ("traffic", "4.1"),
        ("traffic", "-1"),
        ("traffic", "1e0"),
        ("traffic", "NaN"),
        ("traffic", "Infinity"),
        ("traffic", "\u0661"),
        ("traffic", ""),
        ("confidence", "49"),
        ("confidence", "100"),
        ("confidence", "90.5"),
        ("spot", "Never"),
        ("commit", "2y"),
        ("labels", "x"),
    ],
)
def test_what_no_slider_says_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(chat(), **{name: said})
    [problem] = refused.value.problems
    assert problem.code == "question"


def test_commitments_are_those_that_a_spec_may_name() -> None:
    for word in COMMIT_WORDS:
        spec_of(chat(extra=f"buy: {{commit: [{word}]}}"))
