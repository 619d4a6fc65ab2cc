"""An update with small clouds: their price lists, reviewed and written like other prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from planner.facts.price_endpoint import listed_machines
from planner.facts.small_cloud import (
    SMALL_CLOUD_FILE,
    SmallCloudMachine,
    read_small_clouds,
    small_cloud_machines,
)
from providers.catalog.folder import CatalogFolder
from providers.catalog.load import load_catalog
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest
from tests.conftest import TODAY, chat
from tests.loopback import Cloud, Request
from tests.planner.cli.conftest import Command
from tests.providers.live.price_lists import price_list, serve_at

pytestmark = pytest.mark.enable_socket

EMBEDDED = small_cloud_machines()
OCI = len(listed_machines()["oci"])


class Lists:
    """The price lists of small clouds; a test changes what they say."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {
            cloud: price_list(cloud) for cloud in listed_machines()
        }
        self.down: set[str] = set()
        self.asked: list[str] = []

    def answer(self, request: Request) -> Any:
        cloud = urlsplit(request.path).path.strip("/")
        self.asked.append(cloud)
        if cloud in self.down:
            return 503, "<html>busy</html>"
        return 200, self.documents[cloud]

    def price_oci(self, change: Callable[[Decimal], Any], *parts: str) -> None:
        """Change the prices of Oracle, or of some part numbers."""
        for entry in self.documents["oci"]["items"]:
            if parts and entry["partNumber"] not in parts:
                continue
            for price in entry["currencyCodeLocalizations"][0]["prices"]:
                price["value"] = change(Decimal(str(price["value"])))


@pytest.fixture
def lists(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Lists:
    fake = Lists()
    serve_at(cloud.url, monkeypatch)
    cloud.answer = fake.answer
    return fake


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = here / "data"
    monkeypatch.setenv("TONNAGE_CATALOGS", str(path))
    return path


def updated(tonnage: Command, *flags: str, code: int = 0) -> dict[str, Any]:
    found, out, err = tonnage(
        "catalog", "update", "--clouds", "oci,vultr", "-f", "json", *flags
    )
    assert found == code, err
    report: dict[str, Any] = json.loads(out)
    return report


def machines_of(folder: Path, name: str) -> tuple[SmallCloudMachine, ...]:
    texts, _, _ = verify_manifest(folder / name / "manifest.json")
    return read_small_clouds(texts[SMALL_CLOUD_FILE])


def named(machines: tuple[SmallCloudMachine, ...], name: str) -> Any:
    [machine] = [each for each in machines if each.machine == name]
    return machine


def test_the_same_prices_are_dated_today_and_nothing_else_changes(
    tonnage: Command, lists: Lists, folder: Path
) -> None:
    report = updated(tonnage)
    assert (report["asked"], report["answered"]) == (2, 2)
    assert (report["changed"], report["added"], report["vanished"]) == (0, 0, 0)
    name = report["catalog"]
    assert name.startswith(TODAY)
    after = machines_of(folder, name)
    for old, new in zip(EMBEDDED, after, strict=True):
        assert (old.cloud, old.machine, old.usd_hour) == (
            new.cloud,
            new.machine,
            new.usd_hour,
        )
        if old.cloud_name in listed_machines():
            assert (new.as_of, new.source) == (TODAY, f"live-{old.cloud_name}")
        else:
            # What nobody was asked for has its own source and date.
            assert new == old
    texts, _, _ = verify_manifest(folder / name / "manifest.json")
    embedded, _, _ = verify_manifest(CATALOG_FOLDER / "manifest.json")
    assert texts["prices.csv"] == embedded["prices.csv"]
    assert (
        f"live-oci,what oci answered to tonnage catalog update,{TODAY}"
        in (texts["sources.csv"])
    )
    [_, entry] = json.loads(tonnage("catalog", "list", "-f", "json")[1])
    assert entry["of_day"] == str(OCI + len(listed_machines()["vultr"]))


def test_an_update_is_the_same_wherever_it_is_made(
    tonnage: Command,
    lists: Lists,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = []
    for place in ("one", "two"):
        monkeypatch.setenv("TONNAGE_CATALOGS", str(here / place))
        names.append(updated(tonnage)["catalog"])
    assert names[0] == names[1]


@pytest.mark.parametrize("down", ["oci", "vultr"])
def test_a_cloud_that_is_down_keeps_its_rows(
    tonnage: Command, lists: Lists, folder: Path, down: str
) -> None:
    lists.down.add(down)
    code, out, _ = tonnage("catalog", "update", "--clouds", "oci,vultr")
    assert code == 0
    assert f"{down} did not answer 1 questions: 503: <html>busy" in out
    [name] = [path.name for path in folder.iterdir() if path.is_dir()]
    after = machines_of(folder, name)
    assert {each.cloud_name for each in after if each.as_of == TODAY} == (
        listed_machines().keys() - {down}
    )
    assert [each for each in after if each.cloud_name == down] == [
        each for each in EMBEDDED if each.cloud_name == down
    ]


def test_where_nobody_answers_nothing_is_written(
    tonnage: Command, lists: Lists, folder: Path
) -> None:
    lists.down.update(listed_machines())
    code, _, err = tonnage("catalog", "update", "--clouds", "oci,vultr")
    assert code == 4
    assert "no cloud answered" in err
    assert not folder.exists()


def drop(lists: Lists) -> None:
    lists.documents["oci"]["items"].pop()
    lists.documents["oci"]["items"].pop()


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            lambda lists: lists.price_oci(lambda usd: str(usd * 3), "B98415"),
            "1 changed by more than 2 times",
        ),
        (
            lambda lists: lists.price_oci(lambda usd: str(usd / 3), "B98415"),
            "1 changed by more than 2 times",
        ),
        (
            lambda lists: lists.price_oci(lambda usd: str(usd * 110 / 100)),
            "those of oci on_demand are 1.100 of the old ones",
        ),
        (
            lambda lists: lists.price_oci(lambda _: 0, "B98415"),
            "1 are zero, negative or no number",
        ),
        (
            lambda lists: lists.price_oci(lambda _: "NaN", "B98415"),
            "1 are zero, negative or no number",
        ),
        (drop, "oci on_demand vanished"),
    ],
)
def test_odd_prices_are_refused_until_they_are_accepted(
    tonnage: Command,
    lists: Lists,
    folder: Path,
    change: Callable[[Lists], None],
    refusal: str,
) -> None:
    change(lists)
    code, out, err = tonnage("catalog", "update", "--clouds", "oci")
    assert code == 13
    assert refusal in err
    assert "next: look at each, and if they are right: " in err
    assert "tonnage catalog update --clouds oci --accept" in err
    assert refusal.startswith("those") or "oci" in out
    assert not [path for path in folder.iterdir() if path.is_dir()]
    asked = len(lists.asked)
    report = json.loads(
        tonnage(
            "catalog", "update", "--clouds", "oci", "--accept", "-f", "json"
        )[1]
    )
    # What was reviewed is written: nobody is asked again.
    assert len(lists.asked) == asked
    assert refusal in "; ".join(report["refusals"])
    after = machines_of(folder, report["catalog"])
    assert all(machine.usd_hour > 0 for machine in after)
    assert len(after) == len(EMBEDDED) - report["vanished"]


def test_a_machine_that_comes_back_is_asked_for_and_reviewed(
    tonnage: Command, lists: Lists, folder: Path
) -> None:
    items = list(lists.documents["oci"]["items"])
    lists.documents["oci"]["items"] = [
        entry for entry in items if entry["partNumber"] != "B98415"
    ]
    without = updated(tonnage, "--accept")
    assert without["vanished"] == 1
    assert tonnage("catalog", "use", without["catalog"])[0] == 0
    lists.documents["oci"]["items"] = items
    assert "1 are new" in str(updated(tonnage, code=13)["refusals"])
    again = updated(tonnage, "--accept")
    assert again["added"] == 1
    back = named(machines_of(folder, again["catalog"]), "BM.GPU.H100.8")
    assert (back.accelerator, back.accelerators) == ("h100-sxm", 8)
    assert (back.usd_hour, back.as_of) == (80, TODAY)


def test_plans_take_the_prices_of_the_catalog_in_use(
    tonnage: Command, lists: Lists, folder: Path, here: Path
) -> None:
    (here / "oci.yaml").write_text(
        chat("llama-3.1-70b", extra="where: {clouds: [oci]}")
    )

    def planned() -> Any:
        code, out, err = tonnage("plan", "oci.yaml", "-f", "json")
        assert code == 0, err
        return json.loads(out)

    before = planned()
    lists.price_oci(lambda usd: str(usd / 5))
    name = updated(tonnage, "--accept")["catalog"]
    assert planned() == before
    assert tonnage("catalog", "use", name)[0] == 0
    after = planned()
    old_line, line = (plan["cost"]["lines"][0] for plan in (before, after))
    factor = Decimal(str(line["unit_price"])) / Decimal(
        str(old_line["unit_price"])
    )
    assert factor == Decimal("0.2")
    assert "live-oci" in json.dumps(line)
    assert after["catalog"] != before["catalog"]
    code, out, _ = tonnage("catalog", "diff", "-f", "json")
    assert code == 0
    rows = json.loads(out)
    assert {row["cloud"] for row in rows} == {"oci"}
    assert len(rows) == OCI


def test_a_catalog_is_kept_as_it_was_read(
    tonnage: Command, lists: Lists, folder: Path, here: Path
) -> None:
    """With its machines of small clouds, and the embedded one without any of its own."""
    name = updated(tonnage)["catalog"]
    catalogs = CatalogFolder(folder)
    catalogs.choose(name)
    first, second = (
        catalogs.price_source(here / "kept").catalog() for _ in range(2)
    )
    assert first.small_machines == machines_of(folder, name)
    assert first == second
    assert load_catalog().small_machines is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("verda", "Verda tells no prices without an account"),
        ("nowhere", "'nowhere' is none of aws, "),
    ],
)
def test_who_cannot_be_asked_is_refused_by_name(
    tonnage: Command, lists: Lists, folder: Path, name: str, words: str
) -> None:
    code, _, err = tonnage("catalog", "update", "--clouds", name)
    assert code == 2
    assert words in " ".join(err.split())
    assert lists.asked == []


def test_a_damaged_table_of_small_clouds_is_no_catalog(
    tonnage: Command, lists: Lists, folder: Path
) -> None:
    name = updated(tonnage)["catalog"]
    path = folder / name / SMALL_CLOUD_FILE
    path.write_text(path.read_text().replace("80,live-oci", "8,live-oci"))
    assert tonnage("catalog", "use", name)[0] == 13
