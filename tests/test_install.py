"""The built wheel, installed into a fresh environment and used as a user would."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import BLUEPRINTS, ROOT

pytest.importorskip("hatchling")


def run(
    *argv: str | Path, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source archive."""
    target = tmp_path_factory.mktemp("dist")
    for kind in ("wheel", "sdist"):
        found = run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            kind,
            "-d",
            target,
            cwd=ROOT,
        )
        assert found.returncode == 0, found.stderr
    return target


def test_the_wheel_holds_data_and_blueprints_and_no_tests(built: Path) -> None:
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    for wanted in (
        "providers/catalog/data/prices.csv",
        "planner/facts/data/models.csv",
        "planner/perf/data/coefficients.csv",
        "planner/estimate/data/spellings.csv",
        "stacks/data/images.csv",
        "providers/simulated/data/replace.csv",
        "planner/py.typed",
    ):
        assert wanted in names
    assert {f"blueprints/{p.name}" for p in BLUEPRINTS} <= set(names)
    assert not any(name.startswith("tests") for name in names)
    assert next(built.glob("*.tar.gz")).stat().st_size > 100_000


def test_the_installed_command_plans_applies_and_destroys(
    built: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(site)
    import click

    # The dependencies come from the environment of the tests: installing them needs a network.
    (site / "dependencies.pth").write_text(
        str(Path(click.__file__).parents[1]) + "\n"
    )
    tonnage = (
        folder / "bin" / "python",
        "-c",
        "from planner.cli.main import main; main()",
    )
    where = run(
        folder / "bin" / "python",
        "-c",
        "import planner; print(planner.__file__)",
        cwd=tmp_path,
    )
    assert str(site) in where.stdout
    for argv in (
        ("init", "--blueprint", "chat-8b"),
        ("plan", "chat-8b.yaml", "-o", "p.json"),
        ("apply", "p.json", "--simulate"),
        ("status", "chat-8b", "--simulate"),
        ("apply", "p.json", "--simulate"),
        ("show", "p.json"),
        (
            "destroy",
            "chat-8b",
            "--simulate",
            "--yes",
            "--allow",
            "delete-data,production",
        ),
    ):
        found = run(*tonnage, *argv, cwd=tmp_path)
        assert found.returncode == 0, (argv, found.stderr)
    assert (
        run(
            *tonnage, "status", "chat-8b", "--simulate", cwd=tmp_path
        ).returncode
        == 6
    )
    assert run(*tonnage, "plan", "nothing.yaml", cwd=tmp_path).returncode == 6


@pytest.mark.skipif(
    shutil.which("cc") is None
    or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="there is no C compiler, or it has no headers of Python",
)
def test_a_compiled_wheel_has_both_halves_of_the_simulation(
    tmp_path: Path,
) -> None:
    """Built from a copy: in place it would replace what other tests import."""
    pytest.importorskip("hatch_mypyc")
    copy = tmp_path / "copy"
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "hatch"
    ]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(
            ROOT / name,
            copy / name,
            ignore=shutil.ignore_patterns("*.so", "__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    found = run(
        sys.executable,
        *("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path),
        cwd=copy,
        HATCH_BUILD_HOOK_ENABLE_MYPYC="true",
    )
    assert found.returncode == 0, found.stderr
    site = tmp_path / "site"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(site)
    imported = run(
        sys.executable,
        "-c",
        "from planner.perf.serving import simulation as s; print(s.__file__)",
        cwd=site,
    )
    assert imported.stdout.startswith(str(site)), imported.stderr
    assert ".py" not in imported.stdout


@pytest.mark.parametrize(
    "module", ["live/rest.py", "live/small_cloud.py", "live/price.py"]
)
def test_what_needs_no_account_needs_no_extra(module: str) -> None:
    """Price lists are asked with what the base package brings, and what that brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {name_of(text) for text in project["dependencies"]}
    brought = {
        name_of(text)
        for package in base
        for text in metadata.requires(package) or ()
        if "extra ==" not in text
    }
    tree = ast.parse((ROOT / "providers" / module).read_text())
    imported = {
        (node.module or "").split(".")[0]
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
    }
    ours = {"planner", "providers", "stacks", "__future__"}
    assert imported - ours - sys.stdlib_module_names <= base | brought


def name_of(requirement: str) -> str:
    """The package of a requirement, such as click>=8.1."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower()


def test_a_folder_of_another_distribution_is_told_in_a_line(tmp_path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "__init__.py").write_text("")
    start = "from planner.cli.main import main; main(['--help'])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", start],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "another distribution owns stacks" in done.stderr
