"""Runs workflows of GitHub here: their run lines as they are, their actions by what these leave.

It knows the expressions that the templates use, and no others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.conftest import ROOT

CI = ROOT / "blueprints" / "ci"
# What GitHub starts, for a step without a shell and for one of bash.
SHELLS = {
    None: ("bash", "-e"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
}
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
COMPARISON = re.compile(r"(\S+) (==|!=) '(.*)'")
CONTAINED = re.compile(r"contains\((\S+), '(.*)'\)")
# Contexts in which what nobody has set is empty.
OPTIONAL = ("vars.", "inputs.", "steps.", "needs.")
SIGNS_IN = (
    "aws-actions/configure-aws-credentials",
    "google-github-actions/auth",
    "azure/login",
)


class StepFailed(Exception):  # noqa: N818 - it is how a step ends
    """A step ended with another code than 0."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name}: {code}\n{text}")
        self.code = code


class Event(NamedTuple):
    """What starts a workflow. `ref` is what checkout gets, `payload` what GitHub tells."""

    name: str
    ref: str
    payload: dict[str, Any]


class JobResult(NamedTuple):
    """How a job ended: its code, its outputs, and all that its steps have printed."""

    code: int
    outputs: dict[str, str]
    text: str
    summary: str
    signed_in: tuple[str, ...]


class Runner:
    """Jobs over a bare repository, each in a folder of its own; simulated clouds are the same."""

    def __init__(
        self, origin: Path, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.origin = origin
        self.folder = folder
        self.environment = dict(environment)
        self.contexts: dict[str, Any] = {}
        self.artifacts = folder / "artifacts"
        self.shared_clouds = folder / "clouds"
        self.findings: dict[str, Any] = {}
        self.installed: list[str] = []
        self.run_count = 0
        self.shared_clouds.mkdir(parents=True)

    def run(self, name: str, event: Event) -> dict[str, JobResult]:
        """Run the jobs of a template in their order; one that is not wanted is left out."""
        path = CI / "github" / f"{name}.yml"
        workflow = yaml.safe_load(path.read_text())
        trigger = workflow[True]  # YAML 1.1 reads the key `on` so
        assert event.name in trigger, f"{name} does not start by {event.name}"
        self.run_count += 1
        contexts = self.contexts | flatten("github.event", event.payload)
        contexts["github.event_name"] = event.name
        results: dict[str, JobResult] = {}
        for job_name, job in workflow["jobs"].items():
            job_contexts = contexts | flatten(
                "needs",
                {key: {"outputs": r.outputs} for key, r in results.items()},
            )
            wanted = job.get("if")
            needed = job.get("needs", job_name)
            is_ready = needed == job_name or needed in results
            if not is_ready or not holds(wanted, job_contexts):
                continue
            job_run = JobRun(self, event, job_contexts, job_name)
            results[job_name] = job_run.run(job, workflow.get("env", {}))
        return results


class JobRun:
    """One job: its folder, its variables, and what its steps have said."""

    def __init__(
        self,
        runner: Runner,
        event: Event,
        contexts: Mapping[str, Any],
        name: str,
    ) -> None:
        self.runner = runner
        self.event = event
        self.contexts = dict(contexts)
        folder = runner.folder / f"{runner.run_count}-{name}"
        self.workspace = folder / "work"
        self.workspace.mkdir(parents=True)
        (self.workspace / ".tonnage").symlink_to(runner.shared_clouds)
        self.summary = folder / "summary.md"
        self.summary.touch()
        self.output = folder / "output"
        event_file = folder / "event.json"
        event_file.write_text(json.dumps(event.payload))
        self.environment = runner.environment | {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event.name,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_RUN_ID": str(runner.run_count),
            "GITHUB_RUN_ATTEMPT": "1",
        }
        self.text = ""
        self.signed_in: list[str] = []

    def run(
        self, job: dict[str, Any], workflow_env: Mapping[str, str]
    ) -> JobResult:
        """Run the steps until one fails."""
        for variables in (workflow_env, job.get("env", {})):
            self.environment |= filled(variables, self.contexts)
        code = 0
        for step in job["steps"]:
            if not holds(step.get("if"), self.contexts):
                continue
            try:
                self.step(step)
            except StepFailed as failed:
                if not step.get("continue-on-error"):
                    code = failed.code
                    break
        outputs = filled(job.get("outputs", {}), self.contexts)
        return JobResult(
            code,
            outputs,
            self.text,
            self.summary.read_text(),
            tuple(self.signed_in),
        )

    def step(self, step: dict[str, Any]) -> None:
        """Run a step and keep its outputs."""
        if "run" in step:
            self.shell(step)
        else:
            self.action(step)

    def shell(self, step: dict[str, Any]) -> None:
        assert "${{" not in step["run"], "expressions belong into env"
        script = self.workspace.parent / "step.sh"
        script.write_text(step["run"])
        self.output.write_text("")
        done = subprocess.run(
            [*SHELLS[step.get("shell")], str(script)],
            cwd=self.workspace,
            env=self.environment | filled(step.get("env", {}), self.contexts),
            capture_output=True,
            text=True,
            check=False,
        )
        text = done.stdout + done.stderr
        self.text += text
        for line in self.output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.contexts[f"steps.{step.get('id')}.outputs.{name}"] = value
        if done.returncode:
            raise StepFailed(step.get("name", "run"), done.returncode, text)

    def action(self, step: dict[str, Any]) -> None:
        name = step["uses"].split("@")[0]
        options = filled(step.get("with", {}), self.contexts)
        if name.startswith("./"):
            self.composite(self.workspace / name, step, options)
        elif name in SIGNS_IN:
            # Without a right to ask for a token, GitHub gives none.
            self.signed_in.append(name)
        else:
            {
                "actions/checkout": self.checkout,
                "actions/upload-artifact": self.upload,
                "actions/download-artifact": self.download,
                "github/codeql-action/upload-sarif": self.upload_findings,
            }[name](options)

    def composite(
        self, folder: Path, step: dict[str, Any], options: dict[str, str]
    ) -> None:
        action = yaml.safe_load((folder / "action.yml").read_text())
        unknown = set(options) - set(action["inputs"])
        assert not unknown, unknown
        outer = self.contexts
        given = {
            name: options.get(name, fill(str(told.get("default", "")), outer))
            for name, told in action["inputs"].items()
        }
        self.contexts = outer | flatten("inputs", given)
        try:
            for inner in action["runs"]["steps"]:
                assert inner["shell"] == "bash"
                self.shell(inner)
            for name, output in action["outputs"].items():
                value = fill(output["value"], self.contexts)
                outer[f"steps.{step['id']}.outputs.{name}"] = value
        finally:
            self.contexts = outer

    def checkout(self, options: dict[str, str]) -> None:
        """A shallow clone of the event's commit; with fetch-depth 0 all there is."""
        assert options["persist-credentials"] == "False"
        depth = [] if options.get("fetch-depth") == "0" else ["--depth=1"]
        git = ("git", "-C", str(self.workspace))
        origin = f"file://{self.runner.origin}"
        branches = "+refs/heads/*:refs/remotes/origin/*"
        for words in (
            (*git, "init", "--quiet"),
            (*git, "remote", "add", "origin", origin),
            *(() if depth else ((*git, "fetch", "-q", "origin", branches),)),
            (*git, "fetch", "-q", *depth, "origin", self.event.ref),
            (*git, "checkout", "-q", "FETCH_HEAD"),
        ):
            subprocess.run(words, check=True, capture_output=True)

    def upload(self, options: dict[str, str]) -> None:
        source = self.workspace / options["path"]
        target = self.runner.artifacts / options["name"]
        shutil.rmtree(target, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            target.mkdir(parents=True)
            shutil.copy(source, target)
        else:
            assert options["if-no-files-found"] == "ignore"

    def download(self, options: dict[str, str]) -> None:
        source = self.runner.artifacts / options["name"]
        if not source.is_dir():
            raise StepFailed("download", 1, "no such artifact")
        target = self.workspace / options.get("path", "")
        shutil.copytree(source, target, dirs_exist_ok=True)

    def upload_findings(self, options: dict[str, str]) -> None:
        path = self.workspace / options["sarif_file"]
        self.runner.findings = json.loads(path.read_text())


def flatten(prefix: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree as one level: its leaves by the names that expressions have for them."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(f"{prefix}.{name}", value)
        elif isinstance(value, list):
            for key in {key for item in value for key in item}:
                flat[f"{prefix}.{name}.*.{key}"] = [i[key] for i in value]
        else:
            flat[f"{prefix}.{name}"] = value
    return flat


def read(name: str, contexts: Mapping[str, Any]) -> Any:
    """The value of a name; raises KeyError for one that the templates should not have."""
    if name not in contexts and name.startswith(OPTIONAL):
        return ""
    return contexts[name]


def fill(text: str, contexts: Mapping[str, Any]) -> str:
    """A text with the values of its expressions."""
    return EXPRESSION.sub(lambda m: str(read(m[1], contexts)), text)


def filled(
    values: Mapping[str, Any], contexts: Mapping[str, Any]
) -> dict[str, str]:
    return {name: fill(str(value), contexts) for name, value in values.items()}


def holds(condition: str | None, contexts: Mapping[str, Any]) -> bool:
    """Whether a condition of a job or a step is true: terms that are joined by &&."""
    if condition is None:
        return True
    inner = EXPRESSION.fullmatch(condition)
    text = inner[1] if inner else condition
    return all(term_holds(term.strip(), contexts) for term in text.split("&&"))


def term_holds(term: str, contexts: Mapping[str, Any]) -> bool:
    if comparison := COMPARISON.fullmatch(term):
        name, operator, value = comparison.groups()
        return (read(name, contexts) == value) == (operator == "==")
    if contained := CONTAINED.fullmatch(term):
        return contained[2] in read(contained[1], contexts)
    if term.startswith("!"):
        return not read(term[1:], contexts)
    return bool(read(term, contexts))


def fake_program(path: Path, line: str) -> None:
    """Write a program of one line for the shell."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def job_environment(folder: Path, kept: Path) -> dict[str, str]:
    """Variables of a machine of a CI that has tonnage, and fakes of what it has not."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name, line in {
        "tonnage": f'exec {sys.executable} -m planner.cli.main "$@"',
        "pipx": f'echo "$@" >> {folder}/installed',
    }.items():
        fake_program(programs / name, line)
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TONNAGE_CACHE": str(kept),
        "TONNAGE_CATALOGS": str(kept / "catalogs"),
        "SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"],
    }
