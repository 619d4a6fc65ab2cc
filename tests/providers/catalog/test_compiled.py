"""What a start keeps of a catalog is what its text says, or it is not used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.market.offer import Catalog
from providers.catalog import compiled
from providers.catalog.load import SnapshotPrices
from providers.catalog.manifest import CATALOG_FOLDER, write_manifest


def kept(folder: Path) -> Path:
    """The one file that was kept."""
    [path] = folder.iterdir()
    return path


def test_what_is_kept_is_what_the_text_says(tmp_path, catalog) -> None:
    assert SnapshotPrices(None, tmp_path).catalog() == catalog
    found = compiled.read_compiled(tmp_path, catalog.sha256)
    assert found == catalog
    assert SnapshotPrices(None, tmp_path).catalog() == catalog


def flip(content: bytes) -> bytes:
    """The content with one bit changed in its middle."""
    middle = len(content) // 2
    return (
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )


@pytest.mark.parametrize(
    "damage",
    [flip, lambda content: content[:-1], lambda _: b"", lambda _: b"\xc1" * 99],
)
def test_a_damaged_file_is_not_used_and_is_written_anew(
    damage: Callable[[bytes], bytes], tmp_path, catalog
) -> None:
    compiled.write_compiled(tmp_path, catalog)
    whole = kept(tmp_path).read_bytes()
    kept(tmp_path).write_bytes(damage(whole))
    assert compiled.read_compiled(tmp_path, catalog.sha256) is None
    assert SnapshotPrices(None, tmp_path).catalog() == catalog
    assert kept(tmp_path).read_bytes() == whole


def test_a_file_under_the_name_of_another_catalog_is_not_used(
    tmp_path, catalog
) -> None:
    compiled.write_compiled(tmp_path, catalog)
    other = "0" * 64
    kept(tmp_path).rename(compiled._compiled_path(tmp_path, other))
    assert compiled.read_compiled(tmp_path, other) is None


def test_a_changed_catalog_is_read_and_kept_beside(tmp_path, catalog) -> None:
    rows = tmp_path / "rows"
    shutil.copytree(CATALOG_FOLDER, rows)
    prices = rows / "prices.csv"
    lines = prices.read_text().splitlines(keepends=True)
    prices.write_text("".join(lines[:-100]))
    write_manifest(rows)
    folder = tmp_path / "kept"
    SnapshotPrices(None, folder).catalog()
    changed: Catalog = SnapshotPrices(rows / "manifest.json", folder).catalog()
    assert len(changed.offers) < len(catalog.offers)
    assert len(list(folder.iterdir())) == 2
    assert SnapshotPrices(None, folder).catalog() == catalog


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, catalog) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert SnapshotPrices(None, blocked / "below").catalog() == catalog
    assert SnapshotPrices(None, None).catalog() == catalog


def test_rows_that_are_wrong_are_refused_although_others_are_kept(
    tmp_path,
) -> None:
    rows = tmp_path / "rows"
    shutil.copytree(CATALOG_FOLDER, rows)
    SnapshotPrices(rows / "manifest.json", tmp_path / "kept").catalog()
    (rows / "prices.csv").write_text("changed\n")
    with pytest.raises(Exception, match="differs from the manifest"):
        SnapshotPrices(rows / "manifest.json", tmp_path / "kept").catalog()
