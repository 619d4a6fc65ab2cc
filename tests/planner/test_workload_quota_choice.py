"""The choice within limits: equal to every choice in turn, to the cent, and the same each time."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal

import pytest

from planner.workload.quota_choice import cheapest_choice
from planner.workload.quota_share import ChoiceOption
from tests.conftest import present

Options = list[list[ChoiceOption]]
SEEDS = 1200


def drawn(seed: int) -> tuple[Options, list[float]]:
    """Some with options of large odd bills, small ones, and many of the same cost."""
    draw = random.Random(seed)
    limits = [
        float(draw.randint(0, 20)) + draw.choice((0.0, 0.5))
        for _ in range(draw.randint(1, 3))
    ]
    most_cents = draw.choice((3, 300, 50_000_000))
    options = [
        [
            ChoiceOption(
                Decimal(draw.randint(0, most_cents)) / 100,
                tuple(float(draw.randint(0, 9)) for _ in limits),
            )
            for _ in range(draw.randint(1, 4))
        ]
        for _ in range(draw.randint(1, 5))
    ]
    return options, limits


def every_choice(
    options: Options, limits: Sequence[float]
) -> list[tuple[Decimal, tuple[int, ...]]]:
    """The cost of each choice that fits, and its positions."""
    choices = []
    for picks in itertools.product(*(range(len(own)) for own in options)):
        chosen = [own[pick] for own, pick in zip(options, picks, strict=True)]
        units = [
            sum(each)
            for each in zip(*(option.units for option in chosen), strict=True)
        ]
        if all(map(float.__le__, units, limits)):
            usd = sum((option.usd for option in chosen), Decimal(0))
            choices.append((usd, picks))
    return choices


@pytest.mark.parametrize("first", range(0, SEEDS, 200))
def test_no_choice_is_cheaper_and_of_equals_it_is_the_first(first: int) -> None:
    for seed in range(first, first + 200):
        options, limits = drawn(seed)
        chosen = cheapest_choice(options, limits)
        truth = min(every_choice(options, limits), default=(None, None))
        assert (chosen.bound_usd, chosen.picks) == truth, seed


def hard(draw: random.Random) -> tuple[Options, list[float]]:
    """Thirty who share three limits, which no short search settles."""
    options = [
        [
            ChoiceOption(
                Decimal(draw.randint(10_000, 99_999)) / 100,
                tuple(float(draw.randint(5, 99)) for _ in range(3)),
            )
            for _ in range(5)
        ]
        for _ in range(30)
    ]
    return options, [1200.0, 1200.0, 1200.0]


def test_a_search_that_ends_early_says_how_far_off_it_may_be() -> None:
    """The bound of one node holds for the choice that is proved."""
    options, limits = hard(random.Random(3))
    early = cheapest_choice(options, limits, most_nodes=1)
    proved = cheapest_choice(options, limits)
    usd = sum(
        (
            own[pick].usd
            for own, pick in zip(options, present(proved.picks), strict=True)
        ),
        Decimal(0),
    )
    assert usd == proved.bound_usd
    assert present(early.bound_usd) < usd
    if early.picks is not None:
        early_usd = sum(
            own[pick].usd
            for own, pick in zip(options, early.picks, strict=True)
        )
        assert early_usd >= usd


def test_fifty_alike_are_the_first_by_their_place() -> None:
    """Where all choices of so many cost the same, the first have their first option."""
    own = [
        ChoiceOption(Decimal("90.01"), (8.0,)),
        ChoiceOption(Decimal("100.02"), (0.0,)),
    ]
    chosen = cheapest_choice([own] * 50, [200.0])
    assert chosen.picks == (0,) * 25 + (1,) * 25


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    cheapest_choice(*drawn(1))
    assert capfd.readouterr() == ("", "")


def test_the_solver_is_loaded_only_where_a_quota_couples() -> None:
    """Plans of one service, and services that fit together, wait for no solver."""
    code = (
        "import sys, planner, planner.api, planner.cli.plan, planner.cli.portfolio\n"
        "from planner.cli.main import run\n"
        "run(['plan', '--share', 'blueprints/chat-8b.yaml', 'blueprints/chat-70b.yaml'])\n"
        "sys.exit(bool({'highspy', 'numpy'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True
    )
    assert process.returncode == 0, process.stderr
