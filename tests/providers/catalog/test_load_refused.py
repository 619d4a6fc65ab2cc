"""Cells of a catalog that are no price or no date are refused, each with its line."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from planner.errors import CatalogError
from providers.catalog.load import load_catalog
from providers.catalog.manifest import CATALOG_FOLDER, write_manifest

MACHINES = "prices.csv"
SERVICES = "services.csv"
NO_PRICES = ("0", "-1", "-0", "NaN", "Infinity", "1e12", "1e-400", "", "x")


def with_cell(folder: Path, name: str, column: str, cell: str) -> int:
    """Write a cell into the third row of a table of a copied catalog; return its line."""
    manifest_path = folder / "manifest.json"
    as_of = json.loads(manifest_path.read_text())["as_of"]
    path = folder / name
    rows = [*csv.DictReader(io.StringIO(path.read_text()))]
    rows[2][column] = cell
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_manifest(folder)
    manifest = json.loads(manifest_path.read_text())
    manifest_path.write_text(json.dumps({**manifest, "as_of": as_of}))
    return 4


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the embedded catalog."""
    return shutil.copytree(CATALOG_FOLDER, tmp_path / "catalog")


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [
        *((MACHINES, "usd_hour", cell) for cell in NO_PRICES),
        # A price that was not seen to move has none of these.
        *((MACHINES, "usd_max", cell) for cell in NO_PRICES if cell),
        # What a service costs may be nothing.
        *((SERVICES, "usd", cell) for cell in ("-1", "NaN", "1e12", "x")),
        *(
            (MACHINES, "as_of", cell)
            for cell in ("", "x", "0", "2026-13", "2026-02-30", "2026-02-00")
        ),
        # It would never grow old.
        *((MACHINES, "as_of", cell) for cell in ("2027", "2026-12")),
        *((name, "as_of", "2099-01-01") for name in (MACHINES, SERVICES)),
    ],
)
def test_what_is_no_price_or_no_date_is_refused_with_its_line(
    copied: Path, name: str, column: str, cell: str
) -> None:
    line = with_cell(copied, name, column, cell)
    with pytest.raises(CatalogError) as refusal:
        load_catalog(copied / "manifest.json")
    [problem] = refusal.value.problems
    assert problem.place is not None
    assert (problem.place.path, problem.place.line) == (name, line)
    assert problem.message.startswith(f"{column}: ")
    assert problem.next_step


@pytest.mark.parametrize("as_of", ["2024-02-29", "2026-11", "2026", "unknown"])
def test_a_date_may_be_known_to_its_month_or_not_at_all(
    copied: Path, as_of: str
) -> None:
    with_cell(copied, MACHINES, "as_of", as_of)
    dates = {
        offer.as_of for offer in load_catalog(copied / "manifest.json").offers
    }
    assert as_of in dates


@pytest.mark.parametrize("as_of", ["", "2026-11", "soon", "2026-02-30"])
def test_a_catalog_without_a_day_of_its_own_is_none(
    copied: Path, as_of: str
) -> None:
    path = copied / "manifest.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "as_of": as_of})
    )
    with pytest.raises(CatalogError, match="not a catalog manifest"):
        load_catalog(path)
