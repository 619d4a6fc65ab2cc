"""The catalogs in the user's folder, and which one plans use.

Each is a folder named by its date and the begin of its digest, such as 2026-11-27-9b350a00.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import MsgspecError, Struct
from msgspec import json as msgspec_json
from msgspec.structs import replace

from planner.errors import CatalogError, MissingError, Place, Problem
from planner.facts.small_cloud import SMALL_CLOUD_FILE
from planner.market.price_row import read_price_rows
from planner.market.small_cloud_update import catalog_price_rows
from planner.suggest import did_you_mean
from providers.catalog.load import SnapshotPrices
from providers.catalog.manifest import (
    CATALOG_FOLDER,
    verify_manifest,
    write_manifest,
)
from providers.files import (
    MAX_DOCUMENT_BYTES,
    make_folder,
    read_regular,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.market.offer import Catalog
    from providers.base import PriceSource

EMBEDDED: Final = "embedded"
MANIFEST: Final = "manifest.json"
NAME: Final = re.compile(r"\d{4}-\d\d-\d\d-[0-9a-f]{8}")
DIGEST_DIGITS: Final = 8
DATE_LETTERS: Final = len("2026-11-27")
USE_EMBEDDED: Final = "use the embedded one: tonnage catalog use embedded"

CatalogState: TypeAlias = Literal["whole", "damaged", "missing"]


class CatalogChoice(Struct, frozen=True):
    """Which catalog plans use; the digest is that of its manifest."""

    name: str
    sha256: str


class CatalogEntry(Struct, frozen=True, kw_only=True):
    """A catalog as a list has it; a damaged or missing one has neither digest nor rows.

    rows         prices in it
    rows_of_day  those of its own date
    """

    name: str
    state: CatalogState
    as_of: str = ""
    sha256: str = ""
    rows: int = 0
    rows_of_day: int = 0


class ChosenPrices(Struct, frozen=True):
    """The prices of the catalog that was chosen, and never of another one."""

    choice: CatalogChoice
    manifest_path: Path
    cache_folder: Path | None

    def catalog(self) -> Catalog:
        """Return the catalog. Raises CatalogError when it is not what was chosen any more."""
        try:
            catalog = SnapshotPrices(
                self.manifest_path, self.cache_folder
            ).catalog()
        except CatalogError as error:
            raise CatalogError(
                *(
                    replace(problem, next_step=USE_EMBEDDED)
                    for problem in error.problems
                )
            ) from error
        if catalog.sha256 != self.choice.sha256:
            raise _unusable(
                self.manifest_path, "is not the catalog that was chosen"
            )
        return catalog


class CatalogFolder(Struct, frozen=True):
    """The folder of catalogs of a user; it may not exist."""

    path: Path

    @property
    def choice_path(self) -> Path:
        """The file that says which catalog plans use; there is none for the embedded one."""
        return self.path / "in-use.json"

    @property
    def work_path(self) -> Path:
        """The file with what clouds have answered to an update that is not written yet."""
        return self.path / "update.json"

    def manifest_path(self, name: str) -> Path:
        """Return the manifest of a catalog by name. Raises MissingError for a name of none."""
        if name == EMBEDDED:
            return CATALOG_FOLDER / MANIFEST
        if NAME.fullmatch(name) and (self.path / name).is_dir():
            return self.path / name / MANIFEST
        raise MissingError(
            Problem(
                code="catalog",
                message=f"no catalog is named {name}",
                next_step=did_you_mean(
                    name,
                    [EMBEDDED, *(path.name for path in self._folders())],
                    otherwise="see their names: tonnage catalog list",
                ),
            )
        )

    def choice(self) -> CatalogChoice | None:
        """Return which catalog was chosen, None for the embedded one.

        Raises CatalogError for a damaged file of the choice.
        """
        try:
            file_bytes = read_regular(self.choice_path, MAX_DOCUMENT_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unusable(self.choice_path, str(error.strerror)) from error
        try:
            choice = msgspec_json.decode(file_bytes, type=CatalogChoice)
        except MsgspecError as error:
            raise _unusable(
                self.choice_path, "does not say which catalog plans use"
            ) from error
        # It becomes a part of a path.
        if not NAME.fullmatch(choice.name):
            raise _unusable(self.choice_path, "does not name a catalog")
        return choice

    def choose(self, name: str) -> CatalogChoice | None:
        """Let plans use a catalog, which has to be whole."""
        if name == EMBEDDED:
            self.choice_path.unlink(missing_ok=True)
            return None
        catalog = SnapshotPrices(self.manifest_path(name)).catalog()
        choice = CatalogChoice(name, catalog.sha256)
        write_atomically(self.choice_path, msgspec_json.encode(choice))
        return choice

    def price_source(self, cache_folder: Path | None) -> PriceSource:
        """Return the prices that plans use; `cache_folder` is that of SnapshotPrices."""
        choice = self.choice()
        if choice is None:
            return SnapshotPrices(None, cache_folder)
        return ChosenPrices(
            choice, self.path / choice.name / MANIFEST, cache_folder
        )

    def entries(self) -> list[CatalogEntry]:
        """Return the embedded catalog, and those of the folder by date and time of writing.

        A chosen one that has vanished is among them.
        """
        written_ns = {
            path.name: path.stat().st_mtime_ns for path in self._folders()
        }
        choice = self.choice()
        if choice:
            written_ns.setdefault(choice.name, 0)
        names = sorted(
            filter(NAME.fullmatch, written_ns),
            key=lambda name: (name[:DATE_LETTERS], written_ns[name], name),
        )
        return [self._entry(name) for name in (EMBEDDED, *names)]

    def _folders(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def _entry(self, name: str) -> CatalogEntry:
        try:
            texts, sha256, as_of = verify_manifest(self.manifest_path(name))
            rows = read_price_rows(texts["prices.csv"])
            if SMALL_CLOUD_FILE in texts:
                rows = catalog_price_rows(texts)
        except MissingError:
            return CatalogEntry(name=name, state="missing")
        except CatalogError:
            return CatalogEntry(name=name, state="damaged")
        return CatalogEntry(
            name=name,
            state="whole",
            as_of=as_of,
            sha256=sha256,
            rows=len(rows),
            rows_of_day=sum(row.as_of == as_of for row in rows),
        )

    def add(self, file_texts: Mapping[str, str]) -> str:
        """Write a catalog of these files, and return its name.

        It appears as a whole, or not at all. Raises CatalogError for a row that nobody could plan
        with, and writes nothing.
        """
        make_folder(self.path)
        draft = Path(mkdtemp(prefix=".draft-", dir=self.path))
        try:
            for file_name, text in file_texts.items():
                write_atomically(draft / file_name, text)
            write_manifest(draft)
            catalog = SnapshotPrices(draft / MANIFEST).catalog()
            name = f"{catalog.as_of}-{catalog.sha256[:DIGEST_DIGITS]}"
            # One of this name has the same content, unless it is damaged.
            if self._entry(name).sha256 != catalog.sha256:
                shutil.rmtree(self.path / name, ignore_errors=True)
                draft.rename(self.path / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return name


def _unusable(path: Path, message: str) -> CatalogError:
    return CatalogError(
        Problem(
            code="catalog",
            message=message,
            place=Place(str(path)),
            next_step=USE_EMBEDDED,
        )
    )
