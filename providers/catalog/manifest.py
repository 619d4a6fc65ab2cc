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

FILES: Final = (
    "instances.csv",
    "prices.csv",
    "services.csv",
    "sources.csv",
    "zones.csv",
)
FOLDER: Final = Path(__file__).parent / "data"


def digest(raw: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(raw).hexdigest()


def verified(path: Path) -> tuple[dict[str, str], str, str]:
    """Return the texts of a catalog, its digest and its date.

    The digest is that of the manifest, which holds the digests of the files. Raises CatalogError
    when a file is missing or differs from the manifest.
    """
    try:
        raw = path.read_bytes()
        manifest: dict[str, Any] = json.loads(raw)
        files, as_of = dict(manifest["files"]), str(manifest["as_of"])
        texts = {}
        for name in FILES:
            content = (path.parent / name).read_bytes()
            if digest(content) != files.get(name):
                _refuse(
                    path.parent / name, "the file differs from the manifest"
                )
            texts[name] = content.decode("utf-8")
    except OSError as error:
        _refuse(
            Path(error.filename or path), f"cannot be read: {error.strerror}"
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        _refuse(path, "not a catalog manifest")
    return texts, digest(raw), as_of


def write(folder: Path) -> None:
    """Write manifest.json for the files of a folder."""
    prices = csv.DictReader(
        (folder / "prices.csv").read_text(encoding="utf-8").splitlines()
    )
    dates = [
        row["as_of"] for row in prices if len(row["as_of"]) == len("2026-07-30")
    ]
    files = {name: digest((folder / name).read_bytes()) for name in FILES}
    body = json.dumps(
        {"as_of": max(dates), "files": files}, indent=2, sort_keys=True
    )
    (folder / "manifest.json").write_text(body + "\n", encoding="utf-8")


def _refuse(path: Path, message: str) -> Any:
    step = "reinstall tonnage, or give another catalog with --catalog"
    place = Place(str(path))
    raise CatalogError(
        Problem(code="catalog", message=message, place=place, next_step=step)
    )


if __name__ == "__main__":
    write(FOLDER)
