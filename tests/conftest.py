"""Fixtures: the real catalog, small ones, and specs written in a line."""

from __future__ import annotations

import gc
import os
import re
import shutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from msgspec.structs import replace

from planner.solve.serving.verify import FleetJudge
from planner.solve.settings import Memory, SolveSettings
from planner.spec.load import load_spec
from planner.workload.solver import find as find_fleet
from providers.catalog.load import SnapshotPrices, load_catalog
from stacks.runtime.vm import program
from stacks.spec.table import unsupported_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from planner.cost.service_price import PriceBook
    from planner.market.offer import Catalog, Offer
    from planner.solve.solution import Solution
    from planner.spec.model import Spec

# How long a drawn example takes says what else the machine does, and fails no test.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

Value = TypeVar("Value")
# Compares the text of a stored file, or writes it anew.
Golden: TypeAlias = "Callable[[Path, str], None]"
ROOT = Path(__file__).resolve().parents[1]
BLUEPRINTS = sorted((ROOT / "blueprints").glob("*.yaml"))
# The day on which tests take place: prices have an age.
TODAY_EPOCH_S = 1_795_305_600
TODAY = "2026-11-22"

MOST_SPECS: Final = 16
MOST_PROGRAMS: Final = 256
MOST_SOLUTIONS: Final = 32

CHAT = """
apiVersion: tonnage/v1
kind: Inference
name: chat
model: {name: MODEL, precision: PRECISION}
sla: {SLA}
traffic:
  TRAFFIC
  input_tokens: {mean: 900, p95: 3000}
  output_tokens: {mean: 200, p95: 600}
EXTRA
"""


def chat(
    model: str = "llama-3.1-8b",
    precision: str = "auto",
    sla: str = "ttft_p95: 2s, tpot_p95: 80ms",
    traffic: str = "peak_rps: 2",
    extra: str = "",
) -> str:
    """An inference spec as text."""
    pairs = {
        "MODEL": model,
        "PRECISION": precision,
        "SLA": sla,
        "TRAFFIC": traffic,
        "EXTRA": extra,
    }
    text = CHAT
    for key, value in pairs.items():
        text = text.replace(key, value)
    return text


@lru_cache(maxsize=MOST_SPECS)
def spec_of(text: str) -> Spec:
    """Read a spec from text. It cannot be changed, so that who asks again gets the same."""
    return load_spec(text.encode(), "spec.yaml")


def present(value: Value | None) -> Value:
    """Assert that an optional is there."""
    assert value is not None
    return value


# A folder of a file system in memory, and the room that all tests together stay far below.
MEMORY_FOLDER: Final = Path("/dev/shm")
ROOM_BYTES: Final = 4 * 2**30
# Objects of a test that are made before the collector looks for cycles among them, and how many
# such looks come before one at older objects.
GARBAGE_THRESHOLDS: Final = (50_000, 20, 20)


def pytest_configure() -> None:
    """Keep folders of tests in memory, and collect no garbage while modules are imported.

    Where files are on a disk, each one that is renamed over another waits for it.
    """
    gc.disable()
    # Commands that tests start would compile the whole program, each one anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if _is_roomy(MEMORY_FOLDER):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))


def _is_roomy(folder: Path) -> bool:
    """Whether tests can write there, and run the programs that they write."""
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False
    runs_programs = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return runs_programs and shutil.disk_usage(folder).free > ROOM_BYTES


def pytest_collection_finish() -> None:
    """Look for garbage from now on, and not among the modules and the tests, which all stay."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Stored files are rewritten by one flag, wherever they are."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write stored screens, graphs and outputs in the docs anew",
    )


@pytest.fixture(scope="session")
def updates_golden(request: pytest.FixtureRequest) -> bool:
    """Whether stored files are rewritten. A CI has to compare."""
    asked = bool(request.config.getoption("--update-golden"))
    if asked and os.environ.get("CI"):
        raise pytest.UsageError(
            "stored files are compared in a CI, not written"
        )
    return asked


@pytest.fixture
def golden(updates_golden: bool) -> Golden:
    """Compare a text with a stored file, or write it."""

    def compare(path: Path, shown: str) -> None:
        if updates_golden:
            path.write_text(shown)
        assert shown == path.read_text()

    return compare


@pytest.fixture(scope="session")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What starts keep for each other; the caller's own folder is not touched."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(autouse=True)
def _plain_environment(
    monkeypatch: pytest.MonkeyPatch, kept_folder: Path
) -> None:
    """No variable of the caller's shell changes what a test sees."""
    for name in list(os.environ):
        if name.startswith(("TONNAGE_", "FORCE_COLOR", "NO_COLOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TONNAGE_CACHE", str(kept_folder))
    monkeypatch.setenv("TONNAGE_CATALOGS", str(kept_folder / "catalogs"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(TODAY_EPOCH_S))


@pytest.fixture(autouse=True, scope="session")
def _catalog_once(kept_folder: Path) -> Iterator[None]:
    """Read the embedded catalog once, and let all tests have what is derived from it.

    It takes 90 ms as text and 30 ms as it is kept. A catalog of a test's own files, or one that a
    test keeps in a folder of its own, is read as ever.
    """
    read = SnapshotPrices.catalog
    whole = SnapshotPrices().catalog()

    def catalog(prices: SnapshotPrices) -> Catalog:
        is_embedded = prices.manifest_path is None
        if is_embedded and prices.cache_folder in (None, kept_folder):
            return whole
        return read(prices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotPrices, "catalog", catalog)
        yield


@pytest.fixture(scope="session")
def catalog(_catalog_once: None) -> Catalog:
    """The embedded catalog."""
    return load_catalog()


def only(catalog: Catalog, keep: Callable[[Offer], bool]) -> Catalog:
    """A catalog with some of the offers."""
    return replace(catalog, offers=tuple(o for o in catalog.offers if keep(o)))


def solve(catalog: Catalog, text: str, keep: int = 3) -> Solution:
    """Solve a spec given as text, with what each of its wishes costs."""
    return find(catalog, text, keep).explained()


class _KeptRuns:
    """What the specs of a module of tests at the same prices leave for each other."""

    def __init__(self) -> None:
        self._price_book: PriceBook | None = None
        self._memory = Memory()
        # By catalog, which stays so that no other one gets its number.
        self._found: dict[tuple[object, ...], tuple[Catalog, Solution]] = {}

    def forget(self) -> None:
        self._price_book = None
        self._found.clear()

    def find(
        self, catalog: Catalog, text: str, keep: int, *, names_nearest: bool
    ) -> Solution:
        key = id(catalog), text, keep, names_nearest
        if key not in self._found:
            if len(self._found) >= MOST_SOLUTIONS:
                self._found.clear()
            solver = SolveSettings(
                catalog=catalog,
                unbuilt_reason=unsupported_reason,
                read_file=lambda _: b"",
                alternative_count=keep,
                memory=self.of(catalog.price_book),
                names_nearest=names_nearest,
            )
            self._found[key] = catalog, find_fleet(spec_of(text), solver)
        return self._found[key][1]

    def of(self, price_book: PriceBook) -> Memory:
        if price_book is not self._price_book:
            self._price_book, self._memory = price_book, Memory()
        return self._memory


_KEPT_RUNS: Final = _KeptRuns()


def find(
    catalog: Catalog, text: str, keep: int = 3, *, names_nearest: bool = True
) -> Solution:
    """Find the fleet of a spec given as text, which takes a part of the time of `solve`.

    It cannot be changed, so that tests of a module that ask again get the same.
    """
    return _KEPT_RUNS.find(catalog, text, keep, names_nearest=names_nearest)


@pytest.fixture(autouse=True, scope="module")
def _own_runs() -> None:
    """Let the tests of a module share runs: their specs differ in little.

    What was asked before changes no plan (tests/planner/solve/serving/test_search_order.py).
    """
    _KEPT_RUNS.forget()


@pytest.fixture(autouse=True, scope="module")
def _one_judge() -> Iterator[None]:
    """Let the commands and plans of a module share simulated fleets: most ask about the same.

    Prices play no part in them. What was asked before changes no plan, which tests of the search
    itself hold: there each search has a judge of its own (tests/planner/solve/conftest.py).
    """
    judge = FleetJudge()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.solve.serving.search.FleetJudge", lambda: judge)
        yield


@pytest.fixture(autouse=True, scope="session")
def unflushed() -> Iterator[None]:
    """Leave what is written to the system: in a test nobody cuts the power.

    A flush takes 4 to 8 ms, and an engine writes its state at each step.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _packed_once() -> Iterator[None]:
    """Pack the same files of a machine once: it takes 7 ms, and many tests have the same."""
    pack = program.packed

    @lru_cache(maxsize=MOST_PROGRAMS)
    def packed_parts(parts: frozenset[tuple[str, str]]) -> str:
        return pack(dict(parts))

    def packed(files_by_path: Mapping[str, str]) -> str:
        return packed_parts(frozenset(files_by_path.items()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "packed", packed)
        yield


@pytest.fixture(autouse=True, scope="session")
def _cores_of_a_worker() -> Iterator[None]:
    """Let a plan use one core where tests run on all of them already.

    Processes of its own would only share what is taken, and keep nothing for each other.
    """
    with pytest.MonkeyPatch.context() as patch:
        if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
            patch.setattr("planner.cli.parallel.usable_cores", lambda: 1)
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def untimed(told: str) -> str:
    """What a command says on standard error, without how long it took."""
    return re.sub(r"^planned in .*\n", "", told, flags=re.MULTILINE)


@pytest.fixture
def tonnage(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in an empty folder; returns exit code, standard output, standard error."""
    from planner.cli.main import run

    def call(*argv: str) -> tuple[int, str, str]:
        code = run(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return call
