"""The rooms of the house, read off its imports."""

from __future__ import annotations

import ast
import csv
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from planner.cli.main import COMMANDS, MODULES
from planner.errors import TonnageError
from tests.conftest import ROOT

PACKAGES = ("planner", "providers", "stacks")
# What each room may import of the others. planner/cli is the composition root.
ALLOWED = {
    "planner": {"planner"},
    "providers": {"planner", "providers"},
    "stacks": {"planner", "providers", "stacks"},
    "planner.cli": {"planner", "providers", "stacks"},
    "planner.api": {"planner", "providers", "stacks"},
}
OUTSIDE = {
    "cel",
    "click",
    "filelock",
    "highspy",
    "msgspec",
    "platformdirs",
    "yaml",
    "rich",
    "starlette",
    "uvicorn",
    "pulumi",
    "grpc",
    "google",
    "requests",
    "urllib3",
    "obstore",
    "boto3",
    "botocore",
    "azure",
}
# The pure core does not touch these.
SEEDED = {
    "planner.perf.serving.monte_carlo",
    "planner.perf.reliability.simulated_run",
}
EFFECTS = {
    "os",
    "time",
    "datetime",
    "random",
    "socket",
    "subprocess",
    "urllib",
    "pathlib",
    "sys",
}


def modules() -> list[Path]:
    return [p for name in PACKAGES for p in sorted((ROOT / name).rglob("*.py"))]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    )


# Many laws are about the same imports, and parsing takes longer than any of them.
@cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom) and item.module:
            found |= {
                item.module,
                *(f"{item.module}.{a.name}" for a in item.names),
            }
    return frozenset(found)


COMPOSITION_ROOTS = ("planner.cli", "planner.api")


def room(name: str) -> str:
    for root in COMPOSITION_ROOTS:
        if name.startswith(root):
            return root
    return name.split(".", maxsplit=1)[0]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    here = room(name_of(path))
    for target in imports(path):
        head = target.split(".")[0]
        if head in PACKAGES:
            assert head in ALLOWED[here], f"{name_of(path)} imports {target}"
            if here != "planner.cli":
                assert not target.startswith(COMPOSITION_ROOTS)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_known_packages_are_imported(path: Path) -> None:
    import sys

    for target in imports(path):
        head = target.split(".")[0]
        assert (
            head in sys.stdlib_module_names
            or head in OUTSIDE
            or head in PACKAGES
        ), target


@pytest.mark.parametrize(
    "path", [p for p in modules() if room(name_of(p)) == "planner"], ids=name_of
)
def test_the_planner_is_pure(path: Path) -> None:
    heads = {target.split(".")[0] for target in imports(path)}
    seeded = {"random"} if name_of(path) in SEEDED else set()
    assert (
        not heads & EFFECTS - seeded
    )  # a seeded generator is a function of its seed
    assert not heads & {"pulumi", "boto3", "google", "azure", "grpc"}


def test_pulumi_stays_in_its_modules() -> None:
    users = {
        name_of(p)
        for p in modules()
        if any(t.split(".")[0] == "pulumi" for t in imports(p))
    }
    assert users == {
        "stacks.engine.pulumi.command",
        "stacks.engine.pulumi.program",
        "stacks.engine.pulumi.session",
        "stacks.engine.pulumi.stack",
        "providers.simulated.plugin",
    }


def test_the_engine_of_rules_stays_in_its_module() -> None:
    """What has no policy does not wait for its import."""
    users = {
        name_of(p)
        for p in modules()
        if any(t.split(".")[0] == "cel" for t in imports(p))
    }
    assert users == {"planner.plan.policy.cel_engine"}


def test_what_serves_pages_stays_in_its_modules() -> None:
    """It is an extra: no other command waits for its import."""
    users = {
        name_of(p)
        for p in modules()
        if {t.split(".")[0] for t in imports(p)} & {"starlette", "uvicorn"}
    }
    assert users == {
        "planner.cli.serve",
        "planner.cli.served.app",
        "planner.cli.served.guard",
    }


def test_every_cloud_has_the_same_rooms() -> None:
    wanted = {
        "bucket",
        "door",
        "logs",
        "network",
        "fabric",
        "placement",
        "fleet",
        "size",
        "storage",
        "files",
        "shutdown",
        "observe",
        "watch",
        "alarm",
        "dashboard",
        "home",
        "identity",
        "find",
        "cloud",
        "node",
        "__init__",
    }
    for cloud in ("aws", "gcp", "azure"):
        assert {
            p.stem for p in (ROOT / "stacks" / cloud).glob("*.py")
        } == wanted


def test_no_import_goes_in_circles() -> None:
    known = {name_of(p): p for p in modules()}
    graph = {
        name: {t for t in imports_at_load(path) if t in known}
        for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def rooms_below(folder: str) -> dict[str, set[str]]:
    """What each direct child of a folder imports of its siblings, types included."""
    prefix = folder.replace("/", ".") + "."

    def child(name: str) -> str:
        return name.removeprefix(prefix).split(".")[0]

    graph: dict[str, set[str]] = {}
    for path in (ROOT / folder).rglob("*.py"):
        here = child(name_of(path))
        if not name_of(path).startswith(prefix):
            continue
        targets = {child(t) for t in imports(path) if t.startswith(prefix)}
        graph.setdefault(here, set()).update(targets - {here})
    return {
        name: {t for t in targets if t in graph}
        for name, targets in graph.items()
    }


def floors(graph: dict[str, set[str]]) -> int:
    """Rooms on the longest way down; raises CycleError when an arrow runs back up."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        height[name] = 1 + max((height[t] for t in graph[name]), default=0)
    return max(height.values())


@pytest.mark.parametrize(
    ("folder", "most_rooms", "most_floors"),
    [
        ("planner", 20, 14),
        ("planner/perf", 9, 6),
        ("planner/solve", 11, 7),
        ("providers", 12, 6),
        ("stacks", 12, 10),
    ],
)
def test_folders_are_rooms_on_few_floors(
    folder: str, most_rooms: int, most_floors: int
) -> None:
    """No circle between rooms, no arrow that runs back up, and few of both."""
    graph = rooms_below(folder)
    assert len(graph) <= most_rooms, sorted(graph)
    assert floors(graph) <= most_floors


def imports_at_load(path: Path) -> set[str]:
    """Imports that run when the module is loaded: not those for types, not those in functions."""
    found = set()
    for item in ast.parse(path.read_text()).body:
        if isinstance(item, ast.ImportFrom) and item.module:
            names = {f"{item.module}.{a.name}" for a in item.names}
            found |= names | {item.module}
    return found - {name_of(path)}


def test_every_row_of_facts_has_a_source_and_a_date() -> None:
    tables = [p for name in PACKAGES for p in (ROOT / name).rglob("*.csv")]
    assert len(tables) > 12
    for path in tables:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert rows, path
        if (
            path.name
            in (
                "unsupported.csv",
                "names.csv",
                "outputs.csv",
                "durations.csv",
                "sources.csv",
                "spellings.csv",
                "calibration_spellings.csv",
            )
            or path.parent.parent.name == "spec"
        ):
            continue  # choices of ours and names, not facts about the world
        assert all(row["source"] and row["as_of"] for row in rows), path


def test_exit_codes_are_those_of_the_contract() -> None:
    def below(kind):
        return {kind, *(s for c in kind.__subclasses__() for s in below(c))}

    codes = {kind.__name__: kind.exit_code for kind in below(TonnageError)}
    assert codes == {
        "TonnageError": 1,
        "UsageError": 2,
        "SpecError": 2,
        "CredentialError": 3,
        "ResourceError": 4,
        "PolicyError": 5,
        "MissingError": 6,
        "ExpectationError": 7,
        "CancelledError": 8,
        "TimedOutError": 9,
        "InfeasibleError": 10,
        "StaleError": 11,
        "LockedError": 12,
        "CatalogError": 13,
        "CapacityError": 14,
    }


def test_every_command_has_a_module() -> None:
    files = {p.stem for p in (ROOT / "planner" / "cli").glob("*.py")}
    assert {MODULES.get(name, name) for name in COMMANDS} <= files


def test_nothing_reads_what_lies_outside_the_project() -> None:
    for path in [
        *modules(),
        *(ROOT / "tests").rglob("*.py"),
        ROOT / "Makefile",
    ]:
        assert "../" + "shared" not in path.read_text(), path


# Words of the first build that had no meaning outside it; docs/glossary.md has those that hold.
RETIRED = {
    "Spread",
    "Laid",
    "Sharded",
    "Floor",
    "Toll",
    "Book",
    "Trust",
    "Belief",
    "Setup",
    "Server",
    "Machine",
    "Lane",
    "Station",
    "Need",
    "TrainNeed",
    "Room",
    "Way",
    "Site",
    "Standing",
}


def test_retired_words_are_gone() -> None:
    classes = {
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert classes & RETIRED == set()
    assert len(classes) > 100


# Of the whole tree, and of what it is installed from; fixtures beside them are no tests.
WHOLE_TREE = {"test_architecture", "test_style", "test_docs", "test_install"}

# What a person with an account runs is of the whole product, not of one module.
WITH_AN_ACCOUNT = Path("cloud")


def test_test_files_stand_where_their_modules_do() -> None:
    """tests/<room>/test_<name>.py is of <room>/<name>.py or of the folder <room>/<name>.

    An aspect of a module may have a file of its own: test_<name>_<aspect>.py.
    """
    strays = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        room = path.parent.relative_to(ROOT / "tests")
        words = path.stem.removeprefix("test_").split("_")
        names = ["_".join(words[:n]) for n in range(1, len(words) + 1)]
        is_mirror = any(
            (ROOT / room / name).is_dir()
            or (ROOT / room / f"{name}.py").is_file()
            for name in names
        )
        if (
            not is_mirror
            and path.stem not in WHOLE_TREE
            and room != WITH_AN_ACCOUNT
        ):
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []
