"""Prices of many regions are asked at once; a cloud that is down or slow delays no other one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from threading import Lock
from types import SimpleNamespace

import pytest

from planner.market.live import NO_ZONE
from planner.market.price_update import (
    COMMITTED,
    AnsweredQuestion,
    PriceQuestion,
)
from providers.live import place as live_place
from providers.live import price as live_price
from providers.live import term_price
from providers.live.price import AT_ONCE, ask_prices

REGIONS = tuple(f"region-{number:02d}" for number in range(20))


class Markets:
    """Clouds whose prices are 2 on demand, and 1 on spot in a zone."""

    def __init__(self) -> None:
        self.logged_out: set[str] = set()
        self.down: set[str] = set()
        self.slow_s: dict[str, float] = {}
        self.busy = 0
        self.most_busy = 0
        self.lock = Lock()

    def module(self, name: str) -> SimpleNamespace:
        _, cloud, room = name.split(".")
        if room == "account":
            return SimpleNamespace(signed_in=lambda _: self.login(cloud))
        return SimpleNamespace(
            PUBLIC_QUESTIONS=("on_demand_usd", "spot_usd")
            if cloud == "azure"
            else (),
            on_demand_prices=lambda _, names: self.answer(
                cloud, dict.fromkeys(names, Decimal(2))
            ),
            spot_prices=lambda _, names: self.answer(
                cloud, {name: {"z": Decimal(1)} for name in names}
            ),
            committed_prices=lambda _, names: self.answer(
                cloud,
                {name: {"reserved_1y_partial": Decimal(1)} for name in names},
            ),
        )

    def login(self, cloud: str) -> str:
        if cloud in self.logged_out:
            raise PermissionError("nobody is signed in")
        return "ada"

    def answer(self, cloud: str, prices: dict) -> dict:
        with self.lock:
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        time.sleep(self.slow_s.get(cloud, 0.001))
        with self.lock:
            self.busy -= 1
        if cloud in self.down:
            raise OSError("500: busy")
        return prices


@pytest.fixture
def markets(monkeypatch: pytest.MonkeyPatch) -> Markets:
    fake = Markets()
    for module in (live_place, term_price):
        monkeypatch.setattr(module, "import_module", fake.module)
    return fake


def questions(
    *clouds: str, regions: Sequence[str] = REGIONS
) -> list[PriceQuestion]:
    return [
        PriceQuestion(cloud, region, purchase, ("a", "b"))
        for cloud in clouds
        for region in regions
        for purchase in ("on_demand", "spot")
    ]


def states(answers: list[AnsweredQuestion]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in answers:
        found.setdefault(one.question.cloud, set()).add(one.answer.state)
    return found


def test_every_question_has_one_answer(markets: Markets) -> None:
    asked = questions("aws", "gcp", "azure")
    answers = list(ask_prices(asked, 30))
    assert sorted(one.question.place for one in answers) == sorted(
        question.place for question in asked
    )
    for one in answers:
        is_spot = one.question.purchase == "spot"
        price = {"z": Decimal(1)} if is_spot else {NO_ZONE: Decimal(2)}
        assert one.answer.value == {"a": price, "b": price}


def test_terms_are_answered_by_way_to_buy(markets: Markets) -> None:
    asked = PriceQuestion("aws", "us-east-1", COMMITTED, ("a", "b"))
    [one] = ask_prices([asked], 30)
    price = {"reserved_1y_partial": Decimal(1)}
    assert one.answer.value == {"a": price, "b": price}


def test_a_cloud_is_not_asked_everything_at_once(markets: Markets) -> None:
    list(ask_prices(questions("aws"), 30))
    assert 1 < markets.most_busy <= AT_ONCE


def test_one_cloud_is_down_and_the_others_answer(markets: Markets) -> None:
    markets.down.add("aws")
    markets.logged_out.update(("gcp", "azure"))
    answers = list(ask_prices(questions("aws", "gcp", "azure"), 30))
    assert states(answers) == {
        "aws": {"unknown"},
        "gcp": {"unknown"},
        # Its prices are everybody's.
        "azure": {"value"},
    }
    reasons = {one.question.cloud: one.answer.reason for one in answers}
    assert reasons["aws"] == "500: busy"
    assert reasons["gcp"] == "nobody is signed in"


def test_a_slow_cloud_delays_no_other_one(markets: Markets) -> None:
    markets.slow_s["aws"] = 60
    start = time.monotonic()
    answers = list(ask_prices(questions("aws", "azure"), 2))
    assert time.monotonic() - start < 30
    assert states(answers) == {"aws": {"unknown"}, "azure": {"value"}}
    # What is answered comes before what is not.
    assert [one.question.cloud for one in answers[: 2 * len(REGIONS)]] == [
        "azure"
    ] * (2 * len(REGIONS))
    assert answers[-1].answer.reason == "no answer in time"


def test_a_login_that_hangs_leaves_the_time_to_the_others(
    markets: Markets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_price, "LOGIN_S", 0.2)

    def login(cloud: str) -> str:
        if cloud == "aws":
            time.sleep(60)
        return "ada"

    monkeypatch.setattr(markets, "login", login)
    answers = list(ask_prices(questions("aws", "gcp"), 20))
    assert states(answers) == {"aws": {"unknown"}, "gcp": {"value"}}


def test_without_time_nothing_is_known(markets: Markets) -> None:
    answers = list(ask_prices(questions("azure"), 0))
    assert states(answers) == {"azure": {"unknown"}}
