"""The sequential test of percentiles, on batches whose percentiles are known."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Final

import pytest

from planner.numeric import nearest_rank
from planner.perf.serving.trial import (
    LOOKS,
    Trial,
    TrialLimit,
    late_for_sure,
    late_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.serving.simulation import RequestTimes
    from planner.perf.serving.trial import Decision, Verdict

TRIALS: Final = 400
MOST_WRONG: Final = 0.05  # share of trials, as the module promises
MEAN_S: Final = 0.5
PERCENTILES: Final = (50, 90, 95, 99)


def batch_size(percentile: int) -> int:
    """As a fleet is judged: three requests beyond the percentile, and 120 in any case."""
    return max(120, round(3 / (1 - percentile / 100)))


def exponential_batches(seed: int, percentile: int) -> Iterator[RequestTimes]:
    """Independent exponential times; each metric has a mean of its own, one after the other."""
    source = random.Random(seed)
    size = batch_size(percentile)
    while True:
        yield {
            metric: [source.expovariate(1 / mean_s) for _ in range(size)]
            for metric, mean_s in (
                ("ttft", MEAN_S),
                ("tpot", MEAN_S / 10),
                ("e2e", MEAN_S * 20),
            )
        }


def only_ttft(seed: int, percentile: int) -> Iterator[RequestTimes]:
    source = random.Random(seed)
    size = batch_size(percentile)
    while True:
        yield {"ttft": [source.expovariate(1 / MEAN_S) for _ in range(size)]}


def true_percentile(percentile: int) -> float:
    return -MEAN_S * math.log(1 - percentile / 100)


def decisions(percentile: int, limit_share: float) -> list[Decision]:
    """What many runs say of a limit of so many times the truth."""
    limit = TrialLimit(
        "ttft", percentile, limit_share * true_percentile(percentile)
    )
    return [
        Trial(only_ttft(seed, percentile)).decide([limit])
        for seed in range(TRIALS)
    ]


def verdict_shares(percentile: int, limit_share: float) -> dict[Verdict, float]:
    """Shares of verdicts on a limit of so many times the truth."""
    verdicts = [
        decision.verdict for decision in decisions(percentile, limit_share)
    ]
    return {
        verdict: verdicts.count(verdict) / TRIALS
        for verdict in ("holds", "misses", "undecided")
    }


@pytest.mark.parametrize("percentile", PERCENTILES)
@pytest.mark.parametrize("limit_share", [0.9, 0.97, 1.0])
def test_a_fleet_beyond_its_limit_seldom_holds(
    percentile: int, limit_share: float
) -> None:
    assert verdict_shares(percentile, limit_share)["holds"] <= MOST_WRONG


@pytest.mark.parametrize("percentile", PERCENTILES)
@pytest.mark.parametrize("limit_share", [1.0, 1.03, 1.2])
def test_a_fleet_within_its_limit_seldom_misses(
    percentile: int, limit_share: float
) -> None:
    assert verdict_shares(percentile, limit_share)["misses"] <= MOST_WRONG


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_what_is_far_from_a_limit_is_decided(percentile: int) -> None:
    """A half and a doubled limit: an undecided trial would prove nothing."""
    assert verdict_shares(percentile, 2.0)["holds"] >= 1 - MOST_WRONG
    assert verdict_shares(percentile, 0.5)["misses"] >= 1 - MOST_WRONG


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_what_is_undecided_is_judged_as_it_is_measured(
    percentile: int,
) -> None:
    limit = TrialLimit("ttft", percentile, true_percentile(percentile))
    found = []
    for seed in range(100):
        trial = Trial(only_ttft(seed, percentile))
        decision = trial.decide([limit])
        measured_s = trial.percentile(
            "ttft", percentile, decision.batch_count
        ).estimate_s
        if decision.verdict == "undecided":
            found.append(decision.limit is None)
            assert (measured_s <= limit.limit_s) == found[-1], seed
    assert True in found
    assert False in found


@pytest.mark.parametrize("limit_share", [1.02, 1.05, 1.08, 1.1, 1.2])
def test_what_holds_does_so_with_other_requests(limit_share: float) -> None:
    """Of thirty other runs 29 keep the limit, in all but a few of the runs that hold."""
    others = decisions(95, limit_share)
    keeping = sum(decision.limit is None for decision in others) / TRIALS
    holding = verdict_shares(95, limit_share)["holds"]
    assert keeping >= 29 / 30 or holding <= MOST_WRONG


def test_a_run_that_is_given_up_would_seldom_have_kept_its_limit() -> None:
    limit = TrialLimit("ttft", 95, true_percentile(95))
    kept = []
    for seed in range(TRIALS):
        trial = Trial(only_ttft(seed, 95))
        decision = trial.decide([limit])
        if (
            decision.verdict == "undecided"
            and decision.limit is not None
            and decision.batch_count < LOOKS[-1]
        ):
            whole_run = itertools.chain.from_iterable(
                batch["ttft"]
                for batch in itertools.islice(only_ttft(seed, 95), LOOKS[-1])
            )
            kept.append(nearest_rank(sorted(whole_run), 0.95) <= limit.limit_s)
    assert len(kept) >= 20
    assert sum(kept) / len(kept) <= 2 * MOST_WRONG


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_the_interval_of_a_look_includes_the_truth(percentile: int) -> None:
    truth = true_percentile(percentile)
    included = 0
    for seed in range(TRIALS):
        measured = Trial(only_ttft(seed, percentile)).percentile(
            "ttft", percentile, LOOKS[0]
        )
        included += measured.low_s <= truth <= measured.high_s
    assert included / TRIALS >= 1 - MOST_WRONG


def test_an_interval_of_times_that_are_alike_ends_before_the_latest() -> None:
    """Crowds move all of a batch by little; one request of the run is far above the others."""
    for seed in range(40):
        source = random.Random(seed)
        batches = []
        for _ in range(LOOKS[0]):
            crowd_s = source.choice((0.0, 0.0, 0.02))
            batches.append(
                {
                    "ttft": [
                        1 + crowd_s + source.random() / 100 for _ in range(120)
                    ]
                }
            )
        batches[seed % LOOKS[0]]["ttft"][seed] = 100.0
        measured = Trial(iter(batches)).percentile("ttft", 95, LOOKS[0])
        assert measured.low_s <= measured.estimate_s <= measured.high_s < 1.1


def limits_of(source: random.Random) -> list[TrialLimit]:
    """Limits around the truth, on several metrics and percentiles."""
    scales = {"ttft": 1.0, "tpot": 0.1, "e2e": 20.0}
    return [
        TrialLimit(
            metric,
            percentile,
            true_percentile(percentile) * scale * source.uniform(0.85, 1.2),
        )
        for metric, scale in scales.items()
        for percentile in source.sample(PERCENTILES, 2)
    ]


def test_the_order_of_questions_changes_no_answer() -> None:
    for seed in range(15):
        source = random.Random(f"questions {seed}")
        limits = limits_of(source)
        questions = [[limit] for limit in limits]
        questions += [source.sample(limits, 3) for _ in range(4)]
        order = list(range(len(questions)))
        answers = []
        for _ in range(3):
            trial = Trial(exponential_batches(seed, 95))
            verdicts = {
                index: trial.decide(questions[index]) for index in order
            }
            measured = [
                trial.percentile(limit.metric, limit.percentile, LOOKS[0])
                for limit in limits
            ]
            answers.append((sorted(verdicts.items()), measured))
            source.shuffle(order)
        assert answers[0] == answers[1] == answers[2], seed


def test_a_question_that_was_asked_before_costs_no_batch() -> None:
    trial = Trial(exponential_batches(1, 95))
    limits = limits_of(random.Random(1))
    verdict = trial.decide(limits)
    request_count = trial.request_count
    assert trial.decide(limits) == verdict
    assert trial.request_count == request_count


def test_all_limits_hold_when_each_one_holds() -> None:
    """Together they hold when all do, and miss when one does."""
    for seed in range(30):
        trial = Trial(exponential_batches(seed, 95))
        limits = limits_of(random.Random(f"limits {seed}"))
        each = [trial.decide([limit]).verdict for limit in limits]
        together = trial.decide(limits)
        if together.verdict == "holds":
            assert "misses" not in each, seed
        if set(each) == {"holds"}:
            # One may come closer again while another one is looked at longer.
            assert together.limit is None, seed
        if "misses" not in each:
            assert together.verdict != "misses", seed


def test_a_sure_miss_is_a_miss_of_all_shares_between() -> None:
    """Drawn bounds of the shares of late requests, and shares between them."""
    found = []
    for seed in range(300):
        draw = random.Random(seed)
        limit = TrialLimit("ttft", 90, 1.0)
        least = [draw.uniform(0, 0.5) for _ in range(8)]
        most = [share + draw.uniform(0, 0.2) ** 2 for share in least]
        found.append(late_for_sure(least, most, limit))
        if found[-1]:
            for _ in range(20):
                shares = [
                    draw.choice([low, high, draw.uniform(low, high)])
                    for low, high in zip(least, most, strict=True)
                ]
                assert late_share(shares).misses(limit)
    assert 30 < sum(found) < 270
