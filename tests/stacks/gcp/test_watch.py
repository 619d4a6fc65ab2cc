"""The workflow that gives lost machines back, run by an interpreter of its language."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.build import build_stack
from tests.conftest import find, spec_of
from tests.oracles.google_workflow import (
    MAX_EXPRESSION,
    Workflow,
    WorkflowError,
    expressions,
)
from tests.oracles.lost_machine import Machine, drawn, happened
from tests.stacks.runtime.vm.sandbox import SandboxMachine
from tests.stacks.watched import (
    SPEC,
    WatchedWorld,
    assert_a_dead_agent_ends_its_machine,
)

NOW_S = 1_800_000_000.0
PAGE_SIZE = 2
SANDBOX_ZONE = "z"
SOURCE = files("stacks.gcp").joinpath("watch.yaml").read_text()


class Google:
    """The services of Google, as much as the workflow asks of them."""

    def __init__(
        self, machines: list[Machine], argument: Mapping[str, Any]
    ) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._argument = argument
        self.deleted: list[str] = []
        self.troubled: list[str] = []

    def __call__(self, method: str, url: str, sent: Mapping[str, Any]) -> Any:
        zone_url = f"https://compute.googleapis.com/compute/v1/projects/proj/zones/{self._argument['zone']}"
        group_url = (
            f"{zone_url}/instanceGroupManagers/{self._argument['group']}"
        )
        if (method, url) == ("get", f"{zone_url}/instances"):
            return self._page(sent)
        if (method, url) == ("post", f"{group_url}/deleteInstances"):
            [handle] = sent["instances"]
            self.deleted.append(handle.rpartition("/")[2])
            return {}
        if url.startswith("https://storage.googleapis.com/"):
            return self._written(url, sent)
        assert (
            url
            == "https://monitoring.googleapis.com/v3/projects/proj/timeSeries"
        )
        if method == "post":
            [series] = sent["timeSeries"]
            assert series["metric"] == {
                "type": f"{self._argument['metrics']}/trouble",
                "labels": {"group": self._argument["group"]},
            }
            labels = series["resource"]["labels"]
            assert labels["zone"] == self._argument["zone"]
            self.troubled.append(labels["instance_id"].removeprefix("id-"))
            return {}
        return self._told(sent)

    def _page(self, query: Mapping[str, Any]) -> Any:
        assert query["filter"] == self._argument["machines"]
        start = int(query["pageToken"] or 0)
        page = list(self._machines.values())[start : start + PAGE_SIZE]
        answer: dict[str, Any] = {}
        # Google leaves out what is empty.
        if page:
            answer["items"] = [
                {
                    "name": machine.name,
                    "id": f"id-{machine.name}",
                    "lastStartTimestamp": moment(machine.age_s),
                }
                for machine in page
            ]
        if start + PAGE_SIZE < len(self._machines):
            answer["nextPageToken"] = str(start + PAGE_SIZE)
        return answer

    def _written(self, url: str, query: Mapping[str, Any]) -> Any:
        assert url.endswith(f"/b/{self._argument['bucket']}/o")
        prefix = f"{self._argument['alive']}zones_{self._argument['zone']}_instances_"
        machine = self._machines[query["prefix"].removeprefix(prefix)]
        refuse(machine, "written")
        if machine.wrote_s is None:
            return {}
        return {"items": [{"updated": moment(machine.wrote_s)}]}

    def _told(self, query: Mapping[str, Any]) -> Any:
        [(metric, name)] = re.findall(
            r'^metric\.type = "custom\.googleapis\.com/tonnage/watched/[a-z0-9-]+/(\w+)" AND '
            r'resource\.type = "gce_instance" AND '
            r'resource\.labels\.instance_id = "id-([\w-]+)"$',
            query["filter"],
        )
        machine = self._machines[name]
        refuse(machine, metric)
        start_s, end_s = (
            datetime.fromisoformat(query[f"interval.{end}Time"]).timestamp()
            for end in ("start", "end")
        )
        assert end_s == NOW_S
        window_s = int(end_s - start_s)
        assert query["aggregation.alignmentPeriod"] == f"{window_s}s"
        assert query["aggregation.perSeriesAligner"] == "ALIGN_MAX"
        if not happened(machine.heard_s, window_s):
            return {}
        is_busy = happened(machine.worked_s, window_s)
        told = 1.0 if metric == "heartbeat" or is_busy else 0.0
        return {"timeSeries": [{"points": [{"value": {"doubleValue": told}}]}]}


def refuse(machine: Machine, question: str) -> None:
    if question in machine.refused:
        raise WorkflowError({"code": 503, "message": "try later"})


def moment(ago_s: int) -> str:
    return datetime.fromtimestamp(NOW_S - ago_s, UTC).isoformat()


def inputs_of(catalog, name: str) -> Mapping[str, Any]:
    spec = spec_of(SPEC.replace("CLOUD", "gcp"))
    graph = build_stack(
        spec, find(catalog, SPEC.replace("CLOUD", "gcp"), keep=0), spec.name
    ).graph
    [resource] = [r for r in graph.resources if r.name == name]
    return resource.inputs


def argument_of(catalog) -> dict[str, Any]:
    target = inputs_of(catalog, "serve-watch")["httpTarget"]
    execution = json.loads(base64.b64decode(target["body"]))
    argument: dict[str, Any] = json.loads(execution["argument"])
    return argument


@pytest.fixture(scope="module")
def argument(catalog) -> dict[str, Any]:
    return argument_of(catalog)


@pytest.mark.parametrize("seed", range(150))
def test_who_is_lost_goes_and_nobody_else(
    argument: dict[str, Any], seed: int
) -> None:
    machines, idle_s = drawn(seed)
    group = {**argument, "idle_s": idle_s}
    google = Google(machines, group)
    Workflow(SOURCE, google, NOW_S, "proj").run("main", {"group": group})
    must_go = {m.name for m in machines if m.is_silent() or m.is_idle(idle_s)}
    answered = {m.name for m in machines if not m.refused}
    assert must_go & answered <= set(google.deleted) <= must_go
    assert len(google.deleted) == len(set(google.deleted))
    assert google.troubled == google.deleted


def test_a_machine_that_was_never_started_is_left_alone(
    argument: dict[str, Any],
) -> None:
    machines = [
        Machine("pool-0000", 90_000, None, None, None, frozenset()),
        Machine("pool-0001", 90_000, None, None, None, frozenset()),
    ]

    class Forgetful(Google):
        def _page(self, query: Mapping[str, Any]) -> Any:
            page = super()._page(query)
            del page["items"][0]["lastStartTimestamp"]
            return page

    google = Forgetful(machines, argument)
    workflow = Workflow(SOURCE, google, NOW_S, "proj")
    workflow.run("main", {"group": argument})
    assert google.deleted == ["pool-0001"]
    assert [level for level, _ in workflow.log] == ["ERROR", "WARNING"]


def test_the_clock_gives_the_workflow_all_that_it_asks_for(
    argument: dict[str, Any],
) -> None:
    asked = set(re.findall(r"\bgroup\.(\w+)", SOURCE))
    assert asked == argument.keys()


def test_expressions_are_as_short_as_google_wants() -> None:
    found = list(expressions(yaml.safe_load(SOURCE)))
    assert found
    assert max(map(len, found)) <= MAX_EXPRESSION
    # An apply fills these in, and must find none.
    assert "${project}" not in SOURCE
    assert "${deadline" not in SOURCE


def test_a_machine_whose_agent_has_died_ends(
    argument: dict[str, Any], tmp_path: Path
) -> None:
    """The agent writes where the workflow looks for it."""
    world = WatchedWorld("gcp", tmp_path)
    group = {**argument, "zone": SANDBOX_ZONE}

    def look(machine: SandboxMachine) -> list[str]:
        google = Google(world.seen(), group)
        prefix = f"{group['alive']}zones_{SANDBOX_ZONE}_instances_"
        assert world.signs(machine) in ([], [f"{prefix}{machine.name}"])
        Workflow(SOURCE, google, NOW_S, "proj").run("main", {"group": group})
        return google.deleted

    assert_a_dead_agent_ends_its_machine(world, look)
