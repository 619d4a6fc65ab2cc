"""A catalog of the folder is whole or refused, and plans use the one that was chosen or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import CatalogError, MissingError
from planner.market.price_row import price_table, read_price_rows
from providers.catalog.folder import EMBEDDED, CatalogFolder
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest

TEXTS, EMBEDDED_SHA256, _ = verify_manifest(CATALOG_FOLDER / "manifest.json")


def texts_without(count: int) -> dict[str, str]:
    """The embedded tables without the last prices."""
    rows = read_price_rows(TEXTS["prices.csv"])
    return {**TEXTS, "prices.csv": price_table(rows[:-count])}


@pytest.fixture
def folder(tmp_path: Path) -> CatalogFolder:
    return CatalogFolder(tmp_path / "data" / "catalogs")


def test_what_is_written_verifies_and_is_named_by_its_digest(
    folder: CatalogFolder,
) -> None:
    name = folder.add(texts_without(9))
    texts, sha256, as_of = verify_manifest(folder.manifest_path(name))
    assert texts == texts_without(9)
    assert name == f"{as_of}-{sha256[:8]}"
    assert [path.name for path in folder.path.iterdir()] == [name]


def test_the_same_catalog_is_there_once_and_a_damaged_one_is_replaced(
    folder: CatalogFolder,
) -> None:
    name = folder.add(TEXTS)
    prices = folder.path / name / "prices.csv"
    prices.write_text("")
    assert folder.entries()[1].state == "damaged"
    assert folder.add(TEXTS) == name == folder.add(TEXTS)
    assert prices.read_text() == TEXTS["prices.csv"]
    assert [path.name for path in folder.path.iterdir()] == [name]


def test_rows_that_nobody_could_plan_with_are_not_written(
    folder: CatalogFolder,
) -> None:
    wrong = TEXTS["prices.csv"].replace(",observed,", ",observd,", 1)
    with pytest.raises(CatalogError, match="observd"):
        folder.add({**TEXTS, "prices.csv": wrong})
    assert list(folder.path.iterdir()) == []


def test_without_a_choice_plans_use_the_embedded_one(
    folder: CatalogFolder, tmp_path: Path
) -> None:
    assert folder.price_source(None).catalog().sha256 == EMBEDDED_SHA256
    assert not folder.path.exists()
    name = folder.add(texts_without(9))
    assert folder.price_source(None).catalog().sha256 == EMBEDDED_SHA256
    choice = folder.choose(name)
    assert choice is not None
    kept = tmp_path / "kept"
    # As its text says, as it is kept, and as it was kept.
    for cache_folder in (None, kept, kept):
        source = folder.price_source(cache_folder)
        assert source.catalog().sha256 == choice.sha256 != EMBEDDED_SHA256
    assert folder.choose(EMBEDDED) is None
    assert folder.price_source(kept).catalog().sha256 == EMBEDDED_SHA256


def test_a_list_says_what_is_of_the_day_and_what_is_whole(
    folder: CatalogFolder,
) -> None:
    first, second = folder.add(texts_without(9)), folder.add(texts_without(8))
    (folder.path / ".draft-1").mkdir()
    (folder.path / second / "zones.csv").unlink()
    assert [
        (entry.name, entry.state, entry.rows) for entry in folder.entries()
    ] == [
        (EMBEDDED, "whole", len(read_price_rows(TEXTS["prices.csv"]))),
        (first, "whole", len(read_price_rows(TEXTS["prices.csv"])) - 9),
        (second, "damaged", 0),
    ]
    assert folder.entries()[0].rows_of_day == TEXTS["prices.csv"].count(
        ",2026-11-18,"
    )


def test_a_chosen_catalog_that_is_damaged_or_gone_is_an_error(
    folder: CatalogFolder, tmp_path: Path
) -> None:
    """Also when what an earlier start has kept of it is there."""
    name = folder.add(texts_without(9))
    folder.choose(name)
    kept = tmp_path / "kept"
    folder.price_source(kept).catalog()
    prices = folder.path / name / "prices.csv"
    prices.write_text(prices.read_text() + "\n")
    with pytest.raises(
        CatalogError, match="differs from the manifest"
    ) as found:
        folder.price_source(kept).catalog()
    [problem] = found.value.problems
    assert "tonnage catalog use embedded" in problem.next_step
    (folder.path / name).rename(tmp_path / "elsewhere")
    with pytest.raises(CatalogError, match="cannot be read"):
        folder.price_source(kept).catalog()
    assert [(e.name, e.state) for e in folder.entries()] == [
        (EMBEDDED, "whole"),
        (name, "missing"),
    ]


def test_another_catalog_under_the_chosen_name_is_an_error(
    folder: CatalogFolder,
) -> None:
    name, other = folder.add(texts_without(9)), folder.add(texts_without(8))
    folder.choose(name)
    (folder.path / name).rename(folder.path / "aside")
    (folder.path / other).rename(folder.path / name)
    with pytest.raises(CatalogError, match="not the catalog that was chosen"):
        folder.price_source(None).catalog()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"name": "../../etc", "sha256": ""}', "[1]"]
)
def test_a_damaged_choice_is_an_error(folder: CatalogFolder, text: str) -> None:
    folder.path.mkdir(parents=True)
    folder.choice_path.write_text(text)
    with pytest.raises(CatalogError) as found:
        folder.price_source(None)
    [problem] = found.value.problems
    assert "tonnage catalog use embedded" in problem.next_step
    folder.choose(EMBEDDED)
    assert folder.price_source(None).catalog().sha256 == EMBEDDED_SHA256


@pytest.mark.parametrize("name", ["", "..", "x", "2026-11-22-00000000"])
def test_only_a_catalog_that_there_is_can_be_chosen(
    folder: CatalogFolder, name: str
) -> None:
    with pytest.raises(MissingError):
        folder.choose(name)


def test_a_damaged_catalog_cannot_be_chosen(folder: CatalogFolder) -> None:
    name = folder.add(texts_without(9))
    (folder.path / name / "zones.csv").write_text("")
    with pytest.raises(CatalogError):
        folder.choose(name)
    assert folder.choice() is None
