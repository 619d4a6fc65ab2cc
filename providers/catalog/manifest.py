"""The manifest of a catalog: SHA-256 of each file, and date of the newest price.

Run `python -m providers.catalog.manifest` after a change of the rows.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from planner.errors import CatalogError, Place, Problem
from planner.facts import table
from planner.facts.small_cloud import SMALL_CLOUD_FILE
from providers.files import MAX_DOCUMENT_BYTES, read_regular

CATALOG_FILES: Final = (
    "instances.csv",
    "prices.csv",
    "reclaims.csv",
    "services.csv",
    "sources.csv",
    "zones.csv",
)
# A catalog without one goes with the machines that the program came with.
OPTIONAL_FILES: Final = (SMALL_CLOUD_FILE,)
# Tables whose rows have dates that make the date of a catalog.
DATED_FILES: Final = ("prices.csv", SMALL_CLOUD_FILE)
CATALOG_FOLDER: Final = Path(__file__).parent / "data"


def sha256_hex(file_bytes: bytes) -> str:
    """Return the SHA-256 digest as hexadecimal text."""
    return hashlib.sha256(file_bytes).hexdigest()


def verify_manifest(manifest_path: Path) -> tuple[dict[str, str], str, str]:
    """Return the texts of the files, the digest of the manifest, and its date.

    The digest of the manifest covers all files, since it lists their digests. Raises
    CatalogError for a missing file, and for one that differs from the manifest.
    """
    try:
        manifest_bytes = read_regular(manifest_path, MAX_DOCUMENT_BYTES)
        manifest: dict[str, Any] = json.loads(manifest_bytes)
        file_digests = dict(manifest["files"])
        as_of = table.day(str(manifest["as_of"]))
        file_texts = {}
        optional_names = [
            name for name in OPTIONAL_FILES if name in file_digests
        ]
        for file_name in (*CATALOG_FILES, *optional_names):
            file_bytes = read_regular(manifest_path.parent / file_name)
            # A changed file would make plans that nobody can reproduce.
            if sha256_hex(file_bytes) != file_digests.get(file_name):
                _raise_invalid(
                    manifest_path.parent / file_name,
                    "the file differs from the manifest",
                )
            file_texts[file_name] = file_bytes.decode("utf-8")
    except OSError as read_error:
        _raise_invalid(
            Path(read_error.filename or manifest_path),
            f"cannot be read: {read_error.strerror}",
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        _raise_invalid(manifest_path, "not a catalog manifest")
    return file_texts, sha256_hex(manifest_bytes), as_of


def write_manifest(folder: Path) -> None:
    """Write manifest.json for the files of a folder, dated by the newest price."""
    optional_names = [
        name for name in OPTIONAL_FILES if (folder / name).exists()
    ]
    file_names = (*CATALOG_FILES, *optional_names)
    price_dates = [
        price_row["as_of"]
        for file_name in file_names
        if file_name in DATED_FILES
        for price_row in csv.DictReader(
            (folder / file_name).read_text(encoding="utf-8").splitlines()
        )
        # Only full dates compare as text.
        if len(price_row["as_of"]) == len("2026-07-30")
    ]
    file_digests = {
        file_name: sha256_hex((folder / file_name).read_bytes())
        for file_name in file_names
    }
    manifest_json = json.dumps(
        {"as_of": max(price_dates), "files": file_digests},
        indent=2,
        sort_keys=True,
    )
    (folder / "manifest.json").write_text(
        manifest_json + "\n", encoding="utf-8"
    )


def _raise_invalid(file_path: Path, message: str) -> Any:
    next_step = "reinstall tonnage, or give another catalog with --catalog"
    file_place = Place(str(file_path))
    raise CatalogError(
        Problem(
            code="catalog",
            message=message,
            place=file_place,
            next_step=next_step,
        )
    )


if __name__ == "__main__":
    write_manifest(CATALOG_FOLDER)
