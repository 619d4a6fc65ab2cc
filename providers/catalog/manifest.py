"""The manifest of a catalog: the SHA-256 of each file, and the date of the newest price.

Run `python -m providers.catalog.manifest` after a change to the rows.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from planner.errors import CatalogError, Place, Problem

CATALOG_FILES: Final = (
    "instances.csv",
    "prices.csv",
    "services.csv",
    "sources.csv",
    "zones.csv",
)
CATALOG_FOLDER: Final = Path(__file__).parent / "data"


def sha256_hex(file_bytes: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(file_bytes).hexdigest()


def verify_manifest(manifest_path: Path) -> tuple[dict[str, str], str, str]:
    """Return the texts of a catalog, its digest and its date.

    The digest is that of the manifest, which holds the digests of the files. Raises CatalogError
    when a file is missing or differs from the manifest.
    """
    try:
        manifest_bytes = manifest_path.read_bytes()
        manifest: dict[str, Any] = json.loads(manifest_bytes)
        file_digests = dict(manifest["files"])
        as_of = str(manifest["as_of"])
        file_texts = {}
        for file_name in CATALOG_FILES:
            file_bytes = (manifest_path.parent / file_name).read_bytes()
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
    except (ValueError, KeyError, TypeError, AttributeError):
        _raise_invalid(manifest_path, "not a catalog manifest")
    return file_texts, sha256_hex(manifest_bytes), as_of


def write_manifest(folder: Path) -> None:
    """Write manifest.json for the files of a folder."""
    price_rows = csv.DictReader(
        (folder / "prices.csv").read_text(encoding="utf-8").splitlines()
    )
    price_dates = [
        price_row["as_of"]
        for price_row in price_rows
        if len(price_row["as_of"]) == len("2026-07-30")
    ]
    file_digests = {
        file_name: sha256_hex((folder / file_name).read_bytes())
        for file_name in CATALOG_FILES
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
