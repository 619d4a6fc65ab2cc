"""Questions about two pools: few of them, and they end in what is true."""

from __future__ import annotations

import math
import random

import pytest
from msgspec.structs import replace

from planner.solve.serving.pool_split import PoolBounds, telling_rate
from planner.solve.serving.replica_capacity import CLOSE_SHARE, SAME_SHARE

MOST_QUESTIONS = 20


def carries_all(
    pools: list[PoolBounds], capacities: list[float], rate_rps: float
) -> tuple[bool, int]:
    """Ask until the pools are known to be enough or too few, and count the questions."""
    for questions in range(MOST_QUESTIONS + 1):
        if sum(pool.carried_rps for pool in pools) >= rate_rps * (1 - 1e-9):
            return True, questions
        if sum(pool.most_rps for pool in pools) < rate_rps:
            return False, questions
        question = telling_rate(pools, rate_rps, CLOSE_SHARE)
        if question is None:
            return False, questions
        index, group_rps = question
        pool = pools[index]
        assert pool.low_rps <= group_rps <= pool.high_rps * (1 + 1e-9)
        if group_rps <= capacities[index]:
            pools[index] = replace(pool, low_rps=group_rps)
        else:
            # What fails at a rate carries less.
            pools[index] = replace(pool, high_rps=group_rps * (1 - SAME_SHARE))
    pytest.fail("the questions do not end")


@pytest.mark.parametrize("seed", range(500))
def test_questions_end_in_what_is_true(seed: int) -> None:
    """Drawn pools: enough when they carry all, too few when a hundredth is missing."""
    draw = random.Random(seed)
    pools = []
    capacities = []
    for _ in range(2):
        high_rps = draw.uniform(0.1, 10)
        capacities.append(high_rps * draw.choice([0, 0.1, 0.5, 0.9, 1]))
        useful_rps = draw.choice([math.inf, 0.0, draw.uniform(0, high_rps)])
        pools.append(PoolBounds(draw.randint(1, 12), 0.0, high_rps, useful_rps))
    carried_rps = sum(
        pool.groups * capacity
        for pool, capacity in zip(pools, capacities, strict=True)
    )
    most_rps = sum(pool.most_rps for pool in pools)
    rate_rps = draw.uniform(0.3, 1) * most_rps
    is_enough, _ = carries_all(pools, capacities, rate_rps)
    if is_enough:
        assert carried_rps >= rate_rps * (1 - 1e-6)
    else:
        assert carried_rps < rate_rps * (1 + CLOSE_SHARE)


def test_one_question_rules_out_a_pool_that_carries_nothing() -> None:
    """The second one carries 3 of 4 at most, so the first is asked for 1."""
    pools = [PoolBounds(1, 0.0, 1.5), PoolBounds(1, 2.9, 3.0)]
    assert telling_rate(pools, 4.0, CLOSE_SHARE) == (0, 1.0)
    assert carries_all(pools, [0.0, 3.0], 4.0) == (False, 1)


def test_what_one_carries_is_not_asked_of_the_other() -> None:
    """Of 10 one is known to carry 7, so the other is asked for the rest and not for half."""
    pools = [PoolBounds(2, 3.5, 4.5), PoolBounds(3, 0.0, 2.5)]
    assert telling_rate(pools, 10.0, CLOSE_SHARE) == (1, 1.0)


def test_what_another_fleet_may_ask_widens_the_range() -> None:
    """The other pool leaves 7 to 8; another fleet may ask for 4 already, or from 5 on."""
    pools = [PoolBounds(1, 0.0, 8.0), PoolBounds(1, 0.0, 3.0)]
    assert telling_rate(pools, 10.0, CLOSE_SHARE) == (0, 7.0)
    pools[0] = replace(pools[0], useful_rps=4.0)
    assert telling_rate(pools, 10.0, CLOSE_SHARE) == (0, 6.0)
    pools[0] = replace(pools[0], low_rps=5.0)
    assert telling_rate(pools, 10.0, CLOSE_SHARE) == (0, 6.5)
