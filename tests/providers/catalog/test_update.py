"""An update that was cut off asks only for what is missing, and what it writes has its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from planner.market.price_update import AnsweredQuestion, PriceQuestion
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest
from providers.catalog.update import gather_answers, updated_tables
from tests.planner.market.price_rows import NOW, answered, price_row

START = datetime.fromisoformat(NOW)
REGIONS = ("r1", "r2", "r3", "r4")
NAMES = ("a", "b")


class Clouds:
    """Clouds that answer in the order of the questions, but not for all regions."""

    def __init__(self, silent: tuple[str, ...] = (), cut_after: int = 99):
        self.silent = silent
        self.cut_after = cut_after
        self.asked: list[str] = []

    def ask(
        self, questions: Sequence[PriceQuestion]
    ) -> Iterator[AnsweredQuestion]:
        for question in questions:
            if len(self.asked) == self.cut_after:
                raise KeyboardInterrupt
            self.asked.append(question.region)
            is_silent = question.region in self.silent
            yield answered(
                None if is_silent else {"a": "1.50", "b": "NaN"},
                region=question.region,
                machine_types=question.machine_types,
            )


@pytest.fixture
def gathered(tmp_path: Path) -> Callable[..., list[AnsweredQuestion]]:
    def gather(
        clouds: Clouds, minutes: int = 1, names: tuple[str, ...] = NAMES
    ) -> list[AnsweredQuestion]:
        questions = [
            PriceQuestion("aws", region, "on_demand", names)
            for region in REGIONS
        ]
        return list(
            gather_answers(
                questions,
                tmp_path / "below" / "update.json",
                clouds.ask,
                START + timedelta(minutes=minutes),
            )
        )

    return gather


@pytest.mark.parametrize("cut_after", range(4))
def test_a_run_goes_on_where_it_was_cut_off(gathered, cut_after: int) -> None:
    first, second = Clouds(cut_after=cut_after), Clouds()
    with pytest.raises(KeyboardInterrupt):
        gathered(first)
    resumed = gathered(second)
    assert [*first.asked, *second.asked] == list(REGIONS)
    assert [one.question.region for one in resumed] == list(REGIONS)
    prices = resumed[0].answer.value
    assert prices is not None
    assert {name: str(usd[""]) for name, usd in prices.items()} == {
        "a": "1.50",
        "b": "NaN",
    }


def test_what_nobody_answered_is_asked_again(gathered) -> None:
    gathered(Clouds(silent=("r2", "r3")))
    second = Clouds()
    gathered(second)
    assert second.asked == ["r2", "r3"]


@pytest.mark.parametrize("minutes", [60, 6000, -1])
def test_an_old_answer_is_none(gathered, minutes: int) -> None:
    """Neither is one of the future: somebody has set the clock."""
    gathered(Clouds())
    second = Clouds()
    gathered(second, minutes=minutes)
    assert second.asked == list(REGIONS)


def test_an_answer_about_fewer_types_is_none(gathered) -> None:
    gathered(Clouds(), names=("a",))
    wider, narrower = Clouds(), Clouds()
    gathered(wider)
    assert wider.asked == list(REGIONS)
    gathered(narrower, names=("b",))
    assert narrower.asked == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"question": {}}]'])
def test_a_damaged_file_answers_nothing(
    gathered, tmp_path: Path, text: str
) -> None:
    gathered(Clouds())
    (tmp_path / "below" / "update.json").write_text(text)
    second = Clouds()
    gathered(second)
    assert second.asked == list(REGIONS)


def test_who_answered_is_a_source_once() -> None:
    texts, _, _ = verify_manifest(CATALOG_FOLDER / "manifest.json")
    rows = [price_row("1")]
    first = updated_tables(texts, rows, {"gcp", "aws"}, "2026-11-22")
    assert first["zones.csv"] == texts["zones.csv"]
    added = first["sources.csv"].removeprefix(texts["sources.csv"])
    assert added.splitlines() == [
        "live-aws,what aws answered to tonnage catalog update,2026-11-22,",
        "live-gcp,what gcp answered to tonnage catalog update,2026-11-22,",
    ]
    second = updated_tables(first, rows, {"aws"}, "2026-11-23")
    assert second["sources.csv"] == first["sources.csv"].replace(
        "live-aws,what aws answered to tonnage catalog update,2026-11-22",
        "live-aws,what aws answered to tonnage catalog update,2026-11-23",
    )
