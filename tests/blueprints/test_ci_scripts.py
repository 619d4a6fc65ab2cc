"""The scripts of the other templates, each with the shell and the variables of its system."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.blueprints.runner import CI, fake_program, job_environment
from tests.providers.forge.hosts import HOSTS, REQUEST, TOKEN, FakeHost, serving

pytestmark = pytest.mark.enable_socket

DESK = """apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 24GiB, count: COUNT}
disk: 100GiB
shutdown: {ttl: 3d}
"""
COMMANDS = ("PLAN", "APPLY", "DRIFT", "LIST")


class Scripts(NamedTuple):
    """What a template runs, in the order of its jobs. Where a system comments itself, no forge."""

    shell: tuple[str, ...]
    forge: str | None
    environment: dict[str, str]
    cost: list[str]
    plan: list[str]
    apply: list[str]
    drift: list[str]


def loaded(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text())


def gitlab(host: FakeHost) -> Scripts:
    jobs = loaded("gitlab/tonnage.gitlab-ci.yml")
    scripts = {
        name: ["\n".join(job["script"])]
        for name, job in jobs.items()
        if "script" in job
    }
    environment = {
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_MERGE_REQUEST_IID": str(REQUEST),
        "CI_MERGE_REQUEST_PROJECT_PATH": host.repository,
        "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": host.repository,
        "CI_API_V4_URL": host.api,
        "CI_PIPELINE_ID": "5",
        "CI_JOB_ID": "1",
        "GITLAB_TOKEN": TOKEN,
        "CLOUD_TOKEN": "a.b.c",
        "AWS_PLAN_ROLE": "arn:aws:iam::123456789012:role/plan",
        "AWS_APPLY_ROLE": "arn:aws:iam::123456789012:role/apply",
        "FAIL_IF": jobs["tonnage cost"]["variables"]["FAIL_IF"],
    }
    return Scripts(
        ("bash", "-eo", "pipefail", "-c"),
        "gitlab",
        environment,
        cost=scripts["tonnage cost"],
        plan=scripts["tonnage plan"],
        apply=scripts["tonnage apply"],
        drift=scripts["tonnage drift"],
    )


def azure(host: FakeHost) -> Scripts:
    stages = {
        stage["stage"]: stage["jobs"][0]
        for stage in loaded("azure/azure-pipelines.yml")["stages"]
    }

    def scripts(job: dict[str, Any]) -> list[str]:
        steps = (
            job.get("steps") or (job["strategy"]["runOnce"]["deploy"]["steps"])
        )
        texts = [
            step.get("bash") or step.get("inputs", {}).get("inlineScript", "")
            for step in steps
        ]
        return [text for text in texts if text and "pipx" not in text]

    environment = {
        "SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/main",
        "SYSTEM_PULLREQUEST_PULLREQUESTID": str(REQUEST),
        "SYSTEM_COLLECTIONURI": host.api,
        "SYSTEM_TEAMPROJECT": host.repository.split("/")[0],
        "BUILD_REPOSITORY_NAME": host.repository.split("/")[1],
        "BUILD_BUILDID": "5",
        "SYSTEM_JOBATTEMPT": "1",
        "SYSTEM_ACCESSTOKEN": TOKEN,
        "PIPELINE_WORKSPACE": ".",
    }
    return Scripts(
        ("bash", "--noprofile", "--norc", "-c"),
        "azure-devops",
        environment,
        cost=scripts(stages["cost"]),
        plan=scripts(stages["plan"]),
        apply=scripts(stages["apply"]),
        drift=scripts(stages["drift"]),
    )


def jenkins(host: FakeHost) -> Scripts:
    text = (CI / "jenkins" / "Jenkinsfile").read_text()
    parts = re.split(r"stage\('(\w+)'\)", text)
    found = {
        name: re.findall(r"sh '''(.*?)'''", body, re.DOTALL)
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    environment = {
        "CHANGE_TARGET": "main",
        "CHANGE_ID": str(REQUEST),
        "CHANGE_URL": f"https://github.com/{host.repository}/pull/{REQUEST}",
        "BUILD_NUMBER": "5",
        "GITHUB_API_URL": host.api,
        "GITHUB_TOKEN": TOKEN,
    }
    return Scripts(
        # The shell is that of the first line of a script.
        ("bash", "-c"),
        "github",
        environment,
        cost=found["Cost"],
        plan=found["Plan"],
        apply=found["Apply"],
        drift=found["Drift"],
    )


def atlantis(host: FakeHost) -> Scripts:
    workflow = loaded("atlantis/repos.yaml")["workflows"]["tonnage"]
    plan, apply = (
        [s["run"]["command"] for s in workflow[n]["steps"] if "run" in s]
        for n in ("plan", "apply")
    )
    environment = {"BASE_BRANCH_NAME": "main", "PLANFILE": "default.tfplan"}
    return Scripts(
        ("sh", "-c"),
        None,
        environment,
        cost=plan[:1],
        plan=plan[1:],
        apply=apply,
        drift=[],
    )


SYSTEMS: dict[str, tuple[str, Callable[[FakeHost], Scripts]]] = {
    "gitlab": ("gitlab", gitlab),
    "azure": ("azure-devops", azure),
    "jenkins": ("github", jenkins),
    "atlantis": ("github", atlantis),
}


@contextmanager
def workspace(
    folder: Path, kept: Path
) -> Iterator[Callable[[tuple[str, ...], str, Mapping[str, str]], str]]:
    """A clone whose spec differs from that of its base; yields what runs a script in it."""
    origin, clone, state = (folder / n for n in ("origin", "clone", "state"))
    state.mkdir()
    rules = folder / "world.yaml"
    rules.write_text("seed: 7\n")
    environment = job_environment(folder / "machine", kept) | {
        f"TONNAGE_{command}_SIMULATE": str(rules) for command in COMMANDS
    }
    environment["TONNAGE_STATE"] = f"file://{state}"
    fake_program(folder / "machine" / "bin" / "az", "echo 0-1-2-3")

    def run(
        shell: tuple[str, ...], text: str, variables: Mapping[str, str]
    ) -> str:
        done = subprocess.run(
            [*shell, text],
            cwd=clone,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    who = "git -c user.name=Ada -c user.email=ada@example.com commit -qm desk"
    clone.mkdir()
    (clone / "specs").mkdir()
    spec = clone / "specs" / "desk.yaml"
    spec.write_text(DESK.replace("COUNT", "1"))
    run(
        ("bash", "-ec"),
        f"git init -q --bare -b main {origin}; git init -q -b main;"
        f"git remote add origin file://{origin}; git add .; {who};"
        "git push -q origin main; git checkout -qb more",
        {},
    )
    spec.write_text(DESK.replace("COUNT", "2"))
    run(("bash", "-ec"), f"git add .; {who}", {})
    yield run


@pytest.mark.parametrize("system", SYSTEMS)
def test_scripts_compare_comment_plan_apply_and_watch(
    system: str, tmp_path: Path, kept_folder: Path
) -> None:
    forge, scripts_of = SYSTEMS[system]
    host = HOSTS[forge]()
    with serving(host), workspace(tmp_path, kept_folder) as run:
        scripts = scripts_of(host)

        def play(texts: list[str]) -> str:
            return "".join(
                run(scripts.shell, text, scripts.environment) for text in texts
            )

        told = play(scripts.cost)
        if scripts.forge is None:
            assert "desk" in told
        else:
            (comment,) = host.texts()
            assert "specs/desk.yaml" in comment
            assert "#### Findings" in comment
        play(scripts.plan)
        plans = tmp_path / "clone" / "plans"
        assert [p.name for p in plans.glob("*.json")] == [
            "specs-desk.plan.json"
        ]
        play(scripts.apply)
        assert list((tmp_path / "state").iterdir())
        # What stands as it is planned leaves no plan, and has not drifted.
        play(scripts.plan)
        assert list(plans.glob("*.json")) == []
        play(scripts.drift)
