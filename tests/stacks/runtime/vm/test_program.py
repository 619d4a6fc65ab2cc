"""The program of a node: what it needs is there, and it fits into what a machine is given."""

from __future__ import annotations

import ast
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.facts.cloud import clouds
from stacks.runtime.vm.program import (
    PACKAGE,
    ROLE_MODULES,
    node_program,
    packed,
    unpacked,
)
from tests.conftest import ROOT
from tests.stacks.runtime.vm.sandbox import boot_of, settings_of

NODE = ROOT / PACKAGE.replace(".", "/")
SOURCES = [
    *sorted(NODE.glob("*.py")),
    *(ROOT / "stacks" / name / "node.py" for name in sorted(clouds())),
]
IMAGES = ROOT / "stacks" / "data" / "image_commands.csv"
# What a service of the fabric runs on the machine, from stacks/data/containers.csv.
COREUTILS = {"chmod"}


def commands_of(path: Path) -> Iterator[str]:
    """The commands that a module runs: first words of `run` and of what calls it."""
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name not in ("run", "succeeds") or not call.args:
            continue
        # Words of a variable are those of docker run and of apt-get.
        word = call.args[0]
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            yield word.value


def image_commands(image: str) -> dict[str, str]:
    with IMAGES.open(encoding="utf-8") as stream:
        return {
            row["command"]: row["how"]
            for row in csv.DictReader(stream)
            if row["image"] == image
        }


@pytest.mark.parametrize(
    "image", sorted([*clouds(), *(f"{cloud}-plain" for cloud in clouds())])
)
def test_every_command_is_in_the_image_or_is_installed_first(
    image: str,
) -> None:
    known = image_commands(image)
    shared = [path for path in SOURCES if path.parent == NODE]
    own = [ROOT / "stacks" / image.removesuffix("-plain") / "node.py"]
    used = {name for path in (*shared, *own) for name in commands_of(path)}
    assert {"docker", "systemctl", "nvidia-smi", "mkfs.ext4"} <= used
    assert used | {"apt-get", "python3"} <= known.keys()
    installed = {name for name, how in known.items() if how == "install"}
    text = "".join(path.read_text() for path in SOURCES)
    packages = {"docker": "docker.io", "nvidia-ctk": "nvidia-container-toolkit"}
    for name in installed:
        package = packages.get(name, name)
        assert (
            f'install(machine, "{package}")' in text or f'["{package}"]' in text
        )


def test_commands_of_the_fabric_are_known_too() -> None:
    text = (ROOT / "stacks" / "data" / "containers.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    used = {row["text"].split()[0] for row in rows if row["kind"] == "command"}
    assert used - COREUTILS <= image_commands("gcp").keys()


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: path.parent.name + "/" + path.stem
)
def test_a_module_runs_with_the_python_of_the_oldest_image(path: Path) -> None:
    """Syntax of Python 3.10, and nothing but its standard library and the program itself."""
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            head = name.partition(".")[0]
            assert head in sys.stdlib_module_names or name.startswith(
                (PACKAGE, "stacks.")
            )
            if head == "stacks":
                assert name.startswith(PACKAGE) or name.endswith(".node")


@pytest.mark.parametrize("role", sorted(ROLE_MODULES))
@pytest.mark.parametrize("provider", sorted(clouds()))
def test_the_program_of_a_role_starts_by_itself(
    provider: str, role: str, tmp_path: Path
) -> None:
    """What is installed is imported in an empty place, by the modules that a role has."""
    core, rest = node_program([f"stacks.{provider}.node"], role)
    for name, text in {**core, **rest}.items():
        path = tmp_path / name.removeprefix("/opt/tonnage/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = [
        name.removeprefix("/opt/tonnage/").removesuffix(".py").replace("/", ".")
        for name in {**core, **rest}
    ]
    lines = [f"import {name}" for name in sorted(modules)]
    subprocess.run(
        [sys.executable, "-S", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
    )


def test_a_packed_text_is_the_same_everywhere() -> None:
    """Another text would be another machine: no clock, order or version may change it."""
    text = packed({"b": "two\n", "a": "one ünï $(x) \"'\n"})
    assert unpacked(text) == {"a": "one ünï $(x) \"'\n", "b": "two\n"}
    assert text == packed({"a": "one ünï $(x) \"'\n", "b": "two\n"})
    assert text.isascii()
    assert not {'"', "'", "\\"} & set(text)


def test_user_data_has_no_comments_and_no_docstrings() -> None:
    for name, text in node_program(["stacks.aws.node"], "train").core.items():
        tree = ast.parse(text)
        assert ast.get_docstring(tree) is None, name
        assert not any(
            line.lstrip().startswith("#") for line in text.splitlines()
        )


def test_what_is_fetched_has_the_lines_of_the_source() -> None:
    for name, text in node_program(["stacks.aws.node"], "train").rest.items():
        source = ROOT / name.removeprefix("/opt/tonnage/")
        assert text == source.read_text(), name


def test_the_boot_script_installs_what_was_packed(tmp_path: Path) -> None:
    boot, settings = boot_of("gcp", "serve")
    script = boot.script.replace(
        "pathlib.Path(name)", f"pathlib.Path({str(tmp_path)!r} + name)"
    )
    stub = "systemctl() { echo $*; }\n"
    found = subprocess.run(
        ["bash", "-euc", stub + script],
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.splitlines() == [
        "daemon-reload",
        "enable --now tonnage-agent tonnage-work",
    ]
    installed = tmp_path / "etc" / "tonnage" / "node.json"
    assert installed.read_text() == settings
    unit = tmp_path / "etc" / "systemd" / "system" / "tonnage-agent.service"
    assert "Restart=always" in unit.read_text()
    assert (tmp_path / "opt/tonnage/stacks/runtime/vm/node/agent.py").exists()


def test_odd_names_stay_data() -> None:
    settings = settings_of("aws", "serve")
    settings["cloud"]["stack"] = "x'; $(reboot) `reboot` \" ünï"
    text = packed({"/etc/tonnage/node.json": json.dumps(settings)})
    assert json.loads(unpacked(text)["/etc/tonnage/node.json"]) == settings
