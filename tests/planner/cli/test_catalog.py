"""An update of the catalog, from clouds that answer to plans at their prices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from planner.market.price_row import PriceRow, read_price_rows
from planner.market.term import TERM_OF
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest
from providers.live import place as live_place
from providers.live import term_price
from tests.conftest import TODAY, chat
from tests.planner.cli.conftest import Command

EMBEDDED = read_price_rows((CATALOG_FOLDER / "prices.csv").read_text())
# Two regions of two clouds, in which each purchase has many types.
SCOPE = ("--regions", "us-east-1,eastus")
SCOPED = [row for row in EMBEDDED if row.region in ("us-east-1", "eastus")]
ASKED = [
    row
    for row in SCOPED
    if row.purchase in ("on_demand", "spot")
    # AWS names its reserved instances in its list of prices.
    or (row.purchase in TERM_OF and row.source.startswith("vantage"))
]


class Sellers:
    """Clouds that sell at the prices of the embedded catalog, times a factor of each price."""

    def __init__(self) -> None:
        self.factor: Callable[[PriceRow], Decimal | None] = lambda _: Decimal(1)
        self.silent: set[str] = set()
        self.questions: list[str] = []

    def module(self, name: str) -> SimpleNamespace:
        _, cloud, room = name.split(".")
        if room == "account":
            return SimpleNamespace(signed_in=lambda _: "ada")
        return SimpleNamespace(
            PUBLIC_QUESTIONS=(),
            on_demand_prices=lambda region, names: self.prices(
                cloud, region, names, "on_demand"
            ),
            spot_prices=lambda region, names: {
                machine_type: {"": usd_hour}
                for machine_type, usd_hour in self.prices(
                    cloud, region, names, "spot"
                ).items()
            },
            committed_prices=self.terms,
        )

    def terms(
        self, region: str, names: tuple[str, ...]
    ) -> dict[str, dict[str, Decimal]]:
        """Reserved instances alone: a list of prices has no savings plans."""
        self.questions.append(f"aws {region} committed")
        if "aws" in self.silent:
            raise OSError("500: busy")
        found: dict[str, dict[str, Decimal]] = {}
        for row in EMBEDDED:
            factor = self.factor(row)
            if (
                row in ASKED
                and row.purchase in TERM_OF
                and (row.provider, row.region) == ("aws", region)
                and row.instance_type in names
                and factor is not None
            ):
                found.setdefault(row.instance_type, {})[row.purchase] = (
                    row.usd * factor
                )
        return found

    def prices(
        self, cloud: str, region: str, names: tuple[str, ...], purchase: str
    ) -> dict[str, Decimal]:
        self.questions.append(f"{cloud} {region} {purchase}")
        if cloud in self.silent:
            raise OSError("500: busy")
        return {
            row.instance_type: row.usd * factor
            for row in EMBEDDED
            if (row.provider, row.region, row.purchase)
            == (cloud, region, purchase)
            and row.instance_type in names
            and (factor := self.factor(row)) is not None
        }


@pytest.fixture
def sellers(monkeypatch: pytest.MonkeyPatch) -> Sellers:
    fake = Sellers()
    for module in (live_place, term_price):
        monkeypatch.setattr(module, "import_module", fake.module)
    return fake


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of catalogs, which no run has made."""
    path = here / "data"
    monkeypatch.setenv("TONNAGE_CATALOGS", str(path))
    return path


def updated(tonnage: Command, *flags: str, code: int = 0) -> dict:
    found, out, err = tonnage("catalog", "update", *SCOPE, "-f", "json", *flags)
    assert found == code, err
    report: dict = json.loads(out)
    return report


def listed(tonnage: Command) -> dict[str, dict[str, str]]:
    rows = json.loads(tonnage("catalog", "list", "-f", "json")[1])
    return {row["name"]: row for row in rows}


def is_types(*names: str) -> Callable[[PriceRow], bool]:
    return lambda row: row.instance_type in names


def test_the_same_prices_are_dated_today_and_nothing_else_changes(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    report = updated(tonnage)
    assert (report["asked"], report["answered"]) == (5, 5)
    name = report["catalog"]
    texts, sha256, as_of = verify_manifest(folder / name / "manifest.json")
    assert (as_of, name) == (TODAY, f"{TODAY}-{sha256[:8]}")
    rows = read_price_rows(texts["prices.csv"])
    of_today = [row for row in rows if row.as_of == TODAY]
    assert sorted(row.key for row in of_today) == sorted(
        row.key for row in ASKED
    )
    sources = {"aws": "live-aws", "azure": "live-azure"}
    assert {(row.provider, row.source) for row in of_today} == set(
        sources.items()
    )
    assert [row for row in rows if row.as_of != TODAY] == [
        row for row in EMBEDDED if row not in ASKED
    ]
    # Nothing is left beside it.
    assert [path.name for path in folder.iterdir()] == [name]
    entry = listed(tonnage)[name]
    assert entry["of_day"] == str(len(ASKED))
    assert (entry["prices"], entry["used"]) == (str(len(EMBEDDED)), "")


def test_a_cloud_that_is_down_leaves_its_prices_as_they_are(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    sellers.silent.add("azure")
    code, out, err = tonnage("catalog", "update", *SCOPE)
    assert code == 0
    assert "azure did not answer 2 questions: 500: busy" in out
    assert "5 of 5" in err
    [name] = [path.name for path in folder.iterdir()]
    assert f"wrote {name}" in out
    rows = read_price_rows((folder / name / "prices.csv").read_text())
    assert [row for row in rows if row.provider == "azure"] == [
        row for row in EMBEDDED if row.provider == "azure"
    ]


def test_where_nobody_answers_nothing_is_written(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    sellers.silent.update(("aws", "azure"))
    code, _, err = tonnage("catalog", "update", *SCOPE)
    assert code == 4
    assert "no cloud answered" in err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("on_demand", "spot", "refusal"),
    [
        ("100", "1", "changed by more than 2 times"),
        ("1", "0.01", "changed by more than 2 times"),
        ("1", "NaN", "zero, negative or no number"),
        ("-1", "1", "zero, negative or no number"),
        ("0", "0", "zero, negative or no number"),
        (None, "1", "aws on_demand vanished"),
        ("0.5", "1.9", "are not below on demand"),
    ],
)
def test_odd_prices_are_refused_until_they_are_accepted(
    tonnage: Command,
    sellers: Sellers,
    folder: Path,
    on_demand: str | None,
    spot: str,
    refusal: str,
) -> None:
    """Factors of the prices of AWS; those of Azure stay as they are."""

    def odd(row: PriceRow) -> Decimal | None:
        if row.provider != "aws":
            return Decimal(1)
        factor = on_demand if row.purchase == "on_demand" else spot
        return None if factor is None else Decimal(factor)

    sellers.factor = odd
    code, out, err = tonnage("catalog", "update", *SCOPE)
    assert code == 13
    assert refusal in err
    command = f"tonnage catalog update --regions {SCOPE[1]} --accept"
    assert f"next: look at each, and if they are right: {command}" in err
    assert "aws" in out
    assert list(listed(tonnage)) == ["embedded"]
    asked = len(sellers.questions)
    report = updated(tonnage, "--accept")
    # What was reviewed is written: nobody is asked again.
    assert len(sellers.questions) == asked
    assert refusal in "; ".join(report["refusals"])
    assert list(listed(tonnage)) == ["embedded", report["catalog"]]
    # The next update asks again.
    updated(tonnage, "--accept")
    assert len(sellers.questions) == 2 * asked


def test_what_a_review_shows_are_the_prices_themselves(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    is_p5 = is_types("p5.48xlarge")
    sellers.factor = lambda row: Decimal(3 if is_p5(row) else 1)
    report = updated(tonnage, "--clouds", "aws", "--types", "p5.*", code=13)
    jumps = [c for c in report["concerns"] if c["concern"] == "jump"]
    assert {(jump["type"], jump["purchase"]) for jump in jumps} == {
        ("p5.48xlarge", "on_demand"),
        ("p5.48xlarge", "spot"),
        # A year is a savings plan there, which the list of prices does not name.
        ("p5.48xlarge", "reserved_3y"),
        ("p5.48xlarge", "reserved_3y_partial"),
        ("p5.48xlarge", "reserved_3y_upfront"),
    }
    for jump in jumps:
        ratio = Decimal(jump["usd_hour"]) / Decimal(jump["old_usd_hour"])
        assert ratio == 3
    assert report["catalog"] is None


def test_an_interrupted_update_asks_only_for_the_rest(
    tonnage: Command,
    sellers: Sellers,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from planner.cli import catalog_update

    shown: list[str] = []

    def cut_off(answered) -> str:
        if len(shown) == 2:
            raise KeyboardInterrupt
        shown.append(" ".join(answered.question.place))
        return shown[-1]

    with monkeypatch.context() as patched:
        patched.setattr(catalog_update, "_answer_text", cut_off)
        assert tonnage("catalog", "update", *SCOPE)[0] == 8
    assert [path.name for path in folder.iterdir()] == ["update.json"]
    sellers.questions.clear()
    report = updated(tonnage)
    assert report["answered"] == 5
    # The third was kept before the interruption.
    assert len(sellers.questions) == 2
    assert not set(sellers.questions) & set(shown)


def test_plans_use_what_was_chosen_and_name_it(
    tonnage: Command, sellers: Sellers, folder: Path, here: Path
) -> None:
    (here / "s.yaml").write_text(
        chat(extra="where: {clouds: [aws], regions: [us-east-1]}")
    )

    def planned(*flags: str) -> dict:
        code, out, err = tonnage("plan", "s.yaml", "-f", "json", *flags)
        assert code == 0, err
        plan: dict = json.loads(out)
        return plan

    before = planned()
    sellers.factor = lambda _: Decimal("1.25")
    assert updated(tonnage, code=13)["refusals"]
    name = updated(tonnage, "--accept")["catalog"]
    assert planned() == before
    code, out, _ = tonnage("catalog", "use", name)
    assert (code, name in out) == (0, True)
    assert [n for n, row in listed(tonnage).items() if row["used"]] == [name]
    after = planned()
    assert after["catalog"]["as_of"] == TODAY
    assert after["catalog"]["sha256"].startswith(name[-8:])
    assert Decimal(after["cost"]["total"]) > Decimal(before["cost"]["total"])
    # A second start reads what the first has kept.
    assert planned() == after
    embedded = str(CATALOG_FOLDER / "manifest.json")
    assert planned("--catalog", embedded) == before
    assert tonnage("catalog", "use", "embedded")[0] == 0
    assert planned() == before
    assert tonnage("catalog", "use", name)[0] == 0
    shutil.rmtree(folder / name)
    code, _, err = tonnage("plan", "s.yaml")
    assert code == 13
    assert "next: use the embedded one: tonnage catalog use embedded" in err
    assert listed(tonnage)[name]["state"] == "missing"
    assert tonnage("plan", "s.yaml", "--catalog", embedded)[0] == 0


def test_a_second_update_starts_from_the_catalog_in_use(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    first = updated(tonnage, "--clouds", "aws")["catalog"]
    tonnage("catalog", "use", first)
    second = updated(tonnage, "--clouds", "azure")["catalog"]
    rows = read_price_rows((folder / second / "prices.csv").read_text())
    assert {row.source for row in rows if row.as_of == TODAY} == {
        "live-aws",
        "live-azure",
    }


def test_a_difference_has_what_an_update_changed(
    tonnage: Command, sellers: Sellers, folder: Path
) -> None:
    gone, dear = "g5.xlarge", "g6.xlarge"
    sellers.factor = lambda row: (
        None
        if row.instance_type == gone
        else Decimal("1.5" if row.instance_type == dear else 1)
    )
    name = updated(tonnage, "--clouds", "aws", "--accept")["catalog"]
    rows = json.loads(tonnage("catalog", "diff", "-f", "json")[1])
    assert {(row["change"], row["type"]) for row in rows} == {
        ("changed", dear),
        ("vanished", gone),
    }
    assert {row["percent"] for row in rows} == {"+50.0", ""}
    backward = ("catalog", "diff", name, "embedded", "-f", "json")
    assert {
        (row["change"], row["type"])
        for row in json.loads(tonnage(*backward)[1])
    } == {("changed", dear), ("added", gone)}
    code, out, err = tonnage("catalog", "diff", "--limit", "1")
    assert (code, len(out.splitlines())) == (0, 2)
    assert f"{len(rows) - 1} more: use --limit" in err
    manifest = str(folder / name / "manifest.json")
    assert tonnage("catalog", "diff", name, manifest) == (
        0,
        "no price differs\n",
        "",
    )


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("update", "--clouds", "ibm"), 2),
        (("update", "--regions", "mars-*"), 2),
        (("use", "2026-11-22-00000000"), 6),
        (("use",), 2),
        (("diff", "nothing"), 6),
        (("diff", "missing.json"), 13),
        (("update", "--catalog", "missing.json"), 13),
    ],
)
def test_wrong_calls_end_with_their_code(
    tonnage: Command,
    sellers: Sellers,
    folder: Path,
    argv: tuple[str, ...],
    code: int,
) -> None:
    assert tonnage("catalog", *argv)[0] == code
    assert sellers.questions == []


def test_the_state_of_the_catalog_needs_no_word(tonnage: Command) -> None:
    for flags in ((), ("-f", "json"), ("--format", "csv")):
        assert tonnage("catalog", *flags) == tonnage(
            "catalog", "status", *flags
        )
    code, out, _ = tonnage("catalog", "--help")
    assert (code, "update" in out) == (0, True)
