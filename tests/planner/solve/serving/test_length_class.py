"""Borders between requests by length: which of them a router may send where."""

from __future__ import annotations

import itertools
import random
from array import array
from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.perf.common.constant import constant
from planner.perf.serving.trace import Trace
from planner.solve.serving.length_class import (
    BORDER_SHARES,
    TextBytes,
    border_at,
    borders,
    length_classes,
    text_bytes,
)
from planner.solve.serving.requirement import (
    CONTEXT_HEADROOM,
    ServingRequirement,
    serving_requirement,
)
from planner.spec.model import Inference
from tests.conftest import chat, present, spec_of

TEXT = text_bytes(None)


def required(
    traffic: str = "peak_rps: 8", more: str = ""
) -> ServingRequirement:
    spec = spec_of(chat(traffic=traffic, extra=more))
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


def recorded(seed: int, count: int = 4000) -> ServingRequirement:
    """A service with a recording: many short prompts, and some very long ones."""
    draw = random.Random(seed)
    arrival_s = array(
        "d",
        itertools.accumulate(draw.expovariate(20) for _ in range(count)),
    )
    prompts = array(
        "d",
        (
            draw.randint(20_000, 40_000)
            if draw.random() < 0.1
            else draw.randint(50, 2000)
            for _ in range(count)
        ),
    )
    answers = array("d", (draw.randint(2, 600) for _ in range(count)))
    return replace(required(), trace=Trace(arrival_s, prompts, answers))


@pytest.mark.parametrize("told", [None, Decimal("1.5"), Decimal(6)])
def test_bodies_of_any_text_are_where_the_border_says(
    told: Decimal | None,
) -> None:
    """Every prompt, with every text in the range, in every frame up to the one that is taken."""
    text = text_bytes(told)
    draw = random.Random(5)
    for _ in range(3000):
        border = border_at(draw.uniform(10, 60_000), text)
        tokens = draw.uniform(1, 2 * border.most_tokens)
        frame_bytes = draw.uniform(0, constant("request_frame"))
        body = tokens * draw.uniform(text.least, text.most) + frame_bytes
        if tokens <= border.sure_tokens:
            assert body <= border.body_bytes + 1e-6
        if tokens > border.most_tokens:
            assert body > border.body_bytes - 1e-6


def test_a_told_mean_moves_the_range_and_no_token_is_less_than_a_byte() -> None:
    published = TEXT.most / TEXT.least
    told = text_bytes(Decimal(6))
    assert told.least < 6 < told.most
    assert told.most / told.least == pytest.approx(published)
    assert text_bytes(Decimal(1)).least == constant("token_bytes", "least") == 1


def test_each_class_has_all_that_may_come_and_both_together_have_everything() -> (
    None
):
    requirement = required()
    whole_rps = requirement.load.rate_per_s
    found = borders(requirement, TEXT)
    assert len(found) == len(BORDER_SHARES)
    for border in found:
        short, long = present(length_classes(requirement, border))
        for first, second in (
            (short.widest, long.least),
            (short.least, long.widest),
        ):
            rates = [each.load.rate_per_s for each in (first, second)]
            assert sum(rates) == pytest.approx(whole_rps)
            tokens = [
                each.load.rate_per_s * each.load.prompt_lengths.mean_tokens
                for each in (first, second)
            ]
            assert sum(tokens) == pytest.approx(
                whole_rps * requirement.load.prompt_lengths.mean_tokens
            )
        assert short.widest.load.rate_per_s > short.least.load.rate_per_s
        assert long.widest.load.rate_per_s > long.least.load.rate_per_s


@pytest.mark.parametrize("seed", range(3))
def test_a_recording_is_divided_with_its_answers(seed: int) -> None:
    requirement = recorded(seed)
    whole = list(present(requirement.trace))
    for border in borders(requirement, TEXT):
        classes = length_classes(requirement, border)
        if classes is None:
            continue
        short, long = classes
        for first, second in (
            (short.widest, long.least),
            (short.least, long.widest),
        ):
            parts = [
                *present(first.trace),
                *present(second.trace),
            ]
            assert sorted(parts) == whole
        assert max(present(short.widest.trace).prompt_tokens) <= (
            border.most_tokens
        )
        assert min(present(long.widest.trace).prompt_tokens) > (
            border.sure_tokens
        )


def test_nothing_is_between_two_kinds_of_prompts_that_are_far_apart() -> None:
    """Prompts of 2,000 tokens and of 20,000: whatever their text, they are short and long."""
    requirement = recorded(7)
    gap = border_at(2000, TEXT)
    short, long = present(length_classes(requirement, gap))
    for each in (short, long):
        assert list(present(each.widest.trace)) == list(
            present(each.least.trace)
        )


def test_short_engines_hold_whatever_the_rule_may_send() -> None:
    """A token of one byte is the least there is; an answer has the room of the whole service."""
    requirement = replace(
        required(), load=replace(required().load, max_context_tokens=131_072)
    )
    answers = requirement.load.answer_lengths
    for border in borders(requirement, TEXT):
        short, long = present(length_classes(requirement, border))
        context = short.widest.load.max_context_tokens
        room = CONTEXT_HEADROOM * answers.p95_tokens
        assert context >= min(131_072, border.body_bytes + room)
        assert context == short.least.load.max_context_tokens
        assert long.widest.load.max_context_tokens == 131_072


@pytest.mark.parametrize("burstiness", [Decimal("0.3"), 1, 3])
def test_a_class_is_at_least_as_bursty_as_a_random_share(
    burstiness: Decimal,
) -> None:
    requirement = required(f"peak_rps: 8\n  burstiness: {burstiness}")
    whole = requirement.load
    for border in borders(requirement, TEXT):
        for each in present(length_classes(requirement, border)):
            least = min(1, float(burstiness) ** 2)
            variation = each.widest.load.arrival_variation
            assert variation >= whole.thinned_variation(each.share) - 1e-9
            assert variation >= whole.arrival_variation >= least


def test_equal_prompts_have_no_border() -> None:
    requirement = required()
    alike = replace(
        requirement.load.prompt_lengths, p95_tokens=1000.0, mean_tokens=1000.0
    )
    load = replace(requirement.load, prompt_lengths=alike)
    assert borders(replace(requirement, load=load), TEXT) == []


def test_a_recording_with_too_few_long_prompts_is_one_class() -> None:
    requirement = recorded(1, count=300)
    last = borders(requirement, TEXT)[-1]
    assert length_classes(requirement, last) is None


def test_a_border_needs_text_that_has_a_range() -> None:
    """Where all text has as many bytes a token, only the frame is between the classes."""
    border = border_at(1000, TextBytes(4, 4))
    frame_tokens = constant("request_frame") / 4
    assert border.most_tokens - border.sure_tokens == pytest.approx(
        frame_tokens
    )
