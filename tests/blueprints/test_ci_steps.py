"""The templates for GitHub, step by step: from a branch to a bill, on simulated clouds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from providers.simulated import world
from providers.simulated.shared import SharedWorld
from tests.blueprints.runner import (
    CI,
    Event,
    Runner,
    fake_program,
    job_environment,
)
from tests.providers.forge.hosts import (
    HOSTS,
    REQUEST,
    TOKEN,
    FakeHost,
    Fault,
    Reply,
    serving,
)

pytestmark = pytest.mark.enable_socket

DESK = """apiVersion: tonnage/v1
kind: Workspace
name: NAME
labels: {team: TEAM}
accelerator: {memory: 24GiB, count: COUNT}
disk: 100GiB
shutdown: {ttl: 3d}
"""
POLICY = """rules:
  - id: owner
    message: every stack has a team
    when: '!has(spec.labels.team) || spec.labels.team == "nobody"'
    about: labels
    help: name a team
"""
# What the stack of a desk has cost in two days, as a cloud exports it.
PAID = """EffectiveCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,\
ServiceName,ChargeDescription,ResourceId,ConsumedQuantity,ConsumedUnit,Tags
13.44,USD,Usage,2026-10-01T00:00:00Z,2026-10-02T00:00:00Z,Compute Engine,\
Nvidia L4 GPU running in Virginia,vm-1,24,hour,"{""tonnage-stack"": ""desk-3""}"
"""
SIMULATED = ("PLAN", "APPLY", "DRIFT", "LIST", "DESTROY")


class Project(NamedTuple):
    """A repository with its pipelines, a code host, and a clone of somebody who works there."""

    runner: Runner
    clone: Path
    host: FakeHost

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        done = subprocess.run(
            ["git", *who, *words],
            cwd=self.clone,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, name: str, team: str = "research", count: int = 1) -> None:
        text = DESK.replace("NAME", name).replace("TEAM", team)
        path = self.clone / "specs" / f"{name}.yaml"
        path.write_text(text.replace("COUNT", str(count)))

    def pushed(self, message: str) -> str:
        self.git("add", ".")
        self.git("commit", "-qm", message)
        self.git("push", "-q", "origin", "HEAD")
        return self.git("rev-parse", "HEAD")

    def request(
        self,
        head: str,
        *,
        is_fork: bool = False,
        action: str = "opened",
        label: str = "cost",
    ) -> Event:
        """The event of a pull request; what it checks out is the merge, as GitHub makes it."""
        branch = self.git("rev-parse", "--abbrev-ref", "HEAD")
        self.git("checkout", "-q", "--detach", "origin/main")
        self.git("merge", "-q", "--no-ff", "-m", "Merge", head)
        ref = f"refs/pull/{REQUEST}/merge"
        self.git("push", "-q", "-f", "origin", f"HEAD:{ref}")
        self.git("checkout", "-q", branch)
        repository = "fork/infra" if is_fork else "acme/infra"
        pull_request = {
            "number": REQUEST,
            "head": {
                "sha": head,
                "repo": {"fork": is_fork, "full_name": repository},
            },
            "labels": [{"name": label}],
        }
        payload = {"action": action, "pull_request": pull_request}
        return Event("pull_request", ref, payload)


@pytest.fixture
def project(tmp_path: Path, kept_folder: Path) -> Iterator[Project]:
    """A repository with one spec on its main branch."""
    origin = tmp_path / "origin.git"
    subprocess.run(
        ["git", "init", "-q", "--bare", "-b", "main", str(origin)], check=True
    )
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", str(origin), str(clone)],
        check=True,
        capture_output=True,
    )
    machine = tmp_path / "machine"
    state = tmp_path / "state"
    state.mkdir()
    rules = tmp_path / "world.yaml"
    rules.write_text("seed: 7\n")
    host = HOSTS["github"]()
    with serving(host):
        environment = job_environment(machine, kept_folder) | {
            f"TONNAGE_{command}_SIMULATE": str(rules) for command in SIMULATED
        }
        environment |= {
            "GITHUB_REPOSITORY": host.repository,
            "GITHUB_API_URL": host.api,
            "GITHUB_SERVER_URL": "https://github.example.com",
            "GITHUB_ACTOR": "ada",
        }
        runner = Runner(origin, tmp_path / "runs", environment)
        runner.contexts = {
            "github.base_ref": "main",
            "github.token": TOKEN,
            "vars.TONNAGE_STATE": f"file://{state}",
            "vars.AWS_REVIEW_ROLE": "arn:aws:iam::123456789012:role/review",
            "vars.TONNAGE_EXPORTS": "s3://acme-costs/focus",
            "vars.AWS_PLAN_ROLE": "arn:aws:iam::123456789012:role/plan",
            "vars.AWS_APPLY_ROLE": "arn:aws:iam::123456789012:role/apply",
        }
        (tmp_path / "paid.csv").write_text(PAID)
        fake_program(
            machine / "bin" / "aws",
            f"mkdir exports && cp {tmp_path}/paid.csv exports/",
        )
        project = Project(runner, clone, host)
        action = clone / ".github" / "actions" / "tonnage"
        action.mkdir(parents=True)
        shutil.copy(CI / "github" / "action.yml", action)
        (clone / "specs").mkdir()
        (clone / "policy.yaml").write_text(POLICY)
        project.git("checkout", "-q", "-b", "main")
        project.write("desk-0")
        project.pushed("A desk")
        yield project


def test_a_request_is_told_merged_applied_watched_reviewed_and_ended(
    project: Project,
) -> None:
    pytest.importorskip("cel")
    runner, host = project.runner, project.host
    for number in (3, 4):
        project.write(f"desk-{number}")
    project.pushed("Three desks")
    project.git("checkout", "-q", "-b", "more")
    # A rule denies: the comment says so, at its line, and the job fails.
    project.write("desk-9", team="nobody", count=2)
    head = project.pushed("Nobody's desk")
    cost = runner.run("tonnage-pull-request", project.request(head))["cost"]
    assert cost.code == 5, cost.text
    (comment,) = host.texts()
    assert "specs/desk-9.yaml:4: error[owner]" in comment
    assert "specs/desk-9.yaml:4: error[owner]" in cost.summary
    assert cost.signed_in == ()
    rules = [r["ruleId"] for r in runner.findings["runs"][0]["results"]]
    assert "owner" in rules

    project.write("desk-9")
    project.pushed("A desk of research")
    project.git("checkout", "-q", "main")
    project.git("merge", "-q", "--no-ff", "-m", "Merge", "more")
    project.git("push", "-q", "origin", "main")
    merged = Event("push", "main", {})
    applied = runner.run("tonnage-apply", merged)
    assert [result.code for result in applied.values()] == [0, 0], applied
    assert "desk-9" in applied["plan"].summary
    # What may only read, and what may build, sign in as different roles.
    assert all(result.signed_in for result in applied.values())

    somebody_deletes(runner.shared_clouds, "desk-3")
    drift = runner.run("tonnage-drift", Event("schedule", "main", {}))["drift"]
    assert drift.code == 20
    assert "### desk-3" in drift.summary
    assert "### desk-4" not in drift.summary

    reviewed = runner.run("tonnage-review", Event("schedule", "main", {}))
    review = reviewed["review"]
    assert review.code in (0, 5), review.text
    assert "desk-3" in review.summary
    assert "desk-4" not in review.summary


def test_nobody_is_asked_to_approve_where_nothing_changes(
    project: Project,
) -> None:
    pytest.importorskip("cel")
    runner, merged = project.runner, Event("push", "main", {})
    assert set(runner.run("tonnage-apply", merged)) == {"plan", "apply"}
    again = runner.run("tonnage-apply", merged)
    assert set(again) == {"plan"}
    assert again["plan"].code == 0


def test_what_needs_a_cloud_waits_for_its_variables(project: Project) -> None:
    runner = project.runner
    for name in ("vars.TONNAGE_STATE", "vars.TONNAGE_EXPORTS"):
        del runner.contexts[name]
    assert runner.run("tonnage-apply", Event("push", "main", {})) == {}
    for name in ("tonnage-drift", "tonnage-review"):
        assert runner.run(name, Event("schedule", "main", {})) == {}


def test_a_request_of_a_fork_is_told_by_a_second_job(project: Project) -> None:
    pytest.importorskip("cel")
    runner, host = project.runner, project.host
    project.git("checkout", "-q", "-b", "theirs")
    project.write("desk-9")
    head = project.pushed("A desk of theirs")
    host.head = head
    host.fork = "fork/infra"
    denied = {"message": "Resource not accessible by integration"}
    host.faults = [Fault("POST", Reply(403, denied), path="/comments")]
    event = project.request(head, is_fork=True)
    cost = runner.run("tonnage-pull-request", event)["cost"]
    assert cost.code == 0, cost.text
    assert host.texts() == []
    assert "desk-9" in cost.summary
    # Findings need a right that the token of a fork has not.
    assert runner.findings == {}
    plans = runner.artifacts / "plans" / "specs"
    assert {path.name for path in plans.iterdir()} == {
        "desk-9.plan.json",
        "desk-9.html",
    }

    told = {
        "event": "pull_request",
        "id": 7,
        "head_sha": head,
        "head_branch": "theirs",
        "head_repository": {"full_name": "fork/infra"},
    }
    done = Event("workflow_run", "main", {"workflow_run": told})
    post = runner.run("tonnage-comment", done)["post"]
    assert post.code == 0, post.text
    (comment,) = host.texts()
    assert "fork/infra" in comment
    assert "desk-9" in comment

    # The request has moved on: nothing is said about a commit that is not there any more.
    host.head = "0" * 40
    assert runner.run("tonnage-comment", done)["post"].code == 11


def test_a_comment_that_was_posted_needs_no_second_job(
    project: Project,
) -> None:
    told = {
        "event": "pull_request",
        "id": 7,
        "head_branch": "more",
        "head_repository": {"full_name": "acme/infra"},
    }
    done = Event("workflow_run", "main", {"workflow_run": told})
    assert project.runner.run("tonnage-comment", done)["post"].code == 0
    assert project.host.asked == []


def test_a_preview_lives_as_long_as_its_request(project: Project) -> None:
    runner = project.runner
    project.git("checkout", "-q", "-b", "try")
    project.write("desk-9")
    head = project.pushed("Try a desk")
    plain = project.request(head)
    assert runner.run("tonnage-preview", plain) == {}
    fork = project.request(head, is_fork=True, label="preview")
    assert runner.run("tonnage-preview", fork) == {}

    labeled = project.request(head, action="labeled", label="preview")
    up = runner.run("tonnage-preview", labeled)["preview"]
    assert up.code == 0, up.text
    clouds = SharedWorld(
        world.default_world(), runner.shared_clouds / "simulated"
    )
    stacks = {h.stack for h in clouds.view().memory.history.values()}
    assert stacks == {"pr-12-desk-9"}

    closed = project.request(head, action="closed", label="preview")
    down = runner.run("tonnage-preview", closed)["preview"]
    assert down.code == 0, down.text
    assert clouds.view().memory.objects == {}


def somebody_deletes(shared_clouds: Path, stack: str) -> None:
    """An object of a stack is gone, past tonnage."""
    clouds = SharedWorld(world.default_world(), shared_clouds / "simulated")
    with clouds.call("") as cloud:
        object_id = max(
            found
            for found in cloud.memory.objects
            if cloud.memory.history[found].stack == stack
        )
        del cloud.memory.objects[object_id]
