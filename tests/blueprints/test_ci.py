"""Templates of pipelines are what their systems take, by the schemas and linters of others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tree_sitter_groovy
import yaml
from tree_sitter import Language, Parser

from planner.cli.main import cli
from planner.version import VERSION
from tests.blueprints.runner import CI
from tests.conftest import ROOT

WORKFLOWS = sorted((CI / "github").glob("tonnage-*.yml"))
FILES = sorted(
    path for path in CI.rglob("*") if path.is_file() and path.suffix != ".csv"
)
# Each template with the schema that check-jsonschema has of it, and how that has to be read.
SCHEMAS = [
    *((path, ("vendor.github-workflows",)) for path in WORKFLOWS),
    (CI / "github" / "action.yml", ("vendor.github-actions",)),
    (
        CI / "gitlab" / "tonnage.gitlab-ci.yml",
        ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
    ),
    (
        CI / "azure" / "azure-pipelines.yml",
        (
            "vendor.azure-pipelines",
            "--regex-variant",
            "python",
            "--data-transform",
            "azure-pipelines",
        ),
    ),
]
# Keys of the documentation of Atlantis: repo-level atlantis.yaml, server-side repos.yaml, steps.
ATLANTIS_KEYS = {
    "version",
    "projects",
    "name",
    "dir",
    "workflow",
    "autoplan",
    "when_modified",
    "enabled",
    "apply_requirements",
    "repos",
    "id",
    "allowed_overrides",
    "allow_custom_workflows",
    "workflows",
    "tonnage",
    "plan",
    "apply",
    "steps",
    "env",
    "value",
    "run",
    "command",
    "output",
}
COMMAND = re.compile(r"\btonnage ([a-z]+)((?: [^|;\n>]*)?)")
FLAG = re.compile(r"(?<!\S)\"?(--[a-z-]+)")


def judged(*words: str) -> str:
    """What a tool says of a file; empty when it has nothing against it."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("path", "schema"), SCHEMAS, ids=lambda value: getattr(value, "name", "")
)
def test_templates_have_the_shape_of_their_system(
    path: Path, schema: tuple[str, ...]
) -> None:
    pytest.importorskip("check_jsonschema")
    assert (
        judged("check_jsonschema", "--builtin-schema", *schema, str(path)) == ""
    )


def test_hooks_are_those_of_pre_commit() -> None:
    if find_spec("pre_commit") is None:
        pytest.skip("pre-commit is not installed")
    hooks = ROOT / ".pre-commit-hooks.yaml"
    assert judged("pre_commit", "validate-manifest", str(hooks)) == ""


def test_workflows_pass_actionlint() -> None:
    """It sees what a schema does not: contexts, needs, outputs, and the shell of run lines."""
    if (program := shutil.which("actionlint")) is None:
        pytest.skip("actionlint is not on PATH")
    done = subprocess.run(
        [program, "-no-color", *map(str, WORKFLOWS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, CI / "github" / "action.yml"], ids=lambda p: p.name
)
def test_zizmor_finds_nothing_that_is_not_safe(path: Path) -> None:
    program = shutil.which("zizmor") or shutil.which(
        "zizmor", path=str(Path(sys.executable).parent)
    )
    if program is None:
        pytest.skip("zizmor is not installed")
    done = subprocess.run(
        [
            program,
            "--offline",
            "--no-progress",
            "--no-config",
            "--min-severity=medium",
            str(path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_action_is_pinned_to_a_commit_and_says_its_version() -> None:
    pinned: dict[str, str] = {}
    for path in WORKFLOWS:
        for line in path.read_text().splitlines():
            if "uses:" not in line or "uses: ./" in line:
                continue
            found = re.fullmatch(
                r"\s*(?:- )?uses: (\S+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line
            )
            assert found, f"{path.name}: {line}"
            assert pinned.setdefault(found[1], found[2]) == found[2]


def test_jobs_have_no_right_that_they_do_not_name() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}, path.name
        for job in workflow["jobs"].values():
            assert "permissions" in job
            assert "timeout-minutes" in job


def test_no_credential_of_a_cloud_is_beside_the_code_of_a_request() -> None:
    """A job that a fork can start asks for no token of a cloud, and reads no secret."""
    path = CI / "github" / "tonnage-pull-request.yml"
    text = path.read_text()
    assert "secrets." not in text
    for job in yaml.safe_load(text)["jobs"].values():
        assert "id-token" not in job["permissions"]
        assert job["permissions"]["contents"] == "read"
    for file in FILES:
        assert "secrets." not in file.read_text()


def test_the_version_that_is_installed_is_this_one() -> None:
    for path in FILES:
        for found in re.findall(
            r"\btonnage(?:\[\w+\])?==([\w.]+)", path.read_text()
        ):
            assert found == VERSION, path.name


def test_commands_and_flags_of_the_templates_exist() -> None:
    import click

    context = click.Context(cli)
    asked = 0
    for path in FILES:
        for line in path.read_text().splitlines():
            if line.strip().startswith(("#", "//")):
                continue
            for name, words in COMMAND.findall(line):
                command = cli.get_command(context, name)
                if command is None:
                    continue
                known = {o for p in command.params for o in p.opts}
                unknown = set(FLAG.findall(words)) - known
                assert not unknown, f"{path.name}: {line}"
                asked += 1
    assert asked > 25


def test_atlantis_is_told_what_its_documentation_knows() -> None:
    def keys(tree: Any) -> set[str]:
        if isinstance(tree, dict):
            return set(tree) | {k for v in tree.values() for k in keys(v)}
        if isinstance(tree, list):
            return {k for item in tree for k in keys(item)}
        return set()

    for path in sorted((CI / "atlantis").glob("*.yaml")):
        assert keys(yaml.safe_load(path.read_text())) <= ATLANTIS_KEYS


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_template_says_what_it_is_for_and_where_it_goes(
    path: Path,
) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith(("# ", "// "))
    assert first.endswith(".")


def test_the_containerfile_passes_hadolint() -> None:
    program = shutil.which("hadolint") or shutil.which(
        "hadolint", path=str(Path(sys.executable).parent)
    )
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(
        [program, "--no-color", str(CI / "Containerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def groovy_errors(text: str) -> list[str]:
    """What a grammar of Groovy does not take of a text."""
    parser = Parser(Language(tree_sitter_groovy.language()))
    waiting = [parser.parse(text.encode()).root_node]
    found = []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            found.append(f"line {node.start_point[0] + 1}")
        waiting += node.children
    return found


def test_the_jenkinsfile_is_groovy() -> None:
    text = (CI / "jenkins" / "Jenkinsfile").read_text()
    assert groovy_errors(text) == []
    # One brace less, and it is none.
    assert groovy_errors(text.rstrip().removesuffix("}"))


@pytest.mark.parametrize("script", ["azure", "jenkins", "gitlab", "atlantis"])
def test_shell_of_other_systems_passes_shellcheck(
    script: str, tmp_path: Path
) -> None:
    program = shutil.which("shellcheck") or shutil.which(
        "shellcheck", path=str(Path(sys.executable).parent)
    )
    if program is None:
        pytest.skip("shellcheck is not installed")
    scripts = shell_of(CI / script)
    assert scripts
    for number, text in enumerate(scripts):
        file = tmp_path / f"{number}.sh"
        file.write_text(text)
        done = subprocess.run(
            # SC2086: flags of a variable are words. SC2154: the system sets it.
            [
                program,
                "--shell=sh" if script == "atlantis" else "--shell=bash",
                "--exclude=SC2086,SC2154",
                "--severity=warning",
                str(file),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def shell_of(folder: Path) -> list[str]:
    """The scripts of the templates of a folder."""
    found: list[str] = []

    def walk(tree: Any) -> None:
        if isinstance(tree, list):
            for item in tree:
                walk(item)
        elif isinstance(tree, dict):
            for key, value in tree.items():
                if key in ("bash", "inlineScript", "command"):
                    found.append(value)
                elif key == "script":
                    found.append("\n".join(value))
                else:
                    walk(value)

    for path in sorted(folder.iterdir()):
        if path.suffix in (".yml", ".yaml"):
            walk(yaml.safe_load(path.read_text()))
        else:
            found += re.findall(r"sh '''(.*?)'''", path.read_text(), re.DOTALL)
    return found
